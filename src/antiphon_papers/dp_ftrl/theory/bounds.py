"""Bounds on the stationary error of linear regression with any inputs, from both sides.

The corrected and sharpened forms have plain names; what a theorem prints is under its own name.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism
from antiphon.numerics import Series
from antiphon_papers.common.condition import Condition
from antiphon_papers.dp_ftrl.theory.energy import noise_energy, squared_sensitivity, toeplitz
from antiphon_papers.dp_ftrl.theory.frequency import response_of, warped_grid
from antiphon_papers.dp_ftrl.theory.regression import noise_variance, non_negative
from antiphon_papers.dp_ftrl.theory.spectrum import Spectrum, eigenvalues, gaussian_moment
from antiphon_papers.kan_gd import Bound

__all__ = [
    "TwoSided",
    "filter_error",
    "lower_bound",
    "smallest_filter_error",
    "theorem_c14",
    "theorem_c15",
    "theorem_c18_printed",
    "two_sided",
    "universal_lower_bound",
]


@final
@dataclass(frozen=True)
class TwoSided:
    """Two numbers between which F_∞ lies.

    Attributes:
        lower: Needs residuals of variance exactly σ_sgd².
        upper: Infinite where the condition fails.
        condition: η < 2/R².
    """

    lower: float
    upper: float
    condition: Condition


def two_sided(
    mechanism: AbstractMechanism,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
    radius_squared: float | None = None,
) -> TwoSided:
    """ηX/4 <= F_∞ <= (ηX/4)/(1 - ηR²/2) with X = σ_sgd² Tr H + σ² Σ_j q_j.

    Args:
        mechanism: A Toeplitz mechanism.
        spectrum: Eigenvalues of H.
        learning_rate: η.
        rho: ρ of zCDP.
        clip_norm: G.
        label_noise: σ_sgd.
        radius_squared: R², with E‖x‖² x xᵀ <= R² H; that of Gaussian inputs unless given.

    Guarantee:
        The trace of [CorrelatedNoise24, Lem. D.12, eq. 83]: holds for every law of the inputs with this R²,
        without a bound on their kurtosis, and within a factor of 2 for η <= 1/R². Theorem C.14 is at
        least 8 times looser in the part that privacy causes.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> found = two_sided(Independent(), spectrum=[1.0, 0.5, 0.1], learning_rate=0.1)
        >>> round(found.lower, 4), round(found.upper, 6)
        (0.0375, 0.045732)
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    R2 = _radius(radius_squared, values)
    noise = noise_variance(toeplitz(mechanism), rho, clip_norm)
    total = non_negative("label_noise", label_noise) ** 2 * values.sum()
    total += noise * noise_energy(mechanism, eta * values).sum()
    lower = eta * float(total) / 4
    contraction = 1 - eta * R2 / 2
    condition = Condition.at_most("η R² < 2", eta * R2, 2.0, strictly=True)
    return TwoSided(lower, lower / contraction if contraction > 0 else math.inf, condition)


def filter_error(
    mechanism: AbstractMechanism, *, spectrum: Spectrum, learning_rate: float
) -> float:
    """γ_∞²/(2π) ∫ |B|² h dω, h = Σ_j λ_j/|1 - ηλ_j - e^iω|²: F_∞ without feedback is η²G²/(4ρ) times this.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> round(filter_error(Independent(), spectrum=[1.0, 0.5, 0.1], learning_rate=0.1), 6)
        15.416489
    """
    b = positive("learning_rate", learning_rate) * eigenvalues(spectrum)
    error = float((noise_energy(toeplitz(mechanism), b) / (learning_rate * (2 - b))).sum())
    return squared_sensitivity(mechanism) * error


def smallest_filter_error(*, spectrum: Spectrum, learning_rate: float) -> float:
    """((1/2π) ∫ √h dω)², the smallest `filter_error` of any β, attained by |B|² = 1/√h.

    Guarantee:
        By Cauchy and Schwarz, up to quadrature of ten digits or more. The attaining filter minimises this
        functional, not F_∞ itself, as [CorrelatedNoise24, Thm. C.18] may be read.

    Example:
        >>> from antiphon_papers.dp_ftrl import power_law
        >>> best = smallest_filter_error(spectrum=power_law(128), learning_rate=0.02)
        >>> round(0.02**2 / 4 * best, 8)
        0.00414835
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    fastest = eta * float(values.max())
    if fastest >= 2:
        raise PlanError(f"ηλ_max must be below 2, or descent diverges; it is {fastest:.4g}.")
    frequencies, weights = warped_grid(eta * values.min(), far=2 - fastest)
    return float(weights @ np.sqrt(response_of(values, eta, frequencies))) ** 2


def lower_bound(
    mechanism: AbstractMechanism,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
) -> float:
    """ησ_sgd² Tr H/4 + η²G²γ_∞²/(8πρ) ∫|B|² h: Theorem C.18 with its constants corrected.

    Guarantee:
        Below F_∞ for every mechanism. The printed constants are twice too large: its proof takes Tr(HS) for
        the error, which is half of that.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> run = dict(spectrum=[1.0, 0.5, 0.1], learning_rate=0.1)
        >>> round(lower_bound(Independent(), **run), 7)
        0.0385412
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    labels = eta * non_negative("label_noise", label_noise) ** 2 * float(values.sum()) / 4
    scale = eta**2 * positive("clip_norm", clip_norm) ** 2 / (4 * positive("rho", rho))
    return labels + scale * filter_error(mechanism, spectrum=values, learning_rate=eta)


def theorem_c18_printed(
    mechanism: AbstractMechanism,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
) -> float:
    """Twice `lower_bound`, as printed: false [CorrelatedNoise24, Thm. C.18].

    At H = diag(1, 0.5, 0.1), η = 0.001 and independent noise it claims 7.502e-4 as a lower bound on an
    error of 3.755e-4.
    """
    return 2 * lower_bound(
        mechanism,
        spectrum=spectrum,
        learning_rate=learning_rate,
        rho=rho,
        clip_norm=clip_norm,
        label_noise=label_noise,
    )


def universal_lower_bound(
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
    sharp: bool = True,
) -> float:
    """A number below F_∞ of every Toeplitz mechanism of every kind.

    Args:
        spectrum: Eigenvalues of H.
        learning_rate: η.
        rho: ρ of zCDP.
        clip_norm: G.
        label_noise: σ_sgd.
        sharp: η²G²/(4ρ) ((1/2π)∫√h)²; else η²G² Tr H/(16ρ), the corrected form of the paper's.

    Example:
        >>> run = dict(spectrum=1 / np.arange(1, 129), learning_rate=0.02)
        >>> [round(universal_lower_bound(sharp=s, **run), 8) for s in (False, True)]
        [0.00013583, 0.00414835]
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    trace = float(values.sum())
    labels = eta * non_negative("label_noise", label_noise) ** 2 * trace / 4
    scale = eta**2 * positive("clip_norm", clip_norm) ** 2 / (4 * positive("rho", rho))
    error = smallest_filter_error(spectrum=values, learning_rate=eta) if sharp else trace / 4
    return labels + scale * error


def theorem_c14(
    mechanism: AbstractMechanism,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
    radius_squared: float | None = None,
    kurtosis: float = 3.0,
) -> Bound:
    """The paper's own upper bound on F_∞ in the time domain [CorrelatedNoise24, Thm. C.14].

    Args:
        mechanism: A Toeplitz mechanism.
        spectrum: Eigenvalues of H.
        learning_rate: η < 1/R².
        rho: ρ of zCDP.
        clip_norm: G.
        label_noise: σ_sgd.
        radius_squared: R²; that of Gaussian inputs unless given.
        kurtosis: C_kurt; 3 for Gaussian inputs.

    Guarantee:
        Holds; `two_sided` is at least 8 times sharper in the part that privacy causes.
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    noise = noise_variance(toeplitz(mechanism), rho, clip_norm)
    error = noise * float(noise_energy(mechanism, eta * values).sum())
    R2 = _radius(radius_squared, values)
    return _with_kurtosis("Thm. C.14", eta, R2, kurtosis, label_noise, error)


def theorem_c15(
    mechanism: AbstractMechanism,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
    radius_squared: float | None = None,
    kurtosis: float = 3.0,
) -> Bound:
    """The same in the frequency domain, Σ_j q_j being bounded by (η/π) ∫|B|² h.

    Guarantee:
        Holds, and is looser than `theorem_c14` [CorrelatedNoise24, Thm. C.15].
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    scale = positive("clip_norm", clip_norm) ** 2 / (2 * positive("rho", rho))
    error = 2 * eta * scale * filter_error(mechanism, spectrum=values, learning_rate=eta)
    R2 = _radius(radius_squared, values)
    return _with_kurtosis("Thm. C.15", eta, R2, kurtosis, label_noise, error)


def _with_kurtosis(
    theorem: str, eta: float, R2: float, kurtosis: float, label_noise: float, error: float
) -> Bound:
    root = math.sqrt(eta * R2)
    value, labels = math.inf, non_negative("label_noise", label_noise) ** 2
    if root < 1:
        amplified = (1 - root) ** -2
        value = (1 + amplified) * eta * R2 * labels
        value += (1 + positive("kurtosis", kurtosis) * amplified) * eta * error
    condition = Condition.at_most("η R² < 1", eta * R2, 1.0)
    return Bound(f"CorrelatedNoise24, {theorem}", value, math.inf, (condition,))


def _radius(radius_squared: float | None, values: Series) -> float:
    if radius_squared is None:
        return gaussian_moment(values)
    return positive("radius_squared", radius_squared)
