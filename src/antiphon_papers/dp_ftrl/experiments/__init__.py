"""Figures and tables of the paper on correlated noise in linear regression and beyond."""

__all__: list[str] = []
