"""Clipping: what bounds one unit's contribution."""

import numpy as np

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics.arrays import Rows

__all__ = ["clip_rows"]

# Norms and divisions round: a factor this much smaller keeps the computed norm within the bound.
_INSIDE = 1 - 1e-14


def clip_rows(rows: Rows, bound: float) -> Rows:
    """Each row shortened to a norm of at most ``bound``, its direction kept.

    Guarantee:
        The computed norm of every row is at most ``bound``. Rows within it are returned unchanged, zeros
        stay zeros.

    Example:
        >>> clip_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0).round(6).tolist()
        [[0.6, 0.8], [0.3, 0.4]]
    """
    positive("the clip norm", bound)
    rows = np.asarray(rows, np.float64)
    if not np.isfinite(rows).all():
        raise PlanError("rows to be clipped must be finite.")
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scale = np.where(
        largest > 0, largest, 1.0
    )  # squares of huge or tiny entries must not leave range
    units = rows / scale
    norms = np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1.0)
    with np.errstate(over="ignore"):
        within = np.linalg.norm(rows, axis=1, keepdims=True) <= bound
    return np.where(within, rows, units * (bound * _INSIDE / norms))
