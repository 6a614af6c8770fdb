"""Accountants for correlated noise under secret participations: conditioned, moments, pairs."""

__all__: list[str] = []
