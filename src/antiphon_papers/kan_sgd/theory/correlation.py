"""How much of the last noise to cancel: the best λ, at fixed noise and at fixed privacy.

The quadratic noise term of the descent bounds is proportional to κ² ((1 - λ)² + a λ²), with a = 12βη in the
lemma and a <= 1 for every step size of the theory.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from antiphon.checks import positive
from antiphon.errors import PlanError

__all__ = [
    "Correlation",
    "best_lambda",
    "best_lambda_at_fixed_noise",
    "choose_lambda",
    "noise_factor",
    "noise_objective",
]


@final
@dataclass(frozen=True)
class Correlation:
    """A λ that was chosen, and why.

    Attributes:
        lam: λ.
        noise_multiplier: κ(λ).
        objective: κ² ((1 - λ)² + a λ²).
        gain: Objective over that of independent noise; below 1, correlation pays.
    """

    lam: float
    noise_multiplier: float
    objective: float
    gain: float


def noise_factor(lam: float, a: float) -> float:
    """(1 - λ)² + a λ²: what correlation leaves of the quadratic noise term at fixed κ.

    Guarantee:
        Smallest, a/(1 + a), at λ = 1/(1 + a), and larger beyond: Remark 4.2 of [KANCorrelated26], that
        the bound improves monotonically as λ → 1, is false.

    Example:
        >>> noise_factor(0.5, a=1.0), round(noise_factor(0.9, a=1.0), 12)
        (0.5, 0.82)
    """
    if not 0 <= lam <= 1:
        raise PlanError(f"λ must be in [0, 1]; got {lam}.")
    return (1 - lam) ** 2 + positive("a", a) * lam**2


def best_lambda_at_fixed_noise(a: float) -> float:
    """1/(1 + a), which minimises `noise_factor`.

    Example:
        >>> best_lambda_at_fixed_noise(1.0)
        0.5
    """
    return 1 / (1 + positive("a", a))


def best_lambda(a: float) -> float:
    """The best λ at fixed privacy, if a record's participations lie far apart.

    Then κ² is proportional to 1/(1 - λ²), and ((1 - λ)² + a λ²)/(1 - λ²) is smallest where
    (1 - λ)² = a λ: at λ* = (2 + a - sqrt(a² + 4a))/2, where it is exactly 1 - λ*.

    Args:
        a: 12βη, of the step size and the loss's smoothness.

    Guarantee:
        Exact for isolated participations. Where sampling amplifies strongly, κ grows like 1/(1 - λ) and
        correlation brings nothing; with the closed form of Theorem F.12, λ = 0 is best for every a.
        `choose_lambda` decides with an accountant.

    Example:
        >>> round(best_lambda(1.0), 9), best_lambda(0.5)
        (0.381966011, 0.5)
    """
    a = positive("a", a)
    # 2/(2 + a + sqrt(a² + 4a)) without the difference, which would cancel for large a.
    return 2 / (2 + a + math.sqrt(a * (a + 4)))


def noise_objective(lam: float, noise_multiplier: float, a: float) -> float:
    """J(λ) = κ(λ)² ((1 - λ)² + a λ²), the quadratic noise term at fixed privacy, up to what λ leaves alone.

    Example:
        >>> round(noise_objective(0.5, 2.58, a=0.01), 2)
        1.68
    """
    return positive("noise_multiplier", noise_multiplier) ** 2 * noise_factor(lam, a)


def choose_lambda(
    noise: Callable[[float], float],
    a: float,
    candidates: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 0.9),
) -> Correlation:
    """The candidate with the smallest objective J, with the noise that an accountant asks for.

    Args:
        noise: κ(λ): the noise multiplier that makes λ-CGD noise private enough.
        a: 12βη.
        candidates: Values of λ to try; λ = 0 is always compared with.

    Guarantee:
        The best of the candidates for this ``noise``; as good as the accountant behind it.

    Example:
        >>> choose_lambda(lambda lam: (1 - lam**2) ** -0.5, a=0.5).lam
        0.5
    """
    found = {lam: noise(lam) for lam in {0.0, *candidates}}
    values = {lam: noise_objective(lam, kappa, a) for lam, kappa in found.items()}
    best = min(sorted(values), key=values.__getitem__)
    return Correlation(best, found[best], values[best], values[best] / values[0.0])
