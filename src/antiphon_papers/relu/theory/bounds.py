"""Upper bounds on the risk: Theorems 2 and 4 of [ReLURegression25], repaired and as printed.

What is repaired: the contraction (Lemmas 12 and 17 claim I - ηH where only a part of it holds), the sums of
geometric series (a factor 2) and of averages (4/(ηK²)), M∘H⁻¹ <= α d ‖H‖ I (the printed α tr(H) fails for
anisotropic H), tr(H⁻¹) where tr(H) is printed, and a tail average, without which the start's share falls
as 1/T² only.
"""

import math
from dataclasses import dataclass
from typing import final

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon_papers.common.condition import Condition
from antiphon_papers.relu.theory.moments import Descent, average_bias, window
from antiphon_papers.relu.theory.problem import Problem

__all__ = [
    "PaperConstants",
    "RiskBound",
    "largest_clip_norm",
    "norm_bound",
    "theorem_2",
    "theorem_2_printed",
    "theorem_2_step",
    "theorem_4",
    "theorem_4_printed",
]

_UNCLIPPED = (
    "the bound is on the mean risk of the run without clipping, which the run equals whenever no direction "
    "is longer than its clip norm"
)
_SYMMETRIC = (
    "Assumption 3 and a well-specified model: `check_assumptions` looks for evidence against them"
)
_POLY = "1/poly(N) terms, taken as 0"


@final
@dataclass(frozen=True)
class RiskBound:
    """A theorem on the excess risk at given numbers.

    Attributes:
        theorem: Where it stands.
        terms: What adds up to it, by name.
        trivial: The excess risk of w = 0.
        conditions: Its hypotheses, one by one.
        is_explicit: Whether every constant is known; otherwise the value is a rate with constants of 1.
        unproved: What is missing in its proof, or cannot be checked here.
    """

    theorem: str
    terms: tuple[tuple[str, float], ...]
    trivial: float
    conditions: tuple[Condition, ...]
    is_explicit: bool = True
    unproved: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The sum of the terms; infinite where a condition without which it makes no sense fails."""
        return math.fsum(value for _, value in self.terms)

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(c for c in self.conditions if not c.holds)

    @property
    def is_guarantee(self) -> bool:
        """Whether ``value`` is proved here, up to what ``unproved`` lists."""
        return self.is_explicit and not self.failed

    @property
    def is_vacuous(self) -> bool:
        """Whether it says no more than that nothing was learned."""
        return not self.value < self.trivial

    @property
    def verdict(self) -> str:
        """One sentence on what the number is worth."""
        if self.failed:
            worst = max(self.failed, key=lambda c: c.factor)
            return f"not proved here: {worst.name} fails by a factor of {worst.factor:.3g}"
        if not self.is_explicit:
            return "a rate with unknown constants: no guarantee"
        return "proved, but vacuous" if self.is_vacuous else "proved"

    def with_probability(self, failure: float) -> float:
        """A bound that fails with probability at most ``failure``, by Markov's inequality."""
        if not 0 < failure <= 1:
            raise PlanError(f"failure is a probability, in (0, 1]; got {failure}.")
        return self.value / failure


@final
@dataclass(frozen=True)
class PaperConstants:
    """What the paper's parameters need and its text leaves open; all 1 or usual unless given.

    Attributes:
        tail: C₂ of Definition 3; with the bound 2 that its exponential moment needs, C₂² = 8/3 for
            Gaussians.
        power: a of Definition 3; 1/2 for sub-Gaussian inputs.
        failure: b_x, a power of 1/N; 1/N unless given.
        step: c₁ of Theorem 2's step size.
    """

    tail: float = 1.0
    power: float = 0.5
    failure: float | None = None
    step: float = 1.0

    def log(self, n: int, times: float) -> float:
        """log^(times · a) N."""
        return math.log(n) ** (times * self.power)


def norm_bound(problem: Problem, n: int, constants: PaperConstants | None = None) -> float:
    """R_x² = α tr(H) log^2a(1/b_x), above ‖x‖² except with probability b_x.

    It follows from Definition 3 and α >= 1, and not from Assumption 2 alone; for Gaussians with d >= 2 and
    b_x <= 1/4 it holds.
    """
    c = constants or PaperConstants()
    failure = 1 / whole("n", n) if c.failure is None else c.failure
    if not 0 < failure < 1:
        raise PlanError(f"b_x must be in (0, 1); got {failure}.")
    return problem.alpha * problem.trace * math.log(1 / failure) ** (2 * c.power)


def largest_clip_norm(problem: Problem, n: int, constants: PaperConstants | None = None) -> float:
    """Γ, above E[s_t²]^½ of the adaptive clip norm [ReLURegression25, Lemma 13], with Δ as 0.

    2 C₂ R_x log^2a N · sqrt(κ ‖w*‖_H² + σ² + ‖w*‖²).
    """
    c = constants or PaperConstants()
    inside = problem.condition_number * problem.signal**2 + problem.label_noise**2
    inside += float(problem.target @ problem.target)
    root = math.sqrt(norm_bound(problem, n, c))
    return 2 * c.tail * root * c.log(n, 2) * math.sqrt(inside)


def theorem_4(problem: Problem, run: Descent) -> RiskBound:
    """The mean risk of one pass of mini-batch GLMtron, averaged [ReLURegression25, Thm. 4], repaired.

    With D₁ = 1 - (η/b)(½α tr H + (b-1)‖H‖/4), D₂ = 1 - (η/b)‖H‖(½αd + (b-1)/4), μ = λ_min and an average of
    K iterates from t₀ on, ½E‖w̄ - w*‖_H² is at most the sum of

    - labels: 2 σ²d/(b K D₁);
    - privacy: 2 ν² tr(H⁻¹)/(K D₂);
    - start: 2 ‖w*‖² (1 - ηD₁μ)^t₀/(η² D₁ μ K²).

    Args:
        problem: What is learned.
        run: How; its noise is that of the largest clip norm, if that moves.

    Guarantee:
        Proved in expectation for a well-specified model under Assumptions 2 and 3, if ``conditions`` hold
        and nothing is clipped: D₁ and D₂ make aI + cH⁻¹ an upper bound that the recursion of
        `second_moments` keeps. For the last iterate the same with K = 1 would be loose; it is refused.

    Example:
        >>> problem = Problem([1.0] + [0.0] * 9, label_noise=0.5)
        >>> bound = theorem_4(problem, Descent(steps=20, batch=800, step_size=1.0, noise=0.02))
        >>> bound.verdict, round(bound.value, 4)
        ('proved', 0.0019)
    """
    return _repaired("ReLURegression25, Thm. 4, repaired", problem, run)


def theorem_2(
    problem: Problem, n: int, step_size: float, noise_multiplier: float, clip_norm: float
) -> RiskBound:
    """The mean risk of DP-GLMtron: batches of one, full average [ReLURegression25, Thm. 2], repaired.

    `theorem_4` with b = 1 and T = N. The start's share is of order ‖w*‖²/(η²N²), and not 1/poly(N).

    Args:
        problem: What is learned.
        n: N.
        step_size: η.
        noise_multiplier: Ours, 2f.
        clip_norm: The largest that is used.

    Guarantee:
        That of `theorem_4`.
    """
    noise = noise_multiplier * positive("clip_norm", clip_norm)
    run = Descent(whole("n", n), 1, step_size, noise, "full")
    return _repaired("ReLURegression25, Thm. 2, repaired", problem, run)


def theorem_2_step(
    problem: Problem, n: int, f: float, constants: PaperConstants | None = None
) -> float:
    """η of Theorem 2: min{1/(2R_x²), c₁/(log^4a N · C₂² R_x² κ² d f²)}; f is the paper's.

    Example:
        >>> problem = Problem([1.0] + [0.0] * 9, label_noise=0.5)
        >>> f = math.log(16_512**2.1) / (0.05 * math.sqrt(16_512))
        >>> round(theorem_2_step(problem, 16_512, f) * 16_512 / 2, 3)  # steps times η/2: nothing is learned
        0.003
    """
    c = constants or PaperConstants()
    squared = norm_bound(problem, n, c)
    slow = c.log(n, 4) * c.tail**2 * squared * problem.condition_number**2 * problem.d
    return min(1 / (2 * squared), c.step / (slow * positive("f", f) ** 2))


def theorem_2_printed(
    problem: Problem,
    n: int,
    epsilon: float,
    delta: float,
    constants: PaperConstants | None = None,
) -> RiskBound:
    """The rate of [ReLURegression25, Thm. 2] as printed, with constants of 1.

    Guarantee:
        None. The proof has log²(N/δ) for the printed log N log(1/δ), and a start's share of ‖w*‖²/(ηN)
        instead of 1/poly(N); it needs ε <= sqrt(log(N/δ)/N), where the private term dominates.
    """
    c = constants or PaperConstants()
    n, epsilon, delta = _budget(n, epsilon, delta)
    f = math.log(n / delta) / (epsilon * math.sqrt(n))
    step = theorem_2_step(problem, n, f, c)
    moved = step * n * float(problem.spectrum[0]) / 2
    conditions = (
        Condition.at_most("ε <= sqrt(log(N/δ)/N)", epsilon, math.sqrt(math.log(n / delta) / n)),
        Condition.at_least("way of the mean iterate, Nηλ_min/2 >= log N", moved, math.log(n)),
    )
    return RiskBound(
        "ReLURegression25, Thm. 2, as printed",
        _printed_terms(problem, n, epsilon, delta, c),
        problem.start_risk,
        conditions,
        is_explicit=False,
        unproved=(_POLY, "suppressed constants, and log^4a N in Γ²", _SYMMETRIC),
    )


def theorem_4_printed(
    problem: Problem,
    n: int,
    epsilon: float,
    delta: float,
    constants: PaperConstants | None = None,
    levels: int = 10,
) -> RiskBound:
    """The rate of [ReLURegression25, Thm. 4] as printed, with constants of 1.

    η = 1/R_x², T = κ log N, m = b/10, all iterates averaged.

    Args:
        problem: What is learned.
        n: N.
        epsilon: ε.
        delta: δ.
        constants: What the paper leaves open.
        levels: L of the threshold.

    Guarantee:
        None. Its step and its T do not go together: most of the initial risk remains, even in the last
        iterate. Two conditions stand in the proof alone or nowhere.
    """
    c = constants or PaperConstants()
    n, epsilon, delta = _budget(n, epsilon, delta)
    H, kappa, low = problem.covariance, problem.condition_number, float(problem.spectrum[0])
    squared = norm_bound(problem, n, c)
    eta, steps = 1 / squared, max(1, math.ceil(kappa * math.log(n)))
    batch = n / steps / 1.1
    f = math.sqrt(8 * math.log(1 / delta)) / epsilon
    needed = 32 * eta * f**2 * c.tail**2 * squared * kappa * c.log(n, 4) * float(H.trace()) / low
    slack = f * math.sqrt(2 * (levels + 1) * math.log((levels + 1) * n))
    q = 1 - eta * low / 2
    conditions = (
        Condition.at_least(
            "batch of the proof, b² >= 32ηf²C₂²R_x²κ log^4a N tr(H)/λ_min", batch**2, needed
        ),
        Condition.at_least("threshold batch m against 4Λ", batch / 10, 4 * slack),
        Condition.at_most("what is left of the start in the last iterate", q ** (2 * steps), 1 / n),
        Condition.at_most(
            "what is left of the start in the full average", average_bias(q, 0, steps), 1 / n
        ),
    )
    return RiskBound(
        "ReLURegression25, Thm. 4, as printed",
        _printed_terms(problem, n, epsilon, delta, c),
        problem.start_risk,
        conditions,
        is_explicit=False,
        unproved=(_POLY, "suppressed constants, and log^4a N in Γ²", _SYMMETRIC),
    )


def _repaired(theorem: str, problem: Problem, run: Descent) -> RiskBound:
    if run.average == "last":
        raise PlanError("the theorems are about averages; take average='tail' or 'full'.")
    first, end = window(run.average, run.steps)
    K, eta, b = end - first, run.step_size, run.batch
    low, high = float(problem.spectrum[0]), float(problem.spectrum[-1])
    others = (b - 1) / 4 * high
    D1 = 1 - eta / b * (problem.alpha * problem.trace / 2 + others)
    D2 = 1 - eta / b * (problem.alpha * problem.d * high / 2 + others)
    conditions = (
        Condition.at_most("step size, ηλ_max <= 2", eta * high, 2.0),
        Condition.at_most("contraction, 1 - D₁ < 1", 1 - D1, math.nextafter(1, 0)),
        Condition.at_most("noise in weak directions, 1 - D₂ < 1", 1 - D2, math.nextafter(1, 0)),
    )
    if not all(c.holds for c in conditions):
        terms = (("labels", math.inf), ("privacy", math.inf), ("start", math.inf))
    else:
        start = float(problem.target @ problem.target)
        kept = (1 - eta * D1 * low) ** first if eta * D1 * low < 1 else float(first == 0)
        terms = (
            ("labels", 2 * problem.label_noise**2 * problem.d / (b * K * D1)),
            ("privacy", 2 * run.noise**2 * problem.inverse_trace / (K * D2)),
            ("start", 2 * start * kept / (eta**2 * D1 * low * K**2)),
        )
    return RiskBound(
        theorem, terms, problem.start_risk, conditions, unproved=(_UNCLIPPED, _SYMMETRIC)
    )


def _printed_terms(
    problem: Problem, n: int, epsilon: float, delta: float, c: PaperConstants
) -> tuple[tuple[str, float], ...]:
    d, size = problem.d, problem.label_noise**2 + problem.signal**2
    private = d**2 * math.log(n) * math.log(1 / delta) / (n * epsilon) ** 2
    return (
        ("labels", problem.label_noise**2 * d / n),
        ("privacy", private * (c.tail * problem.condition_number) ** 2 * size),
    )


def _budget(n: int, epsilon: float, delta: float) -> tuple[int, float, float]:
    if not 0 < delta < 1:
        raise PlanError(f"δ must lie strictly between 0 and 1; got {delta}.")
    return whole("n", n), positive("epsilon", epsilon), float(delta)
