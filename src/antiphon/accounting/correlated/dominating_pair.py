"""A dominating pair (P, Q) whose likelihood ratio L = dP/dQ can be bounded at every path.

δ(ε) is the larger of H(P‖Q) = E_P[(1 − e^ε/L)_+] and H(Q‖P) = E_Q[(1 − e^ε L)_+]. Paths of P or Q seldom
contribute at a small δ; for estimates and lower bounds they come from a proposal under which about half do,
and are weighted back.

Releases beside training have pairs of their own, and a product of dominating pairs dominates the
composition, adaptive or not: losses add. The loss of a Gaussian release is N(μ²/2, μ²), that of a pure one
is ε or, with probability 1/(1 + e^ε), −ε, both in either direction [DongRothSu22].
"""

import math
from abc import ABC, abstractmethod
from typing import Literal, final

import numpy as np

from antiphon.accounting.monte_carlo.confidence import Array, chunks, generator, hedged_lower
from antiphon.accounting.monte_carlo.sampled import AbstractSampled, Weighted
from antiphon.plans import Event, GaussianRelease

__all__ = ["SAFE", "AbstractPair", "AbstractProposal", "Rounding"]

Rounding = Literal["up", "down"]

SAFE: tuple[Rounding, Rounding] = ("up", "down")  # bounds on L that raise H(P‖Q) and H(Q‖P)
_PILOT, _ESTIMATE, _LOWER = 0, 2, 4  # streams of a seed, one more for the second direction
_PILOTS = 128


class AbstractProposal(ABC):
    """Another law of paths, with its density."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Paths, one in each column."""

    @abstractmethod
    def log_density(self, x: Array) -> Array:
        """Log density with respect to Q; an upper bound is safe for lower bounds on δ."""


class AbstractPair(AbstractSampled):
    """P against Q at one noise multiplier. Side 0 is H(P‖Q) ("remove"), side 1 is H(Q‖P) ("add").

    Attributes:
        extra: Releases beside the pair.
    """

    extra: tuple[Event, ...]

    @abstractmethod
    def excess(self, thresholds: Array, rng: np.random.Generator) -> Array:
        """Bounds from above on log L for paths of P and on −log L for paths of Q, minus thresholds.

        Shape (2, len(thresholds)). What is not above 0 may be anything not above 0, and rows may be
        in any order.
        """

    @abstractmethod
    def log_ratio(self, x: Array, rounding: Rounding) -> Array:
        """Bound on log L at each column of ``x``, from above ("up") or below ("down")."""

    @abstractmethod
    def proposal(self, side: int, strength: float, drift: float) -> AbstractProposal:
        """Towards larger losses as ``strength`` grows; at 0 the law of that side itself.

        Losses are large because of the participations, of noise that looks like them, or of both:
        ``drift`` is the share of the latter.
        """

    @final
    def contributions(self, epsilon: float, rng: np.random.Generator, count: int) -> Array:
        """(1 − e^ε/L)_+ for paths of P and (1 − e^ε L)_+ for paths of Q, rounded up."""
        excess = self.excess(epsilon - self._beside(rng, count), rng)
        return -np.expm1(-np.maximum(excess, 0.0))

    @final
    def spread(self, epsilons: Array, rng: np.random.Generator, count: int) -> Array:
        """The same for several ε: a loss above the smallest is above the others by less."""
        least = float(epsilons.min())
        excess = self.excess(least - self._beside(rng, count), rng)
        return -np.expm1(-np.maximum(excess[:, None] - (epsilons - least)[:, None], 0.0))

    @final
    def expected(self, epsilon: float, *, seed: int, paths: int) -> tuple[Weighted, ...]:
        """By importance sampling, L rounded up."""
        return tuple(
            self._weighted(epsilon, side, "up", seed, _ESTIMATE + side, paths) for side in (0, 1)
        )

    @final
    def lower_bound(
        self, epsilon: float, *, seed: int, paths: int = 2000, failure: float = 1e-3
    ) -> float:
        """Lower confidence limit for δ(ε): no analysis of this pair can do better.

        Guarantee:
            P(δ < limit) <= ``failure`` over the paths drawn: contributions bound those of the pair from
            below, importance weights are unbiased whatever the proposal, and `hedged_lower` holds for
            unbounded ones; half of ``failure`` for each direction.
        """
        self._check(epsilon, paths, failure)
        limits = []
        for side, unsafe in enumerate(reversed(SAFE)):
            part = self._weighted(epsilon, side, unsafe, seed, _LOWER + side, paths)
            limits.append(hedged_lower(part.values * part.weights * paths, failure / 2))
        return min(1.0, max(limits))

    def _weighted(
        self, epsilon: float, side: int, rounding: Rounding, seed: int, stream: int, paths: int
    ) -> Weighted:
        proposals = [self._pilot(epsilon, side, seed, drift) for drift in (1.5, 0.0)]

        def draw(rng: np.random.Generator, count: int) -> Array:
            first = int(rng.binomial(count, 0.5))
            sizes = (first, count - first)
            x = np.hstack([p.draw(rng, n) for p, n in zip(proposals, sizes, strict=True)])
            log = self.log_ratio(x, rounding)
            proposed = np.logaddexp(*(p.log_density(x) for p in proposals)) - math.log(2)
            above = (-log if side else log) + self._beside(rng, count) - epsilon
            loss = np.maximum(above, 0.0)
            with np.errstate(invalid="ignore"):  # where both are ∞, paths that decide δ = 1
                weight = np.nan_to_num((0.0 if side else log) - proposed, nan=0.0)
            return np.stack([-np.expm1(-loss), np.exp(np.where(loss > 0, weight, -math.inf))])

        parts = list(chunks(draw, paths, seed, stream, size=256))
        values, weights = np.hstack(parts)
        return Weighted(values, weights / paths)

    def _beside(self, rng: np.random.Generator, count: int) -> Array:
        """Losses of the releases beside the pair."""
        total = np.zeros(count)
        for event in self.extra:
            if isinstance(event, GaussianRelease):
                total += event.mu * (event.mu / 2 + rng.standard_normal(count))
            else:
                lie = rng.random(count) < 1 / (1 + math.exp(event.epsilon))
                total += np.where(lie, -event.epsilon, event.epsilon)
        return total

    def _pilot(self, epsilon: float, side: int, seed: int, drift: float) -> AbstractProposal:
        """A proposal under which about half of the paths have a loss above ε."""
        low, high = 0.0, 16.0
        for attempt in range(10):
            strength = (low + high) / 2
            found = self.proposal(side, strength, drift)
            x = found.draw(generator(seed, _PILOT + side, attempt), _PILOTS)
            log = self.log_ratio(x, SAFE[side])
            hits = float(np.mean((-log if side else log) > epsilon))
            if 0.4 <= hits <= 0.6:
                break
            low, high = (strength, high) if hits < 0.4 else (low, strength)
        return found
