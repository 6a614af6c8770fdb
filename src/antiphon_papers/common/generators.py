"""Synthetic data whose truth is known: as many records as wanted, from a seed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.tables.data import Column, Dataset, Schema

__all__ = ["HatSum", "additive_score", "separable_additive", "synthetic_logistic"]

Array = NDArray[np.float64]

_STEEPNESS = 4.0
_HEIGHTS = 40  # a stream of its own: heights and records of equal seeds share nothing
_NOISE_VARIANCE = 0.1  # of the logit
_SHARPEST = 1e3  # times as many records as wanted are drawn at most for a gap


@final
@dataclass(frozen=True, eq=False)
class HatSum:
    """h(x) = Σ_j Σ_l θ_jl b_l(x_j): a piecewise linear function of each number, added up.

    The b_l are hats on evenly spaced knots of [-1, 1], both ends included, each as wide as the knots are
    apart on either side: Σ_l θ_jl b_l interpolates θ_j.

    Attributes:
        theta: Heights at the knots, shape (numbers, knots).

    Example:
        >>> truth = HatSum(np.array([[0.0, 1.0, 0.0]]))
        >>> truth(np.array([[-1.0], [0.0], [0.25]])).tolist()
        [0.0, 1.0, 0.75]
    """

    theta: Array

    @classmethod
    def draw(cls, seed: int, d: int = 10, knots: int = 40) -> "HatSum":
        """Independent standard normal heights."""
        size = (whole("d", d), whole("knots", knots))
        return cls(np.random.default_rng((_HEIGHTS, seed)).standard_normal(size))

    def features(self, X: Array) -> Array:
        """All hats of all numbers, shape (records, numbers · knots): h is linear in them."""
        knots = np.linspace(-1, 1, self.theta.shape[1])
        apart = knots[1] - knots[0]
        hats = np.maximum(0.0, 1 - np.abs(X[:, :, None] - knots) / apart)
        return hats.reshape(len(X), -1)

    def __call__(self, X: Array) -> Array:
        """The value of h for each record."""
        knots = np.linspace(-1, 1, self.theta.shape[1])
        columns = zip(X.T, self.theta, strict=True)
        return np.sum([np.interp(x, knots, heights) for x, heights in columns], axis=0)


def synthetic_logistic(
    n: int = 20_000,
    *,
    seed: int,
    d: int = 10,
    knots: int = 40,
    test: int = 8_000,
    theta_seed: int = 0,
) -> Dataset:
    """The synthetic data of [KANGradientDescent26]: the logit is four times a random `HatSum`.

    x is uniform in [-1, 1]^d; y = +1 with probability sigmoid(4 h(x) + ξ), ξ ~ N(0, 0.1), else -1. Both
    parts share h.

    Args:
        n: Records to learn from.
        seed: Of the records.
        d: Numbers per record.
        knots: Of each function.
        test: Records to test on.
        theta_seed: Of h alone, ``HatSum.draw(theta_seed, d, knots)``.

    Example:
        >>> data = synthetic_logistic(100, seed=1, test=50)
        >>> data.X_train.shape, data.X_test.shape, data.classes
        ((100, 10), (50, 10), (-1, 1))
    """
    truth = HatSum.draw(theta_seed, d, knots)
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (whole("n", n) + whole("test", test), d))
    logits = _STEEPNESS * truth(X) + np.sqrt(_NOISE_VARIANCE) * rng.standard_normal(len(X))
    y = np.where(rng.uniform(size=len(X)) < 1 / (1 + np.exp(-logits)), 1, -1)
    return _split("synthetic-logistic", X, y, n)


def additive_score(X: Array) -> Array:
    """Σ_j sin(ω_j x_j)/sqrt(d), ω_j from π/2 to 3π/2: odd in x, so both signs are equally likely."""
    frequencies = np.pi * np.linspace(0.5, 1.5, X.shape[1])
    return np.sin(X * frequencies).sum(axis=1) / np.sqrt(X.shape[1])


def separable_additive(
    n: int,
    *,
    seed: int,
    d: int = 5,
    gap: float = 0.1,
    test: int = 8_000,
    score: Callable[[Array], Array] = additive_score,
) -> Dataset:
    """Data that a sum of functions of single numbers separates, with a margin.

    x is uniform in the unit ball, y the sign of ``score``; records with a score below ``gap`` in absolute
    value are drawn again.

    Args:
        n: Records to learn from.
        seed: Of the records.
        d: Numbers per record.
        gap: Least absolute score.
        test: Records to test on.
        score: The separating function of an array of records.

    Example:
        >>> data = separable_additive(100, seed=1, gap=0.2)
        >>> bool((data.y_train * additive_score(data.X_train)).min() >= 0.2)
        True
    """
    positive("gap", gap)
    rng, wanted = np.random.default_rng(seed), whole("n", n) + whole("test", test)
    X, drawn = np.empty((0, whole("d", d))), 0
    while len(X) < wanted:
        new = _in_ball(rng, wanted, d)
        X, drawn = np.concatenate([X, new[np.abs(score(new)) >= gap]]), drawn + wanted
        if drawn > _SHARPEST * (len(X) + 1):
            raise PlanError(f"hardly any record has a score of {gap} or more: take a smaller gap.")
    X = X[:wanted]
    return _split("separable-additive", X, np.where(score(X) > 0, 1, -1), n)


def _in_ball(rng: np.random.Generator, count: int, d: int) -> Array:
    """Uniform: a uniform direction, and a radius whose d-th power is uniform."""
    direction = rng.standard_normal((count, d))
    radius = rng.uniform(size=(count, 1)) ** (1 / d)
    return radius * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def _split(name: str, X: Array, y: NDArray[np.int64], n: int) -> Dataset:
    schema = Schema(tuple(Column(f"x{j}", bounds=(-1, 1)) for j in range(X.shape[1])))
    return Dataset(name, X[:n], y[:n], X[n:], y[n:], schema, (-1, 1))
