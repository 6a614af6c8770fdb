"""Finite-time statements with explicit constants [CorrelatedNoise24, sec. 2.3 and App. D].

They are true, and say nothing at realistic numbers of steps: each comes with its conditions and with the
excess risk at the start, which is known without it. `expected_excess` is exact where inputs are Gaussian.
"""

import math
from dataclasses import dataclass
from typing import final

from antiphon.checks import positive, whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import AbstractMechanism, Independent, LambdaCGD, NuFTRL
from antiphon_papers.common.condition import Condition
from antiphon_papers.dp_ftrl.theory.bounds import two_sided
from antiphon_papers.dp_ftrl.theory.energy import squared_sensitivity
from antiphon_papers.dp_ftrl.theory.regression import non_negative
from antiphon_papers.dp_ftrl.theory.spectrum import (
    Spectrum,
    effective_dimension,
    eigenvalues,
    gaussian_moment,
)
from antiphon_papers.kan_gd import Bound

__all__ = [
    "ClipNorm",
    "half_decay_constant",
    "no_clipping",
    "theorem_d11",
    "theorem_d11_printed",
    "theorem_d13",
    "theorem_d14_rate",
    "theorem_d15_rate",
]


def theorem_d11(
    steps: int,
    *,
    stationary: float,
    excess: float,
    smallest: float,
    largest: float,
    learning_rate: float,
    radius_squared: float,
) -> Bound:
    """κ e^(-ημt) (F_0 - F*) + F_∞, a bound on E F_t - F* for any inputs.

    Args:
        steps: t.
        stationary: F_∞, or a bound on it.
        excess: F_0 - F*.
        smallest: μ.
        largest: L.
        learning_rate: η < 1/R².
        radius_squared: R².

    Guarantee:
        Holds: start and noise do not correlate, so that the errors add up. The paper adds their square
        roots [CorrelatedNoise24, Thm. D.11], up to twice as much.

    Example:
        >>> run = dict(stationary=0.01, excess=1.0, smallest=0.1, largest=1.0, learning_rate=0.1)
        >>> round(theorem_d11(1000, radius_squared=3.6, **run).value, 6)
        0.010454
    """
    value = _faded(steps, excess, smallest, largest, learning_rate)
    value += non_negative("stationary", stationary)
    return _d11("(corrected)", value, excess, learning_rate, radius_squared)


def theorem_d11_printed(
    steps: int,
    *,
    stationary: float,
    excess: float,
    smallest: float,
    largest: float,
    learning_rate: float,
    radius_squared: float,
) -> Bound:
    """(sqrt(κ e^(-ημt) (F_0 - F*)) + sqrt F_∞)², as printed; holds, and is looser than `theorem_d11`."""
    root = math.sqrt(_faded(steps, excess, smallest, largest, learning_rate))
    value = (root + math.sqrt(non_negative("stationary", stationary))) ** 2
    return _d11("as printed", value, excess, learning_rate, radius_squared)


def _faded(
    steps: int, excess: float, smallest: float, largest: float, learning_rate: float
) -> float:
    mu, L = positive("smallest", smallest), positive("largest", largest)
    if mu > L:
        raise PlanError(f"the smallest eigenvalue cannot be above the largest; got {mu} and {L}.")
    faded = math.exp(-positive("learning_rate", learning_rate) * mu * non_negative("steps", steps))
    return L / mu * faded * non_negative("excess", excess)


def _d11(label: str, value: float, excess: float, eta: float, R2: float) -> Bound:
    condition = Condition.at_most(
        "ηR² < 1", eta * positive("radius_squared", R2), 1.0, strictly=True
    )
    return Bound(f"CorrelatedNoise24, Thm. D.11 {label}", float(value), float(excess), (condition,))


@final
@dataclass(frozen=True)
class ClipNorm:
    """A clip norm that, with high probability, clips nothing.

    Attributes:
        value: G; infinite where the noise of G itself would make gradients longer than G.
        conditions: What it needs.
        drift: b = C₁ Tr H l sqrt(K), below 1 where G is finite.
        from_start: C₁ Tr H l (‖θ_0 - θ*‖ + what label noise adds to it), the part of G that is largest.
    """

    value: float
    conditions: tuple[Condition, ...]
    drift: float
    from_start: float


def half_decay_constant(mechanism: AbstractMechanism, nu: float) -> float:
    """C with Σ_k |β_k| (1-ν)^((τ-k)/2) <= C (1-ν)^(τ/2) for all τ [CorrelatedNoise24, Assumption D.3].

    Example:
        >>> round(half_decay_constant(NuFTRL(0.01), 0.01), 6)
        1.929201
    """
    if not 0 < nu < 1:
        raise PlanError(f"ν must be strictly between 0 and 1; got {nu}.")
    match mechanism:
        case Independent():
            return 1.0
        case LambdaCGD(lam):
            return 1 + lam / math.sqrt(1 - nu)
        case NuFTRL(own) if own >= nu:
            # Σ_k |β_k| x^k = 2 - sqrt(1 - (1-ν')x) at x = (1-ν)^(-1/2).
            return 2 - math.sqrt(1 - (1 - own) / math.sqrt(1 - nu))
        case _:
            raise UnsupportedError(
                f"no half-decay constant is known for {mechanism} at ν = {nu}. Independent, λ-CGD and "
                "ν-FTRL noise (with at least this ν) have one."
            )


def no_clipping(
    mechanism: AbstractMechanism,
    steps: int,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float,
    failure: float,
    distance: float,
    label_noise: float,
) -> ClipNorm:
    """A clip norm G for which P(no gradient is ever clipped) >= 1 - failure.

    Args:
        mechanism: Independent, λ-CGD or ν-FTRL noise.
        steps: T.
        spectrum: Eigenvalues of H.
        learning_rate: η.
        rho: ρ of zCDP.
        failure: p.
        distance: ‖θ_0 - θ*‖.
        label_noise: σ_sgd.

    Guarantee:
        For whitened inputs with independent 1-sub-Gaussian coordinates and sub-Gaussian residuals
        [CorrelatedNoise24, Thm. D.4], with tails of quadratic forms in place of Hanson and Wright's
        unknown constant. G depends on ``distance``, ``label_noise`` and H: it is private only if these
        are prior knowledge, and then for any G.
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    T = whole("steps", steps)
    if not 0 < failure < 1:
        raise PlanError(f"failure is a probability strictly between 0 and 1; got {failure}.")
    trace, mu, d = float(values.sum()), float(values.min()), len(values)
    p = failure / 6
    log = math.log(T / p)
    tail = (1 + 2 * math.sqrt(log) + 2 * log) / log
    nu = mechanism.nu if isinstance(mechanism, NuFTRL) and mechanism.nu > 0 else eta * mu
    total = _absolute_sum(mechanism)
    labels = non_negative("label_noise", label_noise) ** 2
    from_labels = tail**2 * eta * labels * trace / mu * log**2
    from_labels *= 1 + math.log(T**2 / (tail * p * log))
    gamma2 = squared_sensitivity(mechanism)
    noise = tail * eta**2 * gamma2 / (2 * positive("rho", rho)) * log * d * total**2 / nu
    decay = half_decay_constant(mechanism, nu)
    noise *= 1 + math.log(decay**2 * T**2 / (p * total**2))
    growth = tail * trace * log
    drift = growth * math.sqrt(noise)
    from_start = growth * (non_negative("distance", distance) + math.sqrt(from_labels))
    largest = from_start + math.sqrt(2 * growth * labels * math.log(2 * T / p))
    return ClipNorm(
        largest / (1 - drift) if drift < 1 else math.inf,
        (
            Condition.at_most("η <= 1/(C₁ Tr H ln(6T/p))", eta, 1 / growth),
            Condition.at_most("noise of G below G", drift, 1.0),
            Condition.at_most("ν <= ημ", nu, eta * mu),
        ),
        drift,
        from_start,
    )


def theorem_d13(
    mechanism: AbstractMechanism,
    steps: int,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float,
    failure: float,
    distance: float,
    excess: float,
    label_noise: float,
) -> Bound:
    """E[(F_T - F*) 1(no clipping)] of DP-FTRL with the clip norm of `no_clipping`.

    Args:
        mechanism: Independent, λ-CGD or ν-FTRL noise.
        steps: T.
        spectrum: Eigenvalues of H.
        learning_rate: η.
        rho: ρ of zCDP.
        failure: p, the probability left to clipping.
        distance: ‖θ_0 - θ*‖.
        excess: F_0 - F*, which is known without the bound.
        label_noise: σ_sgd.

    Guarantee:
        [CorrelatedNoise24, Thm. D.13] with explicit constants and without its factor 2. Vacuous at every
        realistic number of steps, as `Bound.is_vacuous` says.
    """
    values = eigenvalues(spectrum)
    clip = no_clipping(
        mechanism,
        steps,
        spectrum=values,
        learning_rate=learning_rate,
        rho=rho,
        failure=failure,
        distance=distance,
        label_noise=label_noise,
    )
    stationary = math.inf
    if math.isfinite(clip.value):
        stationary = two_sided(
            mechanism,
            spectrum=values,
            learning_rate=learning_rate,
            rho=rho,
            clip_norm=clip.value,
            label_noise=label_noise,
        ).upper
    mu, L = float(values.min()), float(values.max())
    value = _faded(steps, excess, mu, L, learning_rate) + stationary
    step = Condition.at_most("ηR² < 1", learning_rate * gaussian_moment(values), 1.0)
    conditions = (*clip.conditions, step)
    return Bound("CorrelatedNoise24, Thm. D.13", value, excess, conditions)


def theorem_d14_rate(
    steps: int, *, spectrum: Spectrum, rho: float, distance: float, label_noise: float
) -> Bound:
    """DP-SGD's rate κ d_eff (d Tr H D²/(ρT) + d σ²/(ρT) + σ²/T), logarithms and constants left out."""
    values, T = eigenvalues(spectrum), whole("steps", steps)
    d, trace = len(values), float(values.sum())
    noise, labels = positive("rho", rho) * T, label_noise**2
    inner = d * trace * distance**2 / noise + d * labels / noise + labels / T
    return _rate("Thm. D.14", values, inner, T, rho, distance)


def theorem_d15_rate(
    steps: int, *, spectrum: Spectrum, rho: float, distance: float, label_noise: float
) -> Bound:
    """ν-DP-FTRL's rate κ d_eff (κ d_eff (Tr H D² + σ²)/(ρT²) + σ²/T), logarithms and constants left out."""
    values, T = eigenvalues(spectrum), whole("steps", steps)
    trace, labels = float(values.sum()), label_noise**2
    weak = float(values.max() / values.min()) * effective_dimension(values)
    inner = weak * (trace * distance**2 + labels) / (positive("rho", rho) * T**2) + labels / T
    return _rate("Thm. D.15", values, inner, T, rho, distance)


def _rate(
    theorem: str, values: "Spectrum", inner: float, T: int, rho: float, distance: float
) -> Bound:
    values = eigenvalues(values)
    weak = float(values.max() / values.min()) * effective_dimension(values)
    return Bound(
        f"CorrelatedNoise24, {theorem}",
        weak * inner,
        float(values.max()) * distance**2 / 2,
        (Condition.at_least("T >= κ² d_eff² d/ρ", T, weak**2 * len(values) / rho),),
        is_explicit=False,
        unproved=("bounds the error on the event that nothing is clipped, not the error itself",),
    )


def _absolute_sum(mechanism: AbstractMechanism) -> float:
    """‖β‖₁."""
    match mechanism:
        case Independent():
            return 1.0
        case LambdaCGD(lam):
            return 1 + lam
        case NuFTRL(nu):
            return 2 - math.sqrt(nu)
        case _:
            raise UnsupportedError(
                f"finite-time bounds are computed for independent, λ-CGD and ν-FTRL noise; got {mechanism}."
            )
