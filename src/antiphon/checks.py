"""Checks of single values that every layer needs, with one wording for each."""

import math
from typing import Any

import numpy as np

from antiphon.errors import PlanError

__all__ = ["positive", "whole"]


def whole(name: str, value: Any) -> int:
    """The value as a plain int, if it is a whole number of at least 1."""
    if isinstance(value, bool) or not (isinstance(value, int | np.integer) and value >= 1):
        raise PlanError(f"{name} must be a whole number of at least 1; got {value!r}.")
    return int(value)


def positive(name: str, value: Any) -> float:
    """The value as a plain float, if it is a positive finite number."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):
        raise PlanError(f"{name} must be positive and finite; got {value!r}.")
    return float(value)
