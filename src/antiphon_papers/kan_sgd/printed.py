"""Privacy theorems of [KANCorrelated26] as they are printed, each beside the truth."""

import math
from typing import Literal

from antiphon.accounting import (
    check_delta,
    check_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    lambda_cgd_law,
    pld_account,
)
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.participation import Relation
from antiphon.plans import FixedSize, Plan
from antiphon_papers.common.printed import Printed, check_choice, check_count, failures, result

__all__ = ["theorem_d9", "theorem_f12"]


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
        profile = pld_account(plan, grid=grid).profile
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
