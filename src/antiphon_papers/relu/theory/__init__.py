"""Bounds of the paper on private ReLU regression."""

__all__: list[str] = []
