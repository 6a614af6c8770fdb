"""A δ that is the mean of bounded random variables: estimated, bounded from below, certified from above.

Three numbers that must not be confused. An *estimate* (`AbstractSampled.estimate`) is for searches. A
*lower bound* (`AbstractPair.lower_bound`) says what no analysis of the same pair
can beat. The *certified* limit (`AbstractSampled.certified_delta`) is the only one that a certificate may
quote.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import numpy as np

from antiphon.accounting.independent.gaussian import check_epsilon
from antiphon.accounting.monte_carlo.confidence import (
    Array,
    Certified,
    Estimate,
    Progress,
    certify,
    chunks,
    hedged_upper,
)
from antiphon.errors import PlanError

__all__ = ["AbstractSampled", "SampledRoute", "Weighted", "check_paths"]

_CERTIFY, _BAND = 6, 10  # streams of the certifying paths: no search sees them


class Weighted(NamedTuple):
    """A sample of contributions, each standing for ``weights`` of the probability; the rest is 0."""

    values: Array
    weights: Array

    @property
    def mean(self) -> float:
        """Estimate of the expected contribution."""
        return float(self.values @ self.weights)

    @property
    def standard_error(self) -> float:
        """Of `mean`, as the sample itself shows it."""
        products = self.values * self.weights * len(self.values)
        return float(products.std(ddof=1)) / math.sqrt(len(products))


class AbstractSampled(ABC):
    """δ(ε) <= max over directions of E[X], X in [0, 1], at one noise multiplier."""

    @abstractmethod
    def check(self) -> None:
        """Raise if the parameters are out of range, or too extreme for floating point."""

    @abstractmethod
    def expected(self, epsilon: float, *, seed: int, paths: int) -> tuple[Weighted, ...]:
        """An estimate of the law of X in each direction: remove, then add if it is another."""

    @abstractmethod
    def contributions(self, epsilon: float, rng: np.random.Generator, count: int) -> Array:
        """Independent columns of X, rounded up, one row for each direction.

        What counts is how often each value occurs: columns may be in any order.
        """

    @abstractmethod
    def spread(self, epsilons: Array, rng: np.random.Generator, count: int) -> Array:
        """As `contributions`, for several ε from the same paths: shape (directions, len, count)."""

    @final
    def band(
        self, epsilons: Array, *, seed: int, paths: int, failure: float, progress: Progress
    ) -> list[float]:
        """Upper limits for δ at several ε, fixed in advance.

        Guarantee:
            All of them hold together but for ``failure`` over the paths: the union bound.
        """
        self._check(float(epsilons[-1]), paths, failure)

        def draw(rng: np.random.Generator, count: int) -> Array:
            return self.spread(epsilons, rng, count).reshape(-1, count)

        found = np.hstack(list(chunks(draw, paths, seed, _BAND, progress=progress)))
        ones, share = np.ones(paths), failure / len(found)
        limits = np.array([hedged_upper(row, ones, share) for row in found])
        return [float(limit) for limit in limits.reshape(-1, len(epsilons)).max(axis=0)]

    @final
    def estimate(self, epsilon: float, *, seed: int, paths: int = 2000) -> Estimate:
        """Estimate of δ(ε): cheap, for searches and comparisons only.

        Guarantee:
            None. The larger of the sample means; the standard error is the sample's own, and does
            not see a region that the proposal misses.
        """
        parts = self._expected(epsilon, seed, paths)
        means = [part.mean for part in parts]
        worst = int(np.argmax(means))
        delta = min(1.0, means[worst])
        return Estimate(delta, parts[worst].standard_error, ("remove", "add")[worst], paths)

    @final
    def predicted_limit(
        self, epsilon: float, paths: int, failure: float, *, seed: int, pilots: int = 2000
    ) -> float:
        """What `certified_delta` would return for a sample that happens just as expected."""
        limits = []
        for part in self._expected(epsilon, seed, pilots):
            counts = paths * part.weights[part.values > 0]
            values = np.append(part.values[part.values > 0], 0.0)
            none = max(0.0, paths - counts.sum())
            limits.append(hedged_upper(values, np.append(counts, none), failure / 2))
        return max(limits)

    @final
    def certified_delta(
        self,
        epsilon: float,
        *,
        seed: int,
        paths: int,
        failure: float = 1e-6,
        progress: Progress | None = None,
    ) -> Certified:
        """Upper confidence limit for δ(ε), from plain paths drawn for it alone.

        Args:
            epsilon: ε, positive; it and all parameters are fixed before the paths are drawn.
            seed: Seed of the paths. Do not choose it by its result: another seed is another attempt,
                whose failure probability adds.
            paths: Paths per direction. The limit is at least log(4/failure)/paths.
            failure: Probability that the limit is too low, shared equally by both directions.
            progress: Called with the paths done and all paths.

        Guarantee:
            P(δ(ε) > ``delta``) <= ``failure`` over independent paths: contributions are in [0, 1] and
            rounded up, and the limit is `hedged_upper`, fixed in advance. Directions may share their
            noise: the union bound does not need them independent. Assumed: Philox and NumPy's
            normals are as good as random.
        """
        self._check(epsilon, paths, failure)
        draw = partial(self.contributions, epsilon)
        return certify(
            draw, paths=paths, seed=seed, stream=_CERTIFY, failure=failure, progress=progress
        )

    def _expected(self, epsilon: float, seed: int, paths: int) -> tuple[Weighted, ...]:
        self._check(epsilon, paths)
        return self.expected(epsilon, seed=seed, paths=paths)

    def _check(self, epsilon: float, paths: int, failure: float = 0.5) -> None:
        self.check()
        check_epsilon(epsilon)
        check_paths(paths, failure)


def check_paths(paths: int, failure: float = 0.5) -> None:
    """Raise unless a confidence limit can be computed from so many paths."""
    if paths < 2:
        raise PlanError(f"at least 2 paths are needed; got {paths}.")
    if not 0 < failure < 1:
        raise PlanError(f"failure is a probability in (0, 1); got {failure}.")


@final
@dataclass(frozen=True)
class SampledRoute:
    """An accountant that proves single points (ε, δ) by Monte Carlo.

    Attributes:
        route: Name of the accountant.
        at: From a noise multiplier to what is sampled.
        theorem: Why it holds, in words.
        references: Keys of ``docs/references.bib``.
        cost: Work per path, about in units of 60 ns.
    """

    route: str
    at: Callable[[float], AbstractSampled]
    theorem: str
    references: tuple[str, ...]
    cost: float
