"""A warning about tables that were scaled by their own statistics, which no certificate covers."""

import warnings
from typing import Any

import numpy as np

__all__ = ["ScaledDataWarning", "warn_if_scaled"]

_TOL = 1e-6
_FEWEST = 8  # records; fewer look scaled by chance


class ScaledDataWarning(UserWarning):
    """The table looks as if it had been scaled by a mean, a deviation or a range of its own."""


def warn_if_scaled(table: Any) -> None:
    """Warn if every column that varies has mean 0 and deviation 1, or exactly the range [0, 1] or [-1, 1].

    This looks at the records and warns the person who runs the training; it is not part of the release.
    """
    if not isinstance(table, np.ndarray) or table.dtype.kind != "f" or len(table) < _FEWEST:
        return
    varies = table[:, np.ptp(table, axis=0) > 0]
    if not varies.shape[1] or np.isnan(varies).any():
        return
    standard = (np.abs(varies.mean(0)) < _TOL) & (np.abs(varies.std(0) - 1) < _TOL)
    low, high = varies.min(0), varies.max(0)
    ranged = (np.abs(high - 1) < _TOL) & ((np.abs(low) < _TOL) | (np.abs(low + 1) < _TOL))
    is_grid = np.array([len(np.unique(column[:64])) <= 2 for column in varies.T])
    if standard.all() or (ranged.all() and not is_grid.all()):
        warnings.warn(
            "the columns look scaled by statistics of these very records (a StandardScaler or MinMaxScaler "
            "in front?). Such scaling reveals something about single records that the certificate does not "
            "cover. Give the raw table, with bounds from public knowledge or bounds='private'.",
            ScaledDataWarning,
            stacklevel=4,
        )
