"""One quantile of one column by the exponential mechanism on a public grid [Smith11]."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.participation import Relation
from antiphon.plans import PureRelease
from antiphon.releases.histogram import EDGES, matrix
from antiphon.releases.release_noise import gumbels

__all__ = ["private_quantile"]

_GRID = np.sort(np.append(EDGES, 0.0))


def private_quantile(
    x: Any,
    quantile: float,
    *,
    epsilon: float,
    relation: str = Relation.ADD_REMOVE,
    generator: Generator | None = None,
    grid: Any = None,
    what: str = "a quantile",
) -> tuple[float, PureRelease]:
    """A point of a public grid near a quantile of the column, and what it costs.

    Args:
        x: The column. What is not finite counts nowhere.
        quantile: In [0, 1]; 0.5 is the median.
        epsilon: The privacy to spend; positive.
        relation: How neighbouring columns differ.
        generator: Secret source of the noise; a new secure one unless given.
        grid: Public points to choose from; unless given 0 and the signed powers of two from 2**-40 to
            2**40.
        what: What is released, for the certificate.

    Guarantee:
        (ε, 0)-DP [McSherryTalwar07]: a point t is drawn with probability proportional to
        exp(-ε · distance(t) / 2Δ). Its distance is that of q·n from the interval between the numbers of
        values below t and up to t, which one record added or removed changes by at most Δ = max(q, 1 - q),
        and one replaced by at most Δ = 1. With m points, the chosen distance is above the smallest by more
        than 2Δ log(m/β)/ε with probability at most β.

    Example:
        >>> x = np.arange(1, 1_001)
        >>> value, event = private_quantile(x, 0.5, epsilon=1.0, generator=Generator.seeded(0))
        >>> value, event.epsilon
        (512.0, 1.0)
    """
    if not 0 <= quantile <= 1:
        raise PlanError(f"a quantile lies in [0, 1]; got {quantile}.")
    epsilon = positive("epsilon", epsilon)
    is_replaced = Relation.of(relation) is Relation.REPLACE_ONE
    sensitivity = 1.0 if is_replaced else max(quantile, 1 - quantile)
    points = _GRID if grid is None else _checked_grid(grid)
    values = matrix(np.reshape(x, (-1, 1)))[:, 0]
    utility = -_distance(np.sort(values[np.isfinite(values)]), quantile, points)
    noise = gumbels(utility, epsilon, what, generator)
    chosen = np.argmax(epsilon / (2 * sensitivity) * utility + noise)
    return float(points[chosen]), PureRelease(epsilon, what, relation)


def _distance(
    ordered: NDArray[np.float64], quantile: float, points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How many records away each point is from being the quantile."""
    below = np.searchsorted(ordered, points, side="left")
    up_to = np.searchsorted(ordered, points, side="right")
    target = quantile * len(ordered)
    return np.maximum(0.0, np.maximum(below - target, target - up_to))


def _checked_grid(grid: Any) -> NDArray[np.float64]:
    points = np.asarray(grid, dtype=np.float64)
    if points.ndim != 1 or points.size == 0 or not np.isfinite(points).all():
        raise PlanError(
            f"the grid is a list of finite numbers, at least one; got shape {points.shape}. It must be "
            "public: chosen without the data."
        )
    return points
