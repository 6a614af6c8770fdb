"""The check that every list of coefficients passes."""

import math
from collections.abc import Iterable

from antiphon.errors import PlanError

__all__ = ["LARGEST", "SMALLEST", "finite", "first_column", "number"]

# The square of a coefficient, and a sum of such squares, must not leave the range of float64.
SMALLEST, LARGEST = 1e-100, 1e100


def finite(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """The values as a tuple of finite floats."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise PlanError(f"{name} must be a list of numbers; got {values!r}.")
    column = tuple(number(f"{name}[{i}]", value) for i, value in enumerate(values))
    for i, value in enumerate(column):
        if not math.isfinite(value):
            raise PlanError(f"{name}[{i}] is {value}; every coefficient must be finite.")
        if abs(value) > LARGEST:
            raise PlanError(f"{name}[{i}] is {value}; above {LARGEST:g} sums of squares overflow.")
    return column


def number(name: str, value: object) -> float:
    """The value as a float; text and truth values are not numbers."""
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        raise PlanError(f"{name} must be a number; got {value!r}.")
    return float(value)


def first_column(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """The values as the first column of an invertible lower-triangular Toeplitz matrix."""
    column = finite(name, values)
    if not column or abs(column[0]) < SMALLEST:
        raise PlanError(
            f"{name} must start with a non-zero number (at least {SMALLEST:g} in size), so that C is "
            f"invertible; got {column[:4]}."
        )
    return column
