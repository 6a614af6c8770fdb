"""Settings to start from for a private ReLU neuron, each with its reason."""

import math
from dataclasses import dataclass
from typing import final

from antiphon.accounting import gaussian_mu
from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.participation import Relation
from antiphon_papers.relu.theory.leading import LeadingRisk, full_batch_risk, one_pass_risk
from antiphon_papers.relu.theory.lower import LowerBound, theorem_7
from antiphon_papers.relu.theory.moments import average_bias, window
from antiphon_papers.relu.theory.problem import Problem

__all__ = ["Advice", "Recommendation", "advise"]

_FEWEST = 20  # steps: room for the tail average to forget the start, also with hard clipping
_MOST = 10_000
_LEFT = 0.1  # of the expected risk may be the start's


@final
@dataclass(frozen=True)
class Recommendation:
    """A value and one sentence that says why.

    Attributes:
        value: The value.
        reason: The sentence.
    """

    value: float | str
    reason: str


@final
@dataclass(frozen=True)
class Advice:
    """Where to start; print it to read it.

    Attributes:
        method: Of `PrivateReLURegressor`.
        steps: T.
        step_size: η.
        clip_norm: s.
        average: Of the iterates.
        noise_multiplier: For (ε, δ), exactly, by Gaussian accounting of all T steps.
        expected: The risk to leading order: an estimate, as if nothing were clipped.
        one_pass: The same for one pass in as few steps as forget the start, beside it.
        lower: What no private algorithm can beat on the worst distribution of its class.
    """

    method: Recommendation
    steps: Recommendation
    step_size: Recommendation
    clip_norm: Recommendation
    average: Recommendation
    noise_multiplier: Recommendation
    expected: LeadingRisk
    one_pass: LeadingRisk
    lower: LowerBound

    def __str__(self) -> str:
        names = ("method", "steps", "step_size", "clip_norm", "average", "noise_multiplier")
        rows = [(name, getattr(self, name)) for name in names]
        shown = [
            (name, row.value if isinstance(row.value, str) else f"{row.value:.4g}", row.reason)
            for name, row in rows
        ]
        lines = [f"{name:16} {value:<10} {reason}" for name, value, reason in shown]
        risk = (
            f"{self.expected.labels:.3g} by labels and {self.expected.privacy:.3g} by privacy, to leading "
            f"order; {self.one_pass.value:.3g} in one pass."
        )
        return "\n".join(
            [
                *lines,
                f"{'expected risk':16} {self.expected.value:<10.3g} {risk}",
                f"{'lower bound':16} {self.lower.risk:<10.3g} {self.lower.verdict}",
            ]
        )


def advise(
    n: int,
    d: int,
    epsilon: float,
    delta: float | None = None,
    *,
    condition_number: float = 1.0,
    largest_eigenvalue: float = 1.0,
    label_noise: float = 0.5,
    signal: float = 1.0,
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Advice:
    """Settings to start from, for a private ReLU neuron without intercept.

    Args:
        n: Records; a public nominal size.
        d: Inputs.
        epsilon: ε of privacy.
        delta: δ of privacy; n^-1.1 if not given.
        condition_number: κ of E[x xᵀ], from public knowledge; 1 for whitened inputs.
        largest_eigenvalue: λ_max of E[x xᵀ]; 1 for standardised inputs without correlation.
        label_noise: σ, from public knowledge.
        signal: ‖w*‖_H, from public knowledge.
        relation: How neighbouring data sets differ.

    Guarantee:
        None of accuracy: the expected risk is an estimate. Nothing looks at the data. All values are public
        numbers, and a full-batch run with them is (ε, δ)-private as `antiphon.certify` says.

    Example:
        >>> advice = advise(16_000, 10, 0.5, relation="replace-one")
        >>> advice.method.value, advice.steps.value, advice.average.value
        ('full-batch', 20, 'tail')
        >>> advice.expected.value < advice.one_pass.value / 3
        True
    """
    n, d, relation = whole("n", n), whole("d", d), Relation.of(relation)
    delta = n**-1.1 if delta is None else delta
    kappa, high = condition_number, positive("largest_eigenvalue", largest_eigenvalue)
    if not kappa >= 1:
        raise PlanError(f"a condition number is at least 1; got {kappa}.")
    problem = _like(
        d, kappa, high, positive("label_noise", label_noise), positive("signal", signal)
    )
    mu = gaussian_mu(epsilon, delta)
    clip = label_noise * math.sqrt(problem.trace)
    once = relation.amplitude / mu
    expected = full_batch_risk(problem, n, 1, once, clip)
    steps = _steps(kappa, _LEFT * expected.value / problem.start_risk)
    few = max(5, steps // 2)
    return Advice(
        method=Recommendation(
            "full-batch",
            "To leading order the noise of T steps on all records costs no more than that of one, while "
            "one pass pays for every step; batches of one under shuffling never compete.",
        ),
        steps=Recommendation(
            steps,
            f"As few as leave less than a tenth of the expected risk to the start (κ = {kappa:g}), at "
            f"least {_FEWEST}; more steps cost time and no privacy.",
        ),
        step_size=Recommendation(
            1 / high,
            "1/λ_max: the mean iterate nears w* by the factor 1 - ηλ/2 in each direction; Theorem 2's step "
            "is thousands of times too short to learn anything.",
        ),
        clip_norm=Recommendation(
            clip,
            f"σ sqrt(tr H), a usual direction at w*: clipping hard costs less than noise for directions "
            f"that are rare; nothing would be clipped at about {_unclipped(problem):.3g}.",
        ),
        average=Recommendation(
            "tail",
            "The second half: the full average keeps a share of about 1/T² of the start, the last iterate "
            "has the noise of single steps.",
        ),
        noise_multiplier=Recommendation(
            once * math.sqrt(steps),
            f"{'2 ' if relation.amplitude == 2 else ''}sqrt(T)/μ(ε, δ), exactly enough for ε = {epsilon:g} "
            f"at δ = {delta:.3g} ({relation}).",
        ),
        expected=expected,
        one_pass=one_pass_risk(problem, n, few, 2 / mu, clip),
        lower=theorem_7(n, d, label_noise, epsilon, delta),
    )


def _like(d: int, kappa: float, high: float, label_noise: float, signal: float) -> Problem:
    """A problem with eigenvalues spread evenly in their logarithms, and the signal evenly over them."""
    spectrum = [high / kappa ** (i / max(1, d - 1)) for i in range(d)]
    return Problem([signal / math.sqrt(d * lam) for lam in spectrum], label_noise, spectrum)


def _unclipped(problem: Problem) -> float:
    """One and a half times a usual norm at a residual of 1: the clip norm of the specification's tables."""
    return 1.5 * math.sqrt(problem.trace * (problem.label_noise**2 + problem.signal**2 * 0.75))


def _steps(kappa: float, left: float) -> int:
    """The fewest steps whose tail average keeps at most a share ``left`` of the start."""
    q, steps = 1 - 0.5 / kappa, _FEWEST
    while average_bias(q, *window("tail", steps)) > left and steps < _MOST:
        steps += max(1, steps // 10)
    return steps
