"""Logarithms of failure probabilities, as concentration inequalities use them."""

import math

from antiphon.checks import positive
from antiphon.errors import PlanError

__all__ = ["log_over"]


def log_over(count: float, failure: float) -> float:
    """log(count/failure), for a probability of failure below 1.

    Example:
        >>> round(log_over(2, 0.01), 4)
        5.2983
    """
    if not positive("failure", failure) < 1:
        raise PlanError(f"failure is a probability below 1; got {failure}.")
    return math.log(count / failure)
