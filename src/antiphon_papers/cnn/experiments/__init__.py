"""Figures and tables of the paper on gradient descent and DP-GD on two-layer CNNs."""

__all__: list[str] = []
