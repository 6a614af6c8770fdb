"""The check that every list of coefficients passes."""

import math
from collections.abc import Iterable

from antiphon.errors import PlanError

__all__ = ["finite", "first_column"]


def finite(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """The values as a tuple of finite floats."""
    if isinstance(values, str):
        raise PlanError(f"{name} must be a list of numbers; got {values!r}.")
    column = tuple(float(value) for value in values)
    bad = [i for i, value in enumerate(column) if not math.isfinite(value)]
    if bad:
        raise PlanError(f"{name}[{bad[0]}] is {column[bad[0]]}; every coefficient must be finite.")
    return column


def first_column(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """The values as the first column of an invertible lower-triangular Toeplitz matrix."""
    column = finite(name, values)
    if not column or column[0] == 0:
        raise PlanError(
            f"{name} must start with a non-zero number, so that C is invertible; got {column[:4]}."
        )
    return column
