"""Private bounds of every column, read off one noisy histogram.

Choosing bounds from the noisy counts is post-processing and costs nothing more. With noise of standard
deviation s in each cell, a run of neighbouring cells scores the sum of (count - 1.2 s): empty cells lose.
A column takes the best of one run of positive octaves, one of negative octaves, or both from the same
smallest octave on, with zero. Octaves below that one lie between the bounds without being counted, so the
many tiny cells between -1 and 1 add no noise to a column that has both signs.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.participation import Relation
from antiphon.plans import GaussianRelease
from antiphon.releases.histogram import (
    CELLS,
    EDGES,
    OCTAVES,
    histogram_sensitivity,
    private_histogram,
)

__all__ = ["ColumnBounds", "false_inclusion", "private_bounds"]

# In standard deviations of the noise, chosen on synthetic columns of 569 records (docs/tables.md): smaller
# ones take in more empty cells, larger ones lose more of the columns with few records per octave.
_THRESHOLD = 1.2  # what a cell must hold to be worth its place
_SIGN = 0.5  # what each sign must score more to stand beside the other or beside zero

_Array = NDArray[np.float64]
_Mask = NDArray[np.bool_]


class ColumnBounds(NamedTuple):
    """Bounds of the columns, and what they cost.

    Attributes:
        low: Lower bounds, each below its upper one.
        high: Upper bounds.
        events: What was released, for a plan's ``extra``.
    """

    low: _Array
    high: _Array
    events: tuple[GaussianRelease, ...]


def private_bounds(
    X: Any,
    *,
    mu: float,
    relation: str = Relation.ADD_REMOVE,
    generator: Generator | None = None,
    coverage: float = 0.98,
) -> ColumnBounds:
    """Bounds that hold most of each column, for one Gaussian release of all columns together.

    Args:
        X: One row per record, one column per number; their number is public. What is not finite counts
            nowhere.
        mu: The privacy to spend (`mu_of_share` of a budget). The noise in each cell has standard deviation
            sqrt(d)/μ, under replace-one sqrt(2d)/μ: an octave with fewer records than that is hardly seen.
        relation: How neighbouring tables differ.
        generator: Secret source of the noise; a new secure one unless given.
        coverage: Share of the noisy counts to keep; the rest is cut off, half of it at either end.

    Returns:
        Bounds among the signed powers of two. Every column gets some, whatever the data: where nothing
        stands out of the noise they are those of the largest noise.

    Guarantee:
        Exactly μ-GDP under ``relation``, as `private_histogram`; all else depends on the data only through
        the noisy counts, and no data make it fail. Where the records of a column stand far above the
        noise, empty cells beyond its end away from zero are taken in with probability at most
        `false_inclusion`, 14 %: mostly one of them, a factor of two. Towards zero as many, and in one
        column out of 20 zero, or in one out of 30 small numbers of the other sign (measured).

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(2_000, 1))
        >>> low, high, _ = private_bounds(X, mu=0.5, generator=Generator.seeded(1))
        >>> low.tolist(), high.tolist()
        ([-4.0], [4.0])
    """
    if not 0 < coverage <= 1:
        raise PlanError(f"coverage is a share in (0, 1]; got {coverage}.")
    noisy, event = private_histogram(
        X, mu=mu, relation=relation, generator=generator, what="bounds of the columns"
    )
    scale = histogram_sensitivity(len(noisy), relation) / mu
    first, last = _trimmed(noisy, _best_runs(noisy, scale), coverage)
    return ColumnBounds(EDGES[first], EDGES[last + 1], (event,))


def false_inclusion(threshold: float = _THRESHOLD) -> float:
    """Probability that a run of cells is prolonged by empty ones at a given end.

    Args:
        threshold: What a cell must hold, in standard deviations of its noise.

    Guarantee:
        It is that of a random walk with steps N(-threshold, 1) ever rising above 0, by Spitzer's identity
        1 - exp(-Σ_k P(S_k > 0)/k) [Spitzer56], for endlessly many cells; there are fewer.

    Example:
        >>> round(false_inclusion(), 3)
        0.137
    """
    k = np.arange(1, 10_000)
    return float(-np.expm1(-np.sum(ndtr(-threshold * np.sqrt(k)) / k)))


def _best_runs(noisy: _Array, scale: float) -> _Mask:
    """The cells of each column's best runs."""
    excess = noisy - _THRESHOLD * scale
    zero = excess[:, OCTAVES]
    negative, negative_end = _runs(excess[:, OCTAVES - 1 :: -1])
    positive, positive_end = _runs(excess[:, OCTAVES + 1 :])
    beside = [np.maximum(arm - _SIGN * scale, 0) for arm in (negative, positive)]
    both = beside[0] + beside[1] + np.maximum(zero, 0)[:, None]
    both[both == 0] = -np.inf  # it would hold no cell
    options = np.stack([arm.max(1) for arm in (negative, positive, both)] + [zero])
    kind, rows = options.argmax(0), np.arange(len(noisy))
    chosen = np.zeros(noisy.shape, dtype=bool)
    for sign, arm, end, side in (
        (0, negative, negative_end, chosen[:, OCTAVES - 1 :: -1]),
        (1, positive, positive_end, chosen[:, OCTAVES + 1 :]),
    ):
        start = np.where(kind == sign, arm.argmax(1), both.argmax(1))
        used = (kind == sign) | ((kind == 2) & (beside[sign][rows, start] > 0))
        octave = np.arange(OCTAVES)
        is_within = (octave >= start[:, None]) & (octave <= end[rows, start][:, None])
        side[:] = used[:, None] & is_within
    chosen[:, OCTAVES] = (kind == 3) | ((kind == 2) & (zero > 0))
    return chosen


def _runs(excess: _Array) -> tuple[_Array, NDArray[np.int64]]:
    """The best score of a run that starts at each octave, and where that run ends."""
    score = np.empty(excess.shape)
    end = np.empty(excess.shape, dtype=np.int64)
    best, last = np.zeros(len(excess)), np.zeros(len(excess), dtype=np.int64)
    for octave in reversed(range(excess.shape[1])):
        last = np.where(best > 0, last, octave)
        best = excess[:, octave] + np.maximum(best, 0)
        score[:, octave], end[:, octave] = best, last
    return score, end


def _trimmed(noisy: _Array, chosen: _Mask, coverage: float) -> tuple[Any, Any]:
    """The first and last cell of each column once half of what may be lost is cut off at either end."""
    mass = np.where(chosen, noisy, 0.0)
    total = mass.sum(1, keepdims=True)
    # A total of 0 or less is noise alone: nothing is cut.
    spare = np.where(total > 0, (1 - coverage) / 2 * total, -np.inf)
    up, down = mass.cumsum(1), mass[:, ::-1].cumsum(1)
    first = (chosen & (up > spare)).argmax(1)
    last = CELLS - 1 - (chosen[:, ::-1] & (down > spare)).argmax(1)
    return first, last
