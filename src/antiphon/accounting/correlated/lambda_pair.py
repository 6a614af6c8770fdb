"""λ-CGD noise under Poisson sampling: its dominating pair as paths of a hidden Markov chain."""

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from antiphon.accounting.correlated.dominating_pair import (
    SAFE,
    AbstractPair,
    AbstractProposal,
    Rounding,
)
from antiphon.accounting.correlated.lambda_chain import (
    LambdaChain,
    check_range,
    draw_states,
    filtered,
)
from antiphon.accounting.monte_carlo.confidence import Array
from antiphon.plans import Event

__all__ = ["LambdaPair"]

_CASCADE = (2, 8, 32)  # resolutions that a path passes until it is known to contribute nothing
_RESOLUTION = {"up": 16, "down": 64}  # of estimates, and of lower bounds
_BLOCK = 128  # paths whose noise is in memory at once
_REFINED = 64  # paths that a finer filter takes at once: it fills the lanes of the filter


@final
@dataclass(frozen=True)
class LambdaPair(AbstractPair):
    """Q = N(0, κ²I) and P, the law of s_t + κ z_t with s_t = λ s_{t−1} + y_t, y_t ~ Bernoulli(r).

    Attributes:
        lam: λ of the encoder C[t, u] = λ^(t−u), in [0, 1).
        rate: Sampling rate r, in (0, 1].
        steps: Number of noisy releases T.
        noise_multiplier: κ, positive.
        extra: Releases beside training.

    Guarantee:
        The pair dominates DP-SGD with this noise under Poisson sampling, add-remove and zero-out
        [KANCorrelated26, Thm. F.8]. Contributions use a bound on L on the safe side: see
        `antiphon.accounting.correlated.lambda_chain`.
    """

    lam: float
    rate: float
    steps: int
    noise_multiplier: float
    extra: tuple[Event, ...] = ()

    def check(self) -> None:
        """Parameters must be in range, and the noise large enough for floating point."""
        check_range(self._chain(), self.noise_multiplier)

    def log_ratio(self, x: Array, rounding: Rounding) -> Array:
        """Of paths of shape (steps, count)."""
        return filtered(self._chain(rounding), self.noise_multiplier, x)

    def proposal(self, side: int, strength: float, drift: float) -> "_Tilt":
        """Participations at a higher rate and amplitude, and a shift of the noise in every step.

        Towards large losses of Q there is only the noise to move.
        """
        rate = min(1.0, self.rate * (1 + strength))
        shift = strength * self.noise_multiplier / np.sqrt(self.steps)
        inflated = replace(self, rate=rate)
        if side:
            return _Tilt(inflated, 0.0, -shift)
        return _Tilt(inflated, 1 + strength / 2, drift * shift)

    def excess(self, thresholds: Array, rng: np.random.Generator) -> Array:
        """By a cascade of filters; the positive ones first."""
        # Paths that need a finer filter wait until there are enough for it.
        waiting: tuple[_Waiting, _Waiting] = (_Waiting(), _Waiting())
        count = len(thresholds)
        for start in range(0, count, _BLOCK):
            limits = thresholds[start : start + _BLOCK]
            noise = self.noise_multiplier * rng.standard_normal((self.steps, len(limits)))
            means = draw_states(self._chain(), rng, len(limits))
            for side, x in enumerate((np.add(means, noise, out=means), noise)):
                above = self._above(limits, side, _CASCADE[0], x) > 0
                waiting[side].add(x[:, above], limits[above])
                if waiting[side].count >= _REFINED or start + _BLOCK >= count:
                    self._refine(side, waiting[side])
        result = np.zeros((2, count))
        for row, kept in zip(result, waiting, strict=True):
            positive = np.concatenate(kept.found)
            row[: len(positive)] = positive
        return result

    def _refine(self, side: int, waiting: "_Waiting") -> None:
        """Empty the queue: keep what is positive.

        A path leaves the cascade when a bound on L on the safe side shows that it contributes 0.
        """
        x, limits = np.hstack(waiting.paths), np.concatenate(waiting.limits)
        for resolution in _CASCADE[1:]:
            above = self._above(limits, side, resolution, x)
            x, limits = x[:, above > 0], limits[above > 0]
        waiting.found.append(above[above > 0])
        waiting.paths.clear()
        waiting.limits.clear()

    def _above(self, thresholds: Array, side: int, resolution: int, x: Array) -> Array:
        """Upper bound on the privacy loss, ±log L, minus the thresholds."""
        chain = LambdaChain(self.lam, self.rate, self.steps, SAFE[side], resolution)
        bound = filtered(chain, self.noise_multiplier, x)
        return (-bound if side else bound) - thresholds

    def _chain(self, rounding: Rounding = "up") -> LambdaChain:
        return LambdaChain(self.lam, self.rate, self.steps, rounding, _RESOLUTION[rounding])


@final
@dataclass
class _Waiting:
    """Paths that may contribute, with their thresholds, and the excesses found so far."""

    paths: list[Array] = field(default_factory=list)
    limits: list[Array] = field(default_factory=list)
    found: list[Array] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Paths in the queue."""
        return sum(map(len, self.limits))

    def add(self, paths: Array, limits: Array) -> None:
        """Put paths into the queue."""
        self.paths.append(paths)
        self.limits.append(limits)


@final
@dataclass(frozen=True)
class _Tilt(AbstractProposal):
    """x_t = shift + amplitude × s_t + κ z_t, with the participations of ``pair``."""

    pair: LambdaPair
    amplitude: float
    shift: float

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Paths of shape (steps, count)."""
        noise = rng.standard_normal((self.pair.steps, count))
        x = self.shift + self.pair.noise_multiplier * noise
        return x + self.amplitude * draw_states(self.pair._chain(), rng, count)

    def log_density(self, x: Array) -> Array:
        """Upper bound on the log density with respect to Q."""
        kappa = self.pair.noise_multiplier
        log = self.shift * (x - self.shift / 2).sum(axis=0) / kappa**2
        if self.amplitude:
            scaled = (x - self.shift) / self.amplitude
            log += filtered(self.pair._chain(), kappa / self.amplitude, scaled)
        return log
