"""Theorems of [ReLURegression25], and the clones behind its first."""

import math
from typing import Literal

from antiphon.accounting import (
    ACCOUNTANTS,
    AbstractProfile,
    GaussianProfile,
    check_delta,
    check_epsilon,
    gaussian_delta,
    gaussian_epsilon,
)
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.participation import Relation
from antiphon.plans import Plan, ShuffledEpochs
from antiphon_papers.common.printed import Printed, check_choice, check_count, failures, result

__all__ = ["clones_epsilon", "relu_theorem_1", "relu_theorem_3", "threshold_zcdp"]


def relu_theorem_3(
    epsilon: float,
    delta: float,
    levels: int,
    form: Literal["first", "second"] = "first",
    passes: int = 1,
) -> Printed:
    """One pass of DP-MBGLMtron, replace-one [ReLURegression25, Thm. 3].

    f = 2 sqrt(log(1/δ) + ε)/ε, or sqrt(8 log(1/δ))/ε if ε <= log(1/δ).

    Args:
        epsilon: ε.
        delta: δ.
        levels: L >= 1, the doublings of the threshold.
        form: First or second formula.
        passes: Over the data; proved for 1.

    Guarantee:
        Proved for one pass with clipping by the minimum (the maximum is printed) and disjoint blocks. The
        truth is exact: a record is in the gradient block (μ = 1/f) or in the threshold block, whose L + 1
        counts have the printed noise for L (μ = sqrt((L+1)/L)/f); the larger counts, not the sum.
        ``noise`` is f; the noise multiplier is 2f, since the paper scales by the diameter of the clip ball.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_count("passes", passes)
    check_choice("form", form, ("first", "second"))
    log = math.log(1 / delta)
    f = (2 * math.sqrt(log + epsilon) if form == "first" else math.sqrt(8 * log)) / epsilon
    mu = math.sqrt(2 * passes * threshold_zcdp(f, levels))
    return result(
        "ReLURegression25, Thm. 3",
        f,
        epsilon,
        delta,
        gaussian_epsilon(mu, delta),
        float(gaussian_delta(mu, epsilon)),
        "Gaussian, the larger of two disjoint blocks: exact",
        failures(
            (form == "first" or epsilon <= log, f"ε must be at most log(1/δ) = {log:.6f}"),
            (passes == 1, f"each record must be used in one pass, not in {passes}"),
        ),
    )


def threshold_zcdp(f: float, levels: int, noise: Literal["printed", "fixed"] = "printed") -> float:
    """ρ of the L + 1 counts of DP-Threshold, each of variance L f² or (fixed) (L + 1) f².

    Guarantee:
        Exact, and the release is sqrt(2ρ)-GDP [ReLURegression25, Alg. 2].
    """
    check_choice("noise", noise, ("printed", "fixed"))
    if not (0 < f < math.inf and levels >= 1):
        raise PlanError(
            f"f must be positive and levels at least 1; got f = {f}, levels = {levels}. Without a level "
            "the printed noise is zero."
        )
    return (levels + 1) / (2 * (levels if noise == "printed" else levels + 1) * f**2)


def relu_theorem_1(records: int, epsilon: float, delta: float, constant: float = 1.0) -> Printed:
    """One shuffled pass of DP-GLMtron, batches of one, replace-one [ReLURegression25, Thm. 1].

    f = constant × log(N/δ)/(ε sqrt(N)), if ε <= sqrt(log(N/δ)/N).

    Guarantee:
        None as printed: both constants are left open. The truth is an upper bound, that of
        the accountant ``shuffling``, never above the Gaussian answer that ignores the shuffling.
        ``noise`` is f; the noise multiplier is 2f.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if not (records >= 1 and constant > 0):
        raise PlanError(f"records and constant must be positive; got {records} and {constant}.")
    log = math.log(records / delta)
    regime = math.sqrt(log / records)
    f = constant * log / (epsilon * math.sqrt(records))
    profile: AbstractProfile = GaussianProfile(1 / f)
    if records > 1:
        plan = Plan(
            n=records,
            sampling=ShuffledEpochs(1),
            steps=records,
            mechanism=Independent(),
            relation=Relation.REPLACE_ONE,
            noise_multiplier=2 * f,
        )
        profile = ACCOUNTANTS["shuffling"].account(plan).profile
    return result(
        "ReLURegression25, Thm. 1",
        f,
        epsilon,
        delta,
        profile.epsilon(delta),
        profile.delta(epsilon),
        "one shuffled pass, Gaussian clones: upper bound",
        failures(
            (False, f"the theorem leaves its constant open; {constant:g} was taken"),
            (epsilon <= regime, f"ε must be of the order of {regime:.6f} or less, not {epsilon:g}"),
        ),
    )


def clones_epsilon(reports: int, local_epsilon: float, delta: float) -> float:
    """The closed form of ε for N shuffled ε₀-DP reports at δ [FeldmanMcMillanTalwar21, Thm. 3.1].

    log(1 + (e^ε₀ - 1)/(e^ε₀ + 1) (8 sqrt(e^ε₀ log(4/δ)/N) + 8 e^ε₀/N)).

    Guarantee:
        Proved for ε₀ <= log(N/(16 log(2/δ))), and refused beyond; `clones_delta` is several times smaller.

    Example:
        >>> round(clones_epsilon(10_000, 1.0, 1e-6), 8)
        0.21402565
    """
    check_delta(delta)
    check_count("reports", reports)
    largest = math.log(reports / (16 * math.log(2 / delta)))
    if not 0 < local_epsilon <= largest:
        raise PlanError(
            f"ε₀ must be positive and at most log(N/(16 log(2/δ))) = {largest:.6f}; got {local_epsilon}."
        )
    growth = math.exp(local_epsilon)
    spread = 8 * math.sqrt(growth * math.log(4 / delta) / reports) + 8 * growth / reports
    return math.log1p((growth - 1) / (growth + 1) * spread)
