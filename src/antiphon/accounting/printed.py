"""The papers' privacy theorems as they are printed, each beside the truth.

For comparison only: nothing here calibrates a run. A result holds the noise that a theorem asks for, the
conditions under which it is proved, and the ε of that noise by an accountant that is proved. Where a
condition fails, the number still comes, with a `PrintedTheoremWarning`.

- [KANCorrelated26]: `theorem_f12` (in the main text 5.1), `theorem_d9` (in the main text 5.4)
- [KANGradientDescent26]: `theorem_4_14`, with the constants of its two blocks
- [ReLURegression25]: `relu_theorem_1`, `relu_theorem_3`, `threshold_zcdp`
- [CNNGradientDescent26]: `cnn_lemma_39`
- [FeldmanMcMillanTalwar21]: `clones_epsilon`
- [BunSteinke16], [CorrelatedNoise24]: zCDP to (ε, δ)
"""

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, final

from scipy.optimize import minimize_scalar

from antiphon.accounting import pld, shuffling
from antiphon.accounting.gaussian import (
    check_delta,
    check_epsilon,
    gaussian_delta,
    gaussian_epsilon,
)
from antiphon.accounting.lambda_energy import lambda_cgd_law
from antiphon.accounting.profile import AbstractProfile, GaussianProfile
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.plan import Plan
from antiphon.relations import Relation
from antiphon.sampling import FixedSize, ShuffledEpochs

__all__ = [
    "Printed",
    "PrintedTheoremWarning",
    "bun_steinke_epsilon",
    "clones_epsilon",
    "cnn_lemma_39",
    "kan_block_constants",
    "relu_theorem_1",
    "relu_theorem_3",
    "sharp_zcdp_epsilon",
    "theorem_4_14",
    "theorem_d9",
    "theorem_f12",
    "threshold_zcdp",
]


class PrintedTheoremWarning(UserWarning):
    """A printed theorem was evaluated outside the conditions under which it is proved."""


@final
@dataclass(frozen=True)
class Printed:
    """A theorem at given parameters.

    Attributes:
        theorem: Where it stands.
        noise: The noise it asks for (or, where it states an ε, the noise it was given), in the unit of
            the function that made this.
        claimed_epsilon: The ε it promises, at ``delta``.
        delta: δ.
        true_epsilon: What an accountant proves for this noise at ``delta``.
        true_delta: What it proves at ``claimed_epsilon``.
        accountant: Which one, and whether the two numbers are exact or upper bounds.
        failed: The conditions that do not hold, in words.
    """

    theorem: str
    noise: float
    claimed_epsilon: float
    delta: float
    true_epsilon: float
    true_delta: float
    accountant: str
    failed: tuple[str, ...] = ()

    @property
    def conditions_hold(self) -> bool:
        """Whether the theorem is proved here."""
        return not self.failed

    @property
    def is_confirmed(self) -> bool:
        """Whether the accountant proves the promise, whatever the theorem's conditions."""
        return self.true_epsilon <= self.claimed_epsilon


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
    _check_choice("constant", constant, (2, 8))
    law = lambda_cgd_law(lam, rate, steps)
    epochs, needed = rate * steps, 3 * math.log(2 / delta)
    count = epochs + math.sqrt(epochs * needed)
    gain = (1 - lam**steps) / (1 - lam)
    noise = gain * math.sqrt(constant * count * math.log(2.5 / delta)) / epsilon
    failed = _failures(
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
    return _result(
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
    _check_count("steps", steps)
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
    return _result(
        "KANCorrelated26, Thm. D.9",
        noise,
        epsilon,
        delta,
        *truth,
        accountant,
        _failures((truth[0] <= epsilon, regime)),
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
    _check_count("steps", steps)
    _check_choice("form", form, ("printed", "corrected"))
    needed = 2 * math.log(2 / delta)
    used = needed if form == "corrected" else math.log(2 * steps / delta)
    mu = epsilon / math.sqrt(epsilon + used)
    left = delta if is_norm_measured else delta / 2
    proved = epsilon / 2 * (epsilon + needed) / (epsilon + used) + epsilon / 2
    return _result(
        f"KANGradientDescent26, Thm. 4.14, {form}",
        math.sqrt(2 * steps) / mu,
        epsilon,
        delta,
        gaussian_epsilon(mu, left),
        float(gaussian_delta(mu, epsilon)) + (delta - left),
        "Gaussian, both blocks: exact",
        _failures(
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
    _check_count("width", width)
    _check_count("basis", basis)
    if not 0 < radius < math.inf:
        raise PlanError(f"radius must be positive and finite; got {radius}.")
    log = math.log(2 / delta)
    forms = {
        "main text": (2 * math.sqrt(log + radius), slope * largest),
        "proof of 4.14": (log + radius, slope * largest),
        "proof of D.12": (2 * math.sqrt(log) + radius, slope),
        "corrected": (2 * math.sqrt(log) + radius, slope * largest),
    }
    _check_choice("form", form, tuple(forms))
    extra, prefactor = forms[form]
    reach = 4 * math.sqrt(basis) + extra / math.sqrt(width)
    return 8 * (prefactor * basis * reach) ** 2, 8 * largest**2 * basis


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
    _check_count("passes", passes)
    _check_choice("form", form, ("first", "second"))
    log = math.log(1 / delta)
    f = (2 * math.sqrt(log + epsilon) if form == "first" else math.sqrt(8 * log)) / epsilon
    mu = math.sqrt(2 * passes * threshold_zcdp(f, levels))
    return _result(
        "ReLURegression25, Thm. 3",
        f,
        epsilon,
        delta,
        gaussian_epsilon(mu, delta),
        float(gaussian_delta(mu, epsilon)),
        "Gaussian, the larger of two disjoint blocks: exact",
        _failures(
            (form == "first" or epsilon <= log, f"ε must be at most log(1/δ) = {log:.6f}"),
            (passes == 1, f"each record must be used in one pass, not in {passes}"),
        ),
    )


def threshold_zcdp(f: float, levels: int, noise: Literal["printed", "fixed"] = "printed") -> float:
    """ρ of the L + 1 counts of DP-Threshold, each of variance L f² or (fixed) (L + 1) f².

    Guarantee:
        Exact, and the release is sqrt(2ρ)-GDP [ReLURegression25, Alg. 2].
    """
    _check_choice("noise", noise, ("printed", "fixed"))
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
        `antiphon.accounting.shuffling`, never above the Gaussian answer that ignores the shuffling.
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
        profile = shuffling.account(plan).profile
    return _result(
        "ReLURegression25, Thm. 1",
        f,
        epsilon,
        delta,
        profile.epsilon(delta),
        profile.delta(epsilon),
        "one shuffled pass, Gaussian clones: upper bound",
        _failures(
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
    _check_count("reports", reports)
    largest = math.log(reports / (16 * math.log(2 / delta)))
    if not 0 < local_epsilon <= largest:
        raise PlanError(
            f"ε₀ must be positive and at most log(N/(16 log(2/δ))) = {largest:.6f}; got {local_epsilon}."
        )
    growth = math.exp(local_epsilon)
    spread = 8 * math.sqrt(growth * math.log(4 / delta) / reports) + 8 * growth / reports
    return math.log1p((growth - 1) / (growth + 1) * spread)


def cnn_lemma_39(
    noise: float,
    n: int,
    width: int,
    steps: int,
    signal: float,
    patch: float,
    dimension: int,
    delta: float,
    form: Literal["printed", "corrected", "exact"] = "printed",
    relation: Relation | str = Relation.REPLACE_ONE,
    is_clipped: bool = False,
) -> Printed:
    """Full-batch noisy descent on a two-layer CNN [CNNGradientDescent26, Lem. 39].

    ε = A + 2 sqrt(A log(2/δ)), the best of its orders, with A = T V/(σ² n² m): V = 2‖μ‖² + 3 σ_p² d as
    printed; corrected, ‖μ‖² + 6 σ_p² d for replace-one and ‖μ‖² + 1.5 σ_p² d for zero-out.

    Args:
        noise: σ_b, the standard deviation of the noise on each coordinate of the mean gradient.
        n: Number of records.
        width: m, filters per class.
        steps: T.
        signal: ‖μ‖.
        patch: σ_p, standard deviation of the noise patch per coordinate.
        dimension: d.
        delta: δ.
        form: Whose ε is claimed; "exact" is the Gaussian answer with the corrected constant.
        relation: The paper's is replace-one.
        is_clipped: Noise patches are clipped to a norm of sqrt(1.5 d) σ_p, a public constant.

    Guarantee:
        Without clipping no (ε, δ) holds: the bound on the patches is a probability over the data, while
        neighbours are arbitrary. With it, the truth is exact: μ_G = sqrt(2TV/m)/(n σ_b).
    """
    check_delta(delta)
    relation = Relation.of(relation)
    _check_choice("form", form, ("printed", "corrected", "exact"))
    positive, others = (noise, n, width, steps, dimension), (signal, patch)
    if not (all(0 < x < math.inf for x in positive) and all(0 <= x < math.inf for x in others)):
        raise PlanError(
            "noise, n, width, steps and dimension must be positive, signal and patch non-negative; got "
            f"{positive} and {others}."
        )
    spread = patch**2 * dimension
    V = signal**2 + (6 if relation is Relation.REPLACE_ONE else 1.5) * spread
    mu = math.sqrt(2 * steps * V / width) / (n * noise)
    A = (2 * signal**2 + 3 * spread if form == "printed" else V) * steps / (noise * n) ** 2 / width
    truth = gaussian_epsilon(mu, delta)
    claimed = A + 2 * math.sqrt(A * math.log(2 / delta)) if form != "exact" else truth
    return _result(
        f"CNNGradientDescent26, Lem. 39, {form}",
        noise,
        claimed,
        delta,
        truth,
        float(gaussian_delta(mu, claimed)),
        f"Gaussian, {relation}, patches of norm at most sqrt(1.5 d) σ_p: exact",
        _failures(
            (is_clipped, "patches must be clipped: a bound on average says nothing on neighbours"),
            (
                form != "printed" or relation is not Relation.REPLACE_ONE or spread == 0,
                "the printed constant bounds one example's gradient, not the difference of two",
            ),
        ),
    )


def bun_steinke_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP at δ: ρ + 2 sqrt(ρ log(1/δ)) [BunSteinke16, Prop. 1.3].

    Example:
        >>> round(bun_steinke_epsilon(0.5, 1e-5), 8)
        5.29852591
    """
    check_delta(delta)
    _check_rho(rho)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def sharp_zcdp_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP at δ: the best order of the sharp conversion [CorrelatedNoise24, App. A.2].

    Guarantee:
        Every order gives a bound, so an imperfect minimum is one too. Still not tight for Gaussian noise:
        `gaussian_epsilon` of μ = sqrt(2ρ) is.

    Example:
        >>> round(sharp_zcdp_epsilon(0.5, 1e-5), 8)
        4.72838698
    """
    check_delta(delta)
    _check_rho(rho)

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α - 1
        log_order = math.log1p(excess)
        return rho * (1 + excess) - (log_order + math.log(delta)) / excess + log_excess - log_order

    best = math.log(math.log(1 / delta) / rho) / 2  # the minimum without the two small terms
    found = minimize_scalar(
        bound, bounds=(best - 5, best + 5), method="bounded", options={"xatol": 1e-10}
    )
    return max(0.0, min(float(found.fun), bound(best)))


def _failures(*conditions: tuple[bool, str]) -> tuple[str, ...]:
    return tuple(words for holds, words in conditions if not holds)


def _result(
    theorem: str,
    noise: float,
    claimed_epsilon: float,
    delta: float,
    true_epsilon: float,
    true_delta: float,
    accountant: str,
    failed: Iterable[str],
) -> Printed:
    """The result, with a warning to the caller's caller if a condition fails."""
    result = Printed(
        theorem,
        noise,
        claimed_epsilon,
        delta,
        true_epsilon,
        true_delta,
        accountant,
        tuple(failed),
    )
    if not result.conditions_hold:
        warnings.warn(
            f"{theorem} is not proved here: {'; '.join(result.failed)}. By the accountant "
            f"({accountant}) this noise has ε = {true_epsilon:.6g} at δ = {delta:g}.",
            PrintedTheoremWarning,
            stacklevel=3,
        )
    return result


def _check_count(what: str, value: int) -> None:
    if not value >= 1:
        raise PlanError(f"{what} must be at least 1; got {value}.")


def _check_choice(what: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise PlanError(f"{what} is one of {', '.join(map(repr, allowed))}; got {value!r}.")


def _check_rho(rho: float) -> None:
    if not 0 < rho < math.inf:
        raise PlanError(f"ρ must be positive and finite; got {rho}.")
