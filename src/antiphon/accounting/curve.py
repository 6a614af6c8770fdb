"""A privacy profile: the whole curve δ(ε) that is proved for an event."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from antiphon.accounting.independent.gaussian import (
    check_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_trade_off,
)

__all__ = ["AbstractProfile", "ConvexProfile", "GaussianProfile", "NumericalProfile"]

_LARGE = 700.0  # e to this is near the end of float64; no line of that slope bounds anything


class AbstractProfile(ABC):
    """δ(ε), valid for every ε >= 0 at once and for both directions of the relation."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """The δ proved for ``epsilon``."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The smallest ε for which ``delta`` is proved; infinite if none is."""

    @abstractmethod
    def true_positive(self, false_positive: float) -> float:
        """Largest share of members that any attack finds at this rate of false alarms."""

    @final
    def advantage(self) -> float:
        """Largest true-positive minus false-positive rate of any attack: δ(0)."""
        return self.delta(0.0)

    @final
    def accuracy(self) -> float:
        """Best accuracy of any attack that guesses whether a record was in the data, at even odds."""
        return 0.5 * (1 + self.advantage())


@final
@dataclass(frozen=True)
class GaussianProfile(AbstractProfile):
    """The profile of μ-GDP, exactly."""

    mu: float

    def delta(self, epsilon: float) -> float:
        """See `gaussian_delta`."""
        return float(gaussian_delta(self.mu, epsilon))

    def epsilon(self, delta: float) -> float:
        """See `gaussian_epsilon`."""
        return gaussian_epsilon(self.mu, delta)

    def true_positive(self, false_positive: float) -> float:
        """See `gaussian_trade_off`."""
        return float(gaussian_trade_off(self.mu, false_positive))


@final
@dataclass(frozen=True)
class NumericalProfile(AbstractProfile):
    """A profile given by a function that is non-increasing in ε.

    Attributes:
        curve: ε ↦ δ, each value proved.
        largest: An ε beyond which the search for a δ gives up and answers infinity.
    """

    curve: Callable[[float], float]
    largest: float = 1e4

    def delta(self, epsilon: float) -> float:
        """The δ proved for ``epsilon``, at most 1."""
        value = self.curve(epsilon)
        return 1.0 if math.isnan(value) else min(1.0, max(0.0, value))

    def epsilon(self, delta: float) -> float:
        """By bisection; the answer is a point at which ``delta`` is proved."""
        check_delta(delta)
        if self.delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
            if high > self.largest:
                return math.inf
        root = float(brentq(lambda e: self.delta(e) - delta, 0.0, high, xtol=1e-10, rtol=1e-10))
        step = 1e-9 * max(1.0, root)
        while self.delta(root) > delta:
            root, step = root + step, 2 * step
        return root

    def true_positive(self, false_positive: float) -> float:
        """The least of the lines that some (ε, δ(ε)) allow [DongRothSu22, Prop. 2.12].

        Each ε gives a valid bound; the search for the best needs no more than that.
        """

        def line(epsilon: float) -> float:
            delta = self.delta(epsilon)
            steep = math.exp(epsilon) * false_positive + delta
            flat = 1 - math.exp(-epsilon) * (1 - delta - false_positive)
            return min(steep, flat)

        grid = [0.0, *np.geomspace(0.01, 30.0, 25)]
        values = [line(float(epsilon)) for epsilon in grid]
        best = int(np.argmin(values))
        ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        refined = minimize_scalar(line, bounds=ends, method="bounded", options={"maxiter": 20})
        return max(min(1.0, values[best], float(refined.fun)), false_positive)


@final
@dataclass(frozen=True)
class ConvexProfile(AbstractProfile):
    """What follows from some proved points: the lower convex hull, in e^ε.

    The true δ is convex and non-increasing in e^ε, so it lies below every chord between proved points,
    and beyond the last one it is no larger.

    Attributes:
        points: The corners (ε, δ), by increasing ε; from `through`.
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def through(cls, proved: Iterable[tuple[float, float]]) -> "ConvexProfile":
        """The hull of the proved points and of (0, 1)."""
        best: dict[float, float] = {0.0: 1.0}
        for epsilon, delta in proved:
            best[float(epsilon)] = min(best.get(epsilon, 1.0), float(delta))
        corners: list[tuple[float, float]] = []
        for epsilon, delta in sorted(best.items()):
            if corners and delta >= corners[-1][1]:
                continue
            while len(corners) > 1 and _is_above(corners[-2], corners[-1], (epsilon, delta)):
                corners.pop()
            corners.append((epsilon, delta))
        return cls(tuple(corners))

    def delta(self, epsilon: float) -> float:
        """On the chord, rounded up."""
        before = self.points[0]
        for point in self.points:
            if point[0] > epsilon:
                share = _share(epsilon - before[0], point[0] - before[0])
                return min(before[1], before[1] + share * (point[1] - before[1]) + 1e-15)
            before = point
        return before[1]

    def epsilon(self, delta: float) -> float:
        """Where the hull falls to ``delta``; infinite if it does not."""
        check_delta(delta)
        before = self.points[0]
        for point in self.points:
            if point[1] <= delta:
                if point[1] == before[1]:
                    return point[0]
                share = (before[1] - delta) / (before[1] - point[1])
                width = point[0] - before[0]
                rise = (
                    math.log1p(share * math.expm1(width))
                    if width < _LARGE
                    else width + math.log(share)
                )
                found = before[0] + rise
                return min(point[0], found * (1 + 1e-12))
            before = point
        return math.inf

    def true_positive(self, false_positive: float) -> float:
        """The least of the lines that the corners allow [DongRothSu22, Prop. 2.12]."""
        lines = [1.0]
        for epsilon, delta in self.points:
            lines.append(math.exp(min(epsilon, _LARGE)) * false_positive + delta)
            lines.append(1 - math.exp(-epsilon) * (1 - delta - false_positive))
        return max(min(lines), false_positive)


def _is_above(
    first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]
) -> bool:
    """Whether the middle point lies on or above the chord, in e^ε."""
    share = _share(middle[0] - first[0], last[0] - first[0])
    return middle[1] >= first[1] + share * (last[1] - first[1])


def _share(part: float, whole: float) -> float:
    """(e^part - 1) / (e^whole - 1), also where these leave the range of numbers."""
    if whole < _LARGE:
        return math.expm1(part) / math.expm1(whole)
    return math.exp(part - whole) - math.exp(-whole)
