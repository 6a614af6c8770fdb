"""The δ of whoever names none."""

__all__ = ["delta_of"]


def delta_of(delta: float | None, n: int) -> float:
    """The δ that is asked for; unless given, n to the power of -1.1, a little below one in n units.

    Example:
        >>> round(delta_of(None, 1000), 6), delta_of(1e-6, 1000)
        (0.000501, 1e-06)
    """
    return n**-1.1 if delta is None else delta
