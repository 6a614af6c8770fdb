"""The privacy theorem of [KANGradientDescent26] as it is printed, beside the truth."""

import math
from typing import Literal

from antiphon.accounting import check_delta, check_epsilon, gaussian_delta, gaussian_epsilon
from antiphon.errors import PlanError
from antiphon_papers.common.printed import Printed, check_choice, check_count, failures, result

__all__ = ["kan_block_constants", "theorem_4_14"]


def theorem_4_14(
    steps: int,
    epsilon: float,
    delta: float,
    form: Literal["printed", "corrected"] = "printed",
    is_norm_measured: bool = False,
) -> Printed:
    """Projected full-batch descent on a two-layer KAN, replace-one [KANGradientDescent26, Thm. 4.14].

    Each of two blocks gets noise of z times its sensitivity: z² = 2T(1 + log(2T/δ)/ε)/ε as printed,
    z² = 2T(1 + 2 log(2/δ)/ε)/ε as the proof needs, which is more unless T >= 2/δ.

    Args:
        steps: T.
        epsilon: ε.
        delta: δ, half of which is kept for a large ‖c(0)‖.
        form: As printed, or corrected.
        is_norm_measured: ‖c(0)‖, which no data touch, is read off instead: all of δ is for the noise.

    Guarantee:
        The corrected form is proved for every T. The truth is exact if both sensitivities are attained,
        else an upper bound: T releases of two blocks are one Gaussian release of μ = sqrt(2T)/z.
        ``noise`` is z; `kan_block_constants` turns it into the paper's σ₁ and σ₂.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_count("steps", steps)
    check_choice("form", form, ("printed", "corrected"))
    needed = 2 * math.log(2 / delta)
    used = needed if form == "corrected" else math.log(2 * steps / delta)
    mu = epsilon / math.sqrt(epsilon + used)
    left = delta if is_norm_measured else delta / 2
    proved = epsilon / 2 * (epsilon + needed) / (epsilon + used) + epsilon / 2
    return result(
        f"KANGradientDescent26, Thm. 4.14, {form}",
        math.sqrt(2 * steps) / mu,
        epsilon,
        delta,
        gaussian_epsilon(mu, left),
        float(gaussian_delta(mu, epsilon)) + (delta - left),
        "Gaussian, both blocks: exact",
        failures(
            (
                form == "corrected" or steps >= 2 / delta,
                f"steps must be at least 2/δ = {2 / delta:g}, not {steps}: the paper's lemmas prove "
                f"ε = {proved:.3f} here",
            )
        ),
    )


def kan_block_constants(
    form: Literal["main text", "proof of 4.14", "proof of D.12", "corrected"],
    width: int,
    basis: int,
    radius: float,
    delta: float,
    *,
    largest: float = 2 / 3,
    slope: float = 5 / 3,
) -> tuple[float, float]:
    """C₁ and C₂, with which σᵢ = z sqrt(Cᵢ/2)/n [KANGradientDescent26, Thm. 4.14].

    C₁ is printed in three forms that differ from each other and from what the paper's bounds give. The
    loss and the activation have slopes of at most 1.

    Args:
        form: Which.
        width: m.
        basis: Number p of basis functions.
        radius: R₂, of the ball around c(0).
        delta: δ, half of which is the probability that ‖c(0)‖ is larger than assumed.
        largest: Bound on the basis functions; 2/3 for uniform cubic splines.
        slope: Bound on their derivatives; 5/3 for p = 8 on [-1, 1].

    Guarantee:
        Only the corrected form is proved.

    Example:
        >>> [round(c, 4) for c in kan_block_constants("corrected", 32, 8, 1.0, 5e-5)]
        [101012.362, 28.4444]
    """
    check_delta(delta)
    check_count("width", width)
    check_count("basis", basis)
    if not 0 < radius < math.inf:
        raise PlanError(f"radius must be positive and finite; got {radius}.")
    log = math.log(2 / delta)
    forms = {
        "main text": (2 * math.sqrt(log + radius), slope * largest),
        "proof of 4.14": (log + radius, slope * largest),
        "proof of D.12": (2 * math.sqrt(log) + radius, slope),
        "corrected": (2 * math.sqrt(log) + radius, slope * largest),
    }
    check_choice("form", form, tuple(forms))
    extra, prefactor = forms[form]
    reach = 4 * math.sqrt(basis) + extra / math.sqrt(width)
    return 8 * (prefactor * basis * reach) ** 2, 8 * largest**2 * basis
