"""A noisy histogram of every column over one public grid: signed powers of two.

The grid is the same for all data: zero (below 2**-40 in absolute value), and for either sign one cell per
octave [2**k, 2**(k + 1)), k from -40 to 39; larger numbers count in the outermost cell. It covers absolute
values from 1e-12 to 1e12, so nothing about a column's scale must be known.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.participation import Relation
from antiphon.plans import GaussianRelease
from antiphon.releases.release_noise import noised

__all__ = [
    "CELLS",
    "EDGES",
    "OCTAVES",
    "cell_counts",
    "histogram_sensitivity",
    "matrix",
    "private_histogram",
]

_LOWEST, _HIGHEST = -40, 40
OCTAVES = _HIGHEST - _LOWEST
CELLS = 2 * OCTAVES + 1  # negative octaves, largest first; zero; positive octaves, smallest first
_POWERS = 2.0 ** np.arange(_LOWEST, _HIGHEST + 1)
EDGES = np.concatenate([-_POWERS[::-1], _POWERS])  # cell i lies between edges i and i + 1


def private_histogram(
    X: Any,
    *,
    mu: float,
    relation: str = Relation.ADD_REMOVE,
    generator: Generator | None = None,
    what: str = "histograms of the columns",
) -> tuple[NDArray[np.float64], GaussianRelease]:
    """Noisy counts of every column over the public grid, as one Gaussian release.

    Args:
        X: One row per record; the number of columns d is public. What is not finite is in no cell.
        mu: The privacy to spend; positive.
        relation: How neighbouring tables differ.
        generator: Secret source of the noise; a new secure one unless given. A seeded one is not for
            release.
        what: What is released, for the certificate.

    Returns:
        Counts of shape (d, 161), and the event to pay for.

    Guarantee:
        Exactly μ-GDP: white noise of `histogram_sensitivity` / μ on counts whose largest change is that
        sensitivity, attained by a record that is finite in all columns (and, if replaced, moves in all).
    """
    counts = cell_counts(matrix(X))
    scale = histogram_sensitivity(len(counts), relation) / positive("mu", mu)
    return noised(counts, scale, what, generator), GaussianRelease(float(mu), what, relation)


def histogram_sensitivity(columns: int, relation: str) -> float:
    """Largest L2 change of all columns' counts when one record changes.

    Guarantee:
        A record is in at most one cell of each column. Added, removed or zeroed it changes up to d counts
        by 1: sqrt(d). Replaced it leaves one cell and enters another in up to d columns: sqrt(2d), and not
        twice sqrt(d), since the two cells differ.

    Example:
        >>> histogram_sensitivity(2, "add-remove") ** 2, histogram_sensitivity(2, "replace-one")
        (2.0000000000000004, 2.0)
    """
    return math.sqrt(columns * (2 if Relation.of(relation) is Relation.REPLACE_ONE else 1))


def cell_counts(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many records lie in each cell, of shape (columns, cells)."""
    counts = np.zeros((X.shape[1], CELLS), dtype=np.int64)
    for column, x in enumerate(X.T):  # one column at a time: a large table need not fit twice
        finite = x[np.isfinite(x)]
        octave = np.clip(np.frexp(finite)[1] - 1 - _LOWEST, 0, OCTAVES - 1)  # floor(log2 |x|)
        place = np.where(finite > 0, OCTAVES + 1 + octave, OCTAVES - 1 - octave)
        place[np.abs(finite) < _POWERS[0]] = OCTAVES
        counts[column] = np.bincount(place, minlength=CELLS)
    return counts


def matrix(X: Any) -> NDArray[np.float64]:
    """The table as float64, if it has two dimensions and a column."""
    try:
        array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(
            "private bounds and histograms are for numbers; the table holds something else. "
            "Schema.numbers(table) makes NaN of it, which is counted nowhere."
        ) from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise PlanError(
            f"expected a table with one row per record and at least one column; got shape {array.shape}."
        )
    return array
