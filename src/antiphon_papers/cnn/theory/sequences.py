"""Two recursions behind the theorems: how fast powers escape, and how logarithms grow."""

import math
from dataclasses import dataclass
from typing import final

from antiphon.checks import positive
from antiphon.errors import PlanError

__all__ = ["HittingTime", "lemma_14", "lemma_15"]


@final
@dataclass(frozen=True)
class HittingTime:
    """When x_t first reaches v.

    Attributes:
        upper: At most so many steps: proved.
        lower: At least so many, or None where the printed bound is not proved.
    """

    upper: float
    lower: float | None


def lemma_14(
    start: float,
    target: float,
    *,
    step_size: float,
    slowest: float,
    fastest: float,
    q: float,
    zeta: float,
) -> HittingTime:
    """For x + η C₁ x^(q-1) <= x_{t+1} <= x + η C₂ x^(q-1) [CNNGradientDescent26, Lem. 14].

    Args:
        start: x₀.
        target: v, above x₀.
        step_size: η.
        slowest: C₁.
        fastest: C₂ >= C₁.
        q: Above 2.
        zeta: ζ, any positive number; the bounds hold for each.

    Guarantee:
        The upper bound holds for q >= 3; for smaller q its first 1 + ζ becomes ζ/(1 - (1 + ζ)^(2-q)), the
        sum of the geometric series behind it. The lower one is false as printed, for v near x₀ and,
        if q >= 4 and ζ is small, for every v; it is given only where
        (1 + ζ)^(q-1) (1 - (x₀/v)^(q-2)) >= q - 2.

    Example:
        >>> run = dict(step_size=0.01, slowest=1.0, fastest=1.0, q=3, zeta=0.1)
        >>> lemma_14(0.01, 0.02, **run).lower is None, round(lemma_14(0.01, 1.0, **run).lower)
        (True, 8260)
    """
    x0, v, eta, z = (
        positive(name, value)
        for name, value in (
            ("start", start), ("target", target), ("step_size", step_size), ("zeta", zeta)
        )
    )  # fmt: skip
    if not (v > x0 and 0 < slowest <= fastest and q > 2):
        raise PlanError(
            "Lemma 14 needs target > start, 0 < slowest <= fastest and q > 2; got target "
            f"{v}, start {x0}, slowest {slowest}, fastest {fastest}, q {q}."
        )
    log, growth = math.log(v / x0), (1 + z) ** (q - 1)
    series = 1 + z if q >= 3 else z / -math.expm1((2 - q) * math.log1p(z))
    upper = series / (eta * slowest * x0 ** (q - 2)) + growth * fastest / slowest * log
    lower = 1 / (growth * eta * fastest * x0 ** (q - 2)) - log / (1 + z) ** (q - 2)
    is_proved = growth * (1 - (x0 / v) ** (q - 2)) >= q - 2
    return HittingTime(upper, lower if is_proved else None)


def lemma_15(c1: float, c2: float, start: float, steps: float) -> tuple[float, float]:
    """Bounds on x_t where x_{t+1} = x_t + c₁ exp(-c₂ x_t) [CNNGradientDescent26, Lem. 15].

    Guarantee:
        log(c₁ c₂ t + e^(c₂ x₀))/c₂ <= x_t, and at most c₁ e^(-c₂ x₀) more.

    Example:
        >>> [round(bound, 4) for bound in lemma_15(0.1, 1.0, 0.0, 1000)]
        [4.6151, 4.7151]
    """
    positive("c1", c1), positive("c2", c2)
    if not (start >= 0 and steps >= 0):
        raise PlanError(f"start and steps are not negative; got {start} and {steps}.")
    lower = math.log(c1 * c2 * steps + math.exp(c2 * start)) / c2
    return lower, lower + c1 * math.exp(-c2 * start)
