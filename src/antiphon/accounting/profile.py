"""A privacy profile: the whole curve δ(ε) that is proved for an event."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from antiphon.accounting.gaussian import (
    check_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_trade_off,
)

__all__ = ["AbstractProfile", "GaussianProfile", "NumericalProfile"]


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
        return min(1.0, max(0.0, self.curve(epsilon)))

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
