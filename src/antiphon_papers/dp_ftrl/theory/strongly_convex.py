"""A certified bound on the stationary error of DP-FTRL for smooth, strongly convex losses, and its optimum.

[CorrelatedNoise24, Thm. 3.1 and E.1] with two corrections: the sign of the multiplier, and the constants.
The main text's prefactor is false (0.01024 against a true 0.013158 for θ²/2 at η = 0.1, κ = 10); the
appendix' is 8 times too large. The bound is on the time average of the error; for the last iterate it
needs convergence to stationarity, as the paper says.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from scipy.optimize import minimize_scalar

from antiphon.checks import positive, whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import BLT, AbstractMechanism, BandedInverse, NuFTRL
from antiphon.numerics import Series
from antiphon_papers.dp_ftrl.theory.cone import cone_rows, solve_cone
from antiphon_papers.dp_ftrl.theory.energy import squared_sensitivity
from antiphon_papers.dp_ftrl.theory.filters import OptimalFilter, filter_against
from antiphon_papers.dp_ftrl.theory.frequency import power_spectrum, warped_grid
from antiphon_papers.dp_ftrl.theory.multipliers import Descent, Multiplier, lags_for
from antiphon_papers.dp_ftrl.theory.regression import non_negative

__all__ = [
    "NoiseGain",
    "OptimizedFTRL",
    "best_strongly_convex_nu",
    "certified_gain",
    "noise_gain",
    "optimized_ftrl",
    "quadratic_gains",
    "strongly_convex_bound",
    "theorem_3_1_printed",
]

_NODES = 400
_LAGS = 32
_MOST = 1 << 21
_ROUNDS = 8
_RESOLVED = 50.0

Power = Callable[[Series], Series]


@final
@dataclass(frozen=True)
class NoiseGain:
    """J: how much of the noise of a mechanism gradient descent keeps, at the most, for L = 1.

    F_∞ <= (L/2) · dG²/(2ρ) · J/L².

    Attributes:
        value: J, recomputed on the fine grid: the number to quote.
        sought: The value of the cone program on its own frequencies.
        gap: How far, relatively, that may be from its optimum.
        margin: A positive lower bound on X at all frequencies, between those of the fine grid, too.
        points: Frequencies of the fine grid in [0, π].
        multiplier: What proves it.
    """

    value: float
    sought: float
    gap: float
    margin: float
    points: int
    multiplier: Multiplier


def certified_gain(
    descent: Descent, multiplier: Multiplier, weight: Power, *, width: float | None = None
) -> tuple[float, float, int]:
    """What a multiplier proves: the mean of weight · y, a margin, and how many frequencies were seen.

    Args:
        descent: Learning rate and curvature.
        multiplier: Any multiplier.
        weight: γ²|B|², as a function of frequencies in [0, π].
        width: Of the weight's narrowest feature, if that is narrower than ημ.

    Guarantee:
        X > 0 at every frequency is proved: at those of the grid, and by X's second derivative between them.
        The mean is computed, not proved: a trapezoidal sum, which converges geometrically for smooth
        periodic functions, on a grid that resolves the narrowest feature of weight, descent and 1/X (X is
        at least 50 times as large as what it can sag by between two points, so that its complex zeros are
        3.5 spacings away, and what remains is about e^-20). Refused where X is not positive, or too close
        to 0 for that.
    """
    count = _fine_points(descent, multiplier.lags, width)
    while True:
        frequencies = np.linspace(0, np.pi, count + 1)
        u, v = multiplier.uniform_parts(count)
        X, real, imag = cone_rows(descent, u, v, frequencies)
        least, sag = np.minimum(X[1:], X[:-1]), _sag(descent, multiplier, frequencies)
        margin = float((least - sag).min())
        if margin > 0 and (least >= _RESOLVED * sag).all():
            break
        if 2 * count > _MOST or not (least > 0).all():
            raise UnsupportedError(
                "the multiplier does not prove a bound: X is not certainly positive at all frequencies, or "
                "too close to 0 for its mean to be computed. Take fewer lags in the search."
            )
        count *= 2
    y = np.maximum((real**2 + imag**2) / X - 2 * u, 0.0)
    values = weight(frequencies) * y
    mean = (values.sum() - (values[0] + values[-1]) / 2) / count
    return float(mean), margin, count + 1


def _fine_points(descent: Descent, lags: tuple[int, ...], width: float | None) -> int:
    """Intervals of a grid that sees every feature of weight, descent and multiplier."""
    narrow = min(descent.width, width or descent.width)
    needed = max(1 << 15, 10 / narrow, 64 * max(lags, default=1))
    if needed > _MOST:
        raise UnsupportedError(
            f"{needed:,.0f} frequencies would be needed to verify this bound, more than {_MOST:,}. Take a "
            "larger learning rate or strong convexity, or noise that forgets sooner."
        )
    return 1 << math.ceil(math.log2(needed))


def _sag(descent: Descent, multiplier: Multiplier, frequencies: Series) -> Series:
    """By how much X can be below a chord of the grid: an eighth of spacing² times a bound on |X''|."""
    step = float(frequencies[1])
    slope = abs(2 / descent.learning_rate - (1 + descent.mu)) / descent.learning_rate
    (u0, v0), (u1, v1), (u2, v2) = (multiplier.moments(order) for order in (0, 1, 2))
    u0 += multiplier.constant
    chord = 2 * np.sin(frequencies[1:] / 2) ** 2
    curvature = np.abs(descent.curvature(chord)) + slope * step
    sine = np.minimum(1.0, np.sin(frequencies[:-1]) + step)
    bound = 2 * (u2 * curvature + 2 * u1 * slope * sine + u0 * slope)
    bound += 2 * (1 - descent.mu) / descent.learning_rate * (v2 * sine + 2 * v1 + v0 * sine)
    return step**2 / 8 * bound


def noise_gain(
    mechanism: AbstractMechanism,
    *,
    learning_rate: float,
    condition_number: float,
    lags: int = _LAGS,
) -> NoiseGain:
    """J of a mechanism for every 1-smooth function with this condition number.

    Args:
        mechanism: Toeplitz noise of finite sensitivity for endlessly many steps.
        learning_rate: η, times the smoothness L.
        condition_number: κ = L/μ.
        lags: How many lags the multiplier may have; 0 for a static one.

    Guarantee:
        A certified upper bound: see `certified_gain`.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> found = noise_gain(Independent(), learning_rate=1.0, condition_number=10.0)
        >>> round(found.value, 2), found.margin > 0
        (13.44, True)
    """
    descent = _descent(learning_rate, condition_number)
    gamma2 = squared_sensitivity(mechanism)

    def weight(frequencies: Series) -> Series:
        return gamma2 * power_spectrum(mechanism, frequencies)

    return _gain(descent, weight, lags, _width(mechanism))


def _gain(descent: Descent, weight: Power, lags: int, width: float | None = None) -> NoiseGain:
    chosen = lags_for(descent, lags)
    _fine_points(descent, chosen, width)  # what cannot be verified need not be sought
    frequencies, means = warped_grid(min(descent.width, width or descent.width), _NODES)
    found = solve_cone(descent, frequencies, means * weight(frequencies), chosen)
    value, margin, points = certified_gain(descent, found.multiplier, weight, width=width)
    return NoiseGain(value, found.value, found.gap / found.value, margin, points, found.multiplier)


def _width(mechanism: AbstractMechanism) -> float | None:
    """Of the narrowest feature of its spectrum: the distance of its singularities from the circle."""
    match mechanism:
        case NuFTRL(nu):
            return nu
        case BLT(_, decays):
            return 1 - max(decays, default=0.0)
        case BandedInverse(beta):
            return 5 / len(beta)
        case _:
            return None


def quadratic_gains(
    mechanism: AbstractMechanism, *, learning_rate: float, condition_number: float
) -> tuple[float, float]:
    """What quadratics alone show to be necessary: below J of this mechanism, and below J of every other.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> found = quadratic_gains(Independent(), learning_rate=1.0, condition_number=10.0)
        >>> [round(value, 4) for value in found]
        [5.6648, 2.8715]
    """
    descent = _descent(learning_rate, condition_number)
    frequencies, means = warped_grid(descent.width, far=2 - descent.learning_rate)
    response = descent.quadratic_response(frequencies)
    power = power_spectrum(mechanism, frequencies)
    own = squared_sensitivity(mechanism) * float(means @ (power * response))
    return own, float(means @ np.sqrt(response)) ** 2


def strongly_convex_bound(
    mechanism: AbstractMechanism,
    *,
    learning_rate: float,
    smoothness: float = 1.0,
    strong_convexity: float,
    dimension: int = 1,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    gradient_noise: float = 0.0,
) -> float:
    """A bound on F_∞ of DP-FTRL on any L-smooth, μ-strongly convex loss with G-Lipschitz examples.

    Args:
        mechanism: Toeplitz noise of finite sensitivity for endlessly many steps.
        learning_rate: η < 2/L.
        smoothness: L.
        strong_convexity: μ.
        dimension: d.
        rho: ρ of zCDP.
        clip_norm: G.
        gradient_noise: σ_sgd, a bound on ‖∇f - E∇f‖.

    Guarantee:
        (L/2) [dG²/(2ρ) J(B) + σ_sgd² J(1)] with one multiplier for both. No factor 2 of Cauchy and
        Schwarz, as the two noises do not correlate, and no d on σ_sgd², which bounds the whole vector.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> run = dict(learning_rate=0.1, strong_convexity=0.1)
        >>> round(strongly_convex_bound(Independent(), **run), 4)  # θ²/2 has 0.0132
        0.2561
    """
    L = positive("smoothness", smoothness)
    mu = positive("strong_convexity", strong_convexity)
    descent = _descent(learning_rate * L, L / mu)
    scale = whole("dimension", dimension) * positive("clip_norm", clip_norm) ** 2
    scale /= 2 * positive("rho", rho)
    scale *= squared_sensitivity(mechanism)
    other = non_negative("gradient_noise", gradient_noise) ** 2

    def weight(frequencies: Series) -> Series:
        return scale * power_spectrum(mechanism, frequencies) + other

    return _gain(descent, weight, _LAGS, _width(mechanism)).value / (2 * L)


def theorem_3_1_printed(
    gain: float, *, learning_rate: float, smoothness: float = 1.0, rho: float = 1.0
) -> float:
    """L η² J/ρ for d = G = 1, the prefactor of the main text with the appendix' ψ = η² y: false.

    Example:
        >>> round(theorem_3_1_printed(1.0243, learning_rate=0.1), 5)  # below the true 0.013158 of θ²/2
        0.01024
    """
    return smoothness * learning_rate**2 * gain / rho


def best_strongly_convex_nu(
    *, learning_rate: float, condition_number: float
) -> tuple[float, float]:
    """The ν with the smallest J, and that J before certification, by a search of its logarithm.

    Example:
        >>> nu, value = best_strongly_convex_nu(learning_rate=1.0, condition_number=10.0)
        >>> round(nu, 2), round(value, 2)
        (0.23, 9.5)
    """
    descent = _descent(learning_rate, condition_number)
    frequencies, means = warped_grid(0.3 * descent.width, _NODES)
    lags = lags_for(descent, _LAGS)

    def value(log_nu: float) -> float:
        nu = NuFTRL(math.exp(log_nu))
        weights = means * squared_sensitivity(nu) * power_spectrum(nu, frequencies)
        return solve_cone(descent, frequencies, weights, lags).value

    ends = math.log(0.3 * descent.width), math.log(0.9)
    found = minimize_scalar(value, bounds=ends, method="bounded", options={"xatol": 1e-3})
    return math.exp(float(found.x)), float(found.fun)


@final
@dataclass(frozen=True)
class OptimizedFTRL:
    """Correlations optimised for the bound: the paper's "Optimized DP-FTRL" [CorrelatedNoise24, sec. 3].

    Attributes:
        gain: J of |B|² = 1/√ψ, certified.
        rounds: J after each round of the alternation, before certification.
        filter: The correlations; its `mechanism(steps)` runs exactly, its `buffered(m)` in constant memory.
    """

    gain: NoiseGain
    rounds: tuple[float, ...]
    filter: OptimalFilter


def optimized_ftrl(
    *,
    learning_rate: float,
    condition_number: float,
    start: AbstractMechanism | None = None,
    terms: int = 4096,
) -> OptimizedFTRL:
    """Alternate between the best ψ for |B|² and the best |B|² = 1/√ψ for ψ, then factor the spectrum.

    Args:
        learning_rate: η, times the smoothness L.
        condition_number: κ.
        start: Where to start; ν-FTRL with ν = ημ unless given. The problem in both is not convex, but
            starts agree to five digits.
        terms: Number of coefficients of the correlations: the longest run.

    Guarantee:
        J falls in every round, by construction, and is certified at the end. The mechanisms made from it
        are certified by their own sensitivity, and have their own J (`noise_gain`).

    Example:
        >>> found = optimized_ftrl(learning_rate=1.0, condition_number=10.0, terms=64)
        >>> round(found.gain.value, 2)
        9.33
    """
    descent = _descent(learning_rate, condition_number)
    frequencies, means = warped_grid(descent.width, _NODES)
    lags = lags_for(descent, _LAGS)
    first = start or NuFTRL(min(0.9, descent.width))
    power = power_spectrum(first, frequencies)
    rounds: list[float] = []
    while True:
        gamma2 = float(means @ (1 / power))
        found = solve_cone(descent, frequencies, means * gamma2 * power, lags)
        psi = _response(descent, found.multiplier)(frequencies)
        power = 1 / np.sqrt(psi)
        rounds.append(float(means @ np.sqrt(psi)) ** 2)
        if len(rounds) == _ROUNDS or (len(rounds) > 1 and rounds[-1] > rounds[-2] * (1 - 1e-4)):
            break
    response = _response(descent, found.multiplier)
    # γ² = mean √ψ, and so is the mean of y/√ψ: both on the fine grid, since ψ has lags of 3κ/η, which
    # the frequencies of the search do not resolve.
    root, margin, points = certified_gain(
        descent, found.multiplier, lambda w: 1 / np.sqrt(response(w))
    )
    optimal = replace(filter_against(response, descent.width, terms), value=root**2)
    relative = found.gap / found.value
    gain = NoiseGain(root**2, rounds[-1], relative, margin, points, found.multiplier)
    return OptimizedFTRL(gain, tuple(rounds), optimal)


def _response(descent: Descent, multiplier: Multiplier) -> Power:
    """Y as a function of frequency: what this multiplier proves about noise there."""

    def response(frequencies: Series) -> Series:
        u, v = multiplier.parts(frequencies)
        X, real, imag = cone_rows(descent, u, v, frequencies)
        y: Series = (real**2 + imag**2) / X - 2 * u
        return y

    return response


def _descent(learning_rate: float, condition_number: float) -> Descent:
    if not 1 < condition_number < math.inf:
        raise PlanError(f"the condition number must be above 1 and finite; got {condition_number}.")
    return Descent(float(learning_rate), 1 / float(condition_number))
