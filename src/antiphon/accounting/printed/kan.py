"""Theorems of [KANCorrelated26] and [KANGradientDescent26]."""

import math
from typing import Literal

from antiphon.accounting import pld
from antiphon.accounting.gaussian import (
    check_delta,
    check_epsilon,
    gaussian_delta,
    gaussian_epsilon,
)
from antiphon.accounting.lambda_energy import lambda_cgd_law
from antiphon.accounting.printed.base import Printed, check_choice, check_count, failures, result
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.plan import Plan
from antiphon.relations import Relation
from antiphon.sampling import FixedSize

__all__ = ["kan_block_constants", "theorem_4_14", "theorem_d9", "theorem_f12"]


def theorem_f12(
    lam: float,
    rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    relation: Relation | str = Relation.REPLACE_ONE,
    constant: Literal[2, 8] = 8,
) -> Printed:
    """The closed form for λ-CGD on sampled batches [KANCorrelated26, Thm. F.12].

    κ² = constant ((1 - λ^T)/(1 - λ))² (rT + sqrt(3rT log(2/δ))) log(2.5/δ)/ε².

    Args:
        lam: λ in [0, 1).
        rate: Share r of the records in a batch.
        steps: Number of noisy steps T.
        epsilon: ε; proved for at most 1.
        delta: δ.
        relation: Zero-out or replace-one.
        constant: 8 as printed, which also covers replace-one; zero-out needs only 2.

    Guarantee:
        Proved under ε <= 1 and rT >= 3 log(2/δ), which the main text (Theorem 5.1) drops, by conditioning
        on participations. ``noise`` is κ; the truth is the conditioned upper bound.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    relation = Relation.of(relation)
    if not 0 <= lam < 1:
        raise PlanError(f"λ must be in [0, 1) for this theorem; got {lam}.")
    if relation is Relation.ADD_REMOVE:
        raise PlanError("the theorem is about zero-out or replace-one; got add-remove.")
    check_choice("constant", constant, (2, 8))
    law = lambda_cgd_law(lam, rate, steps)
    epochs, needed = rate * steps, 3 * math.log(2 / delta)
    count = epochs + math.sqrt(epochs * needed)
    gain = (1 - lam**steps) / (1 - lam)
    noise = gain * math.sqrt(constant * count * math.log(2.5 / delta)) / epsilon
    failed = failures(
        (epsilon <= 1, f"ε must be at most 1, not {epsilon:g}"),
        (
            epochs >= needed,
            f"rate × steps must be at least 3 log(2/δ) = {needed:.6f}, not {epochs:g}",
        ),
        (
            constant == 8 or relation is Relation.ZERO_OUT,
            "the constant 2 is proved for zero-out only",
        ),
    )
    return result(
        "KANCorrelated26, Thm. F.12",
        noise,
        epsilon,
        delta,
        law.epsilon(noise, delta, relation.amplitude),
        law.delta(noise, epsilon, relation.amplitude),
        f"conditioned on participations, {relation}: upper bound",
        failed,
    )


def theorem_d9(n: int, batch: int, steps: int, epsilon: float, delta: float) -> Printed:
    """Independent noise on fixed-size batches, replace-one [KANCorrelated26, Thm. D.9].

    κ² = 16 r²T/ε + 32 r²T log(1/δ)/ε² with r = batch/n.

    Guarantee:
        None in general: its Lemma D.7 holds in a "low-sampling regime" that the theorem drops and no one
        has stated. Its conditions are therefore taken to hold exactly where the truth, an upper bound by
        composed privacy losses (exact for batch = n), confirms it. ``noise`` is κ.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if not 1 <= batch <= n:
        raise PlanError(f"the batch must be between 1 and n = {n}; got {batch}.")
    check_count("steps", steps)
    rate = batch / n
    noise = rate * math.sqrt(16 * steps / epsilon + 32 * steps * math.log(1 / delta) / epsilon**2)
    if batch == n:
        mu = 2 * math.sqrt(steps) / noise
        truth = gaussian_epsilon(mu, delta), float(gaussian_delta(mu, epsilon))
        accountant = "Gaussian, replace-one: exact"
    else:
        plan = Plan(
            n=n,
            sampling=FixedSize(batch),
            steps=steps,
            mechanism=Independent(),
            relation=Relation.REPLACE_ONE,
            noise_multiplier=noise,
        )
        # Fine enough for steps that add up to a part of ε; a coarser grid only raises the bound.
        grid = min(1e-3, epsilon / (50 * math.sqrt(steps)))
        profile = pld.account(plan, grid=grid).profile
        truth = profile.epsilon(delta), profile.delta(epsilon)
        accountant = "composed privacy losses, fixed-size batches, replace-one: upper bound"
    regime = (
        "the low-sampling regime of Lemma D.7, which the theorem drops, must reach this far; at "
        f"κ = {noise:.6g} no more than ε = {truth[0]:.6g} is proved"
    )
    return result(
        "KANCorrelated26, Thm. D.9",
        noise,
        epsilon,
        delta,
        *truth,
        accountant,
        failures((truth[0] <= epsilon, regime)),
    )


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
