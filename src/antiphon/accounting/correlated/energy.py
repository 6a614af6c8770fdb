"""Accounting conditioned on participations: δ(ε) <= E_y[Gaussian profile at a·sqrt(yᵀ|CᵀC|y)/κ].

y is the 0/1 vector of the steps in which one record takes part. Run the two neighbouring data sets on
the same batches: given y they differ by one Gaussian release of that sensitivity, and the hockey-stick
divergence is jointly convex, so the profile averaged over y bounds the truth. No secrecy of the batches
is used, hence no amplification, and no more is needed than that y does not depend on the data:

=============  ==================================  ==========================================
relation       sampling                            amplitude a
=============  ==================================  ==========================================
zero-out       any that ignores the data           1
add-remove     Poisson                             1
add-remove     batches of a fixed size, batch < n  2 (the record swaps its place with another)
replace-one    any that ignores the data           2
=============  ==================================  ==========================================

The *energy* yᵀ|CᵀC|y has a law that does not depend on κ, so it is computed once and serves all κ and ε.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from antiphon.accounting.independent.gaussian import check_delta, check_epsilon, gaussian_delta
from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.numerics import Series

__all__ = ["EnergyLaw", "Side", "binomial_delta", "binomial_law"]

Side = Literal["exact", "upper", "lower"]

_INCREASE = np.concatenate([[1.0], np.geomspace(1.05, 1e4, 40)])


@final
@dataclass(frozen=True, eq=False)
class EnergyLaw:
    """The law of a record's energy yᵀ|CᵀC|y, or a law that bounds it.

    Attributes:
        values: Energies, non-negative.
        probabilities: Their probabilities; those who never take part, whose δ is 0, may be left out.
        side: What `delta` is: exact, an upper bound, or a lower bound, of E_y[Gaussian profile].
        overflow: Mass that left the grid. It counts as an energy above all in an upper bound, as none in
            a lower bound.
        bounds: The smallest and the largest energy of a record that takes part.
    """

    values: Series
    probabilities: Series
    side: Side = "exact"
    overflow: float = 0.0
    bounds: tuple[float, float] = (0.0, math.inf)

    def __post_init__(self) -> None:
        for name in ("values", "probabilities"):  # laws are shared by a cache
            frozen = np.array(getattr(self, name))
            frozen.setflags(write=False)
            object.__setattr__(self, name, frozen)

    @property
    def mean(self) -> float:
        """Expected energy: E‖Cy‖² where CᵀC >= 0."""
        return float(self.values @ self.probabilities)

    def raised(self, amount: float) -> "EnergyLaw":
        """The law with ``amount`` added to every energy, also to that of records that never take part."""
        never = max(0.0, 1 - float(self.probabilities.sum())) + 1e-12
        return EnergyLaw(
            np.append(self.values + amount, amount),
            np.append(self.probabilities, never),
            self.side,
            self.overflow,
            (amount, self.bounds[1] + amount),
        )

    def delta(self, noise_multiplier: float, epsilon: float, amplitude: float = 1.0) -> float:
        """Bound on δ at ε, for every record with this law.

        Args:
            noise_multiplier: κ, the standard deviation of z per unit of clip norm; positive.
            epsilon: ε > 0.
            amplitude: a, the change of a record's gradient in units of the clip norm: see the module.

        Guarantee:
            ``side`` says on which side of E_y[profile] it lies. An upper bound is one of the true δ.
        """
        check_epsilon(epsilon)
        positive("the noise multiplier", noise_multiplier)
        positive("the amplitude", amplitude)
        scale = amplitude / noise_multiplier
        squares = self.values * scale**2
        profile = gaussian_delta(np.sqrt(squares), epsilon)
        if self.side != "upper":
            return min(1.0, float(self.probabilities @ profile))
        least, most = self.bounds
        if scale**2 * least >= _inflection(epsilon):
            profile = np.zeros_like(profile)  # concave at all energies there are: lines suffice
        mass = float(self.probabilities.sum())
        lines = _tangents(squares, epsilon, float(self.probabilities @ squares) / mass)
        worst = min(1.0, mass * float(gaussian_delta(scale * math.sqrt(most), epsilon)))
        return min(worst, float(np.min(np.maximum(profile, lines) @ self.probabilities)))

    def epsilon(self, noise_multiplier: float, delta: float, amplitude: float = 1.0) -> float:
        """The smallest ε > 0, to 1e-9, for which `delta` is at most ``delta``; infinite above 1e6."""
        check_delta(delta)
        return _smallest(lambda e: self.delta(noise_multiplier, e, amplitude) <= delta, 1e-6, 1e6)

    def noise_multiplier(self, epsilon: float, delta: float, amplitude: float = 1.0) -> float:
        """The smallest κ, to 1e-9, for which `delta` at ``epsilon`` is at most ``delta``."""
        check_delta(delta)
        largest = math.sqrt(float(self.values.max())) + 1.0
        return amplitude * _smallest(
            lambda k: self.delta(k, epsilon) <= delta, 1e-6, 1e9 * largest / min(1.0, epsilon)
        )


def binomial_law(rate: float, steps: int) -> EnergyLaw:
    """Energies under independent noise: the number of participations, exact.

    Args:
        rate: Probability in (0, 1] with which a record takes part in a step, independently of others.
        steps: Number of steps T.
    """
    _check_probability("the sampling rate", rate)
    whole("steps", steps)
    counts = np.arange(steps + 1)
    return EnergyLaw(counts.astype(np.float64), binom.pmf(counts, steps, rate))


def binomial_delta(
    rate: float, steps: int, noise_multiplier: float, epsilon: float, amplitude: float = 1.0
) -> float:
    """δ at ε for independent noise, conditioned on participations: a sum over a binomial law.

    Guarantee:
        Exact E_y[profile]; an upper bound on δ (see the module for the amplitude).

    Example:
        >>> f"{binomial_delta(0.01, 1000, 13.2082593, 1.0):.4g}"
        '1e-05'
    """
    return binomial_law(rate, steps).delta(noise_multiplier, epsilon, amplitude)


def _inflection(epsilon: float) -> float:
    """Where the Gaussian profile as a function of x = μ² turns from convex to concave.

    Its derivative φ(ε/μ - μ/2)/(2μ) rises up to x = 2(sqrt(1 + ε²) - 1) and falls from there on.
    """
    return 2 * epsilon**2 / (1 + math.sqrt(1 + epsilon**2))


def _tangents(squares: Series, epsilon: float, mean: float) -> NDArray[np.float64]:
    """Tangents of the profile in x = μ² at points beyond its inflection, one of them at the mean.

    Each lies above the profile where that is concave, and its maximum with the profile is convex.
    """
    inflection = _inflection(epsilon)
    x = np.append(inflection * _INCREASE, max(mean, inflection))[:, None]
    mu = np.sqrt(x)
    slope = norm.pdf(epsilon / mu - mu / 2) / (2 * mu)
    return gaussian_delta(mu, epsilon) + slope * (squares - x)


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest x in [low, high] for which a monotone claim holds, rounded up; infinite if none."""
    if holds(low):
        return low
    if not holds(high):
        return math.inf
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _check_probability(what: str, value: float) -> None:
    if not 0 < value <= 1:
        raise PlanError(f"{what} must be in (0, 1]; got {value}.")
