"""Accountants for noise that is independent between steps: Gaussian, PLD, RDP, shuffling."""

__all__: list[str] = []
