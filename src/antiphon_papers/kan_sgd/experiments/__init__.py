"""Figures and tables of the paper on private SGD with correlated noise on KANs."""

__all__: list[str] = []
