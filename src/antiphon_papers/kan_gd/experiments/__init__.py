"""Figures and tables of the paper on gradient descent and DP-GD on KANs."""

__all__: list[str] = []
