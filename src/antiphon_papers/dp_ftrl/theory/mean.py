"""DP-FTRL for the mean of bounded numbers, exactly [CorrelatedNoise24, Thm. 2.1].

f(θ; z) = z²/2 - zθ with |z| <= 1, whose gradient is never clipped, and the penalty θ²/2: here Noisy-FTRL is
DP-FTRL, and its error is that of a linear filter.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, Independent, NuFTRL
from antiphon_papers.dp_ftrl.theory.elliptic import nu_energy
from antiphon_papers.dp_ftrl.theory.energy import noise_energy, toeplitz
from antiphon_papers.dp_ftrl.theory.regression import noise_variance, non_negative

__all__ = [
    "MeanEstimation",
    "best_mean_mechanism",
    "mean_error",
    "mean_gain",
    "mean_gain_bounds",
    "theorem_2_1",
    "theorem_2_1_rate_printed",
]


@final
@dataclass(frozen=True)
class MeanEstimation:
    """Theorem 2.1 at given numbers.

    Attributes:
        mechanism: The best mechanism there is: ν-FTRL with ν = η, independent noise at η = 1.
        best: Its F_∞, the smallest of all Toeplitz mechanisms.
        independent: F_∞ of DP-SGD.
        ratio: Of the two parts that privacy causes.
        sensitivity_squared: γ_∞² of the best mechanism.
    """

    mechanism: AbstractMechanism
    best: float
    independent: float
    ratio: float
    sensitivity_squared: float


def mean_error(
    mechanism: AbstractMechanism,
    *,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    variance: float = 0.0,
) -> float:
    """F_∞ = E(θ_∞ - E z)²/2 of any Toeplitz mechanism.

    Args:
        mechanism: Of finite sensitivity for endlessly many steps.
        learning_rate: η in (0, 1].
        rho: ρ of zCDP.
        clip_norm: G, at least the largest |z|.
        variance: Of z. The paper's Θ(η σ_sgd²) needs this variance, not only a bound on |z - E z|.

    Guarantee:
        Exact. (Appendix B leaves out the factor 1/2, and counts the sensitivity twice in its minimum.)

    Example:
        >>> mean_error(Independent(), learning_rate=0.5)
        0.08333333333333333
    """
    eta = _rate(learning_rate)
    energy = float(noise_energy(toeplitz(mechanism), np.array([eta]))[0])
    noise = noise_variance(mechanism, rho, clip_norm) * energy
    return eta * (noise + non_negative("variance", variance)) / (2 * (2 - eta))


def best_mean_mechanism(learning_rate: float) -> AbstractMechanism:
    """ν-FTRL with ν = η, whose |B|² = |1 - η - e^iω| attains the minimum over all β.

    Example:
        >>> best_mean_mechanism(0.1)
        NuFTRL(nu=0.1)
    """
    eta = _rate(learning_rate)
    return NuFTRL(eta) if eta < 1 else Independent()


def mean_gain(learning_rate: float) -> float:
    """What the best correlation leaves of DP-SGD's error from privacy: η(2 - η)((2/π) K(1 - η))².

    Guarantee:
        Exact and increasing in η: 0 as η → 0, and 1 at η = 1, where the best noise is independent. The
        caption of [CorrelatedNoise24, Fig. 1] claims orders of magnitude also as η → 1.

    Example:
        >>> [round(mean_gain(eta), 6) for eta in (0.001, 0.1, 1.0)]
        [0.016374, 0.400491, 1.0]
    """
    eta = _rate(learning_rate)
    return eta * (2 - eta) * nu_energy(eta) ** 2


def mean_gain_bounds(learning_rate: float) -> tuple[float, float]:
    """Elementary bounds on `mean_gain`, for every η in (0, 1].

    Guarantee:
        From ln(16/(η(2 - η)))/π <= γ_∞² <= 1.25 times that. The printed log(1/η) vanishes at η = 1.

    Example:
        >>> low, high = mean_gain_bounds(0.1)
        >>> low < mean_gain(0.1) < high
        True
    """
    eta = _rate(learning_rate)
    square = math.log(16 / (eta * (2 - eta))) / math.pi
    return eta * (2 - eta) * square**2, eta * (2 - eta) * (1.25 * square) ** 2


def theorem_2_1(
    learning_rate: float, *, rho: float = 1.0, clip_norm: float = 1.0, variance: float = 0.0
) -> MeanEstimation:
    """The best correlation, its error and that of DP-SGD, exactly [CorrelatedNoise24, Thm. 2.1].

    Example:
        >>> found = theorem_2_1(0.01)
        >>> round(found.ratio, 10), round(found.sensitivity_squared, 8)
        (0.0908683492, 2.13687826)
    """
    best = best_mean_mechanism(learning_rate)
    options = {"rho": rho, "clip_norm": clip_norm, "variance": variance}
    return MeanEstimation(
        best,
        mean_error(best, learning_rate=learning_rate, **options),
        mean_error(Independent(), learning_rate=learning_rate, **options),
        mean_gain(learning_rate),
        nu_energy(learning_rate),
    )


def theorem_2_1_rate_printed(
    learning_rate: float, *, rho: float = 1.0, variance: float = 0.0
) -> float:
    """η² log²(1/η)/ρ + ησ², the printed rate with constants of 1; its first term is 0 at η = 1: wrong."""
    eta = _rate(learning_rate)
    return eta**2 * math.log(1 / eta) ** 2 / positive("rho", rho) + eta * variance


def _rate(learning_rate: float) -> float:
    if not 0 < learning_rate <= 1:
        raise PlanError(
            f"the learning rate of mean estimation must be in (0, 1]; got {learning_rate}."
        )
    return float(learning_rate)
