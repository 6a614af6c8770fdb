"""A plan to start from: width, steps, batch, step size, clip norm and λ, each with its reason."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import final

from scipy.optimize import minimize_scalar

from antiphon.accounting import conditioned_noise, gaussian_mu, moments_noise
from antiphon.checks import positive, whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent, LambdaCGD
from antiphon.participation import Relation
from antiphon.plans import Plan, Poisson
from antiphon_papers.kan_sgd.theory.correlation import choose_lambda
from antiphon_papers.kan_sgd.theory.descent import (
    Descent,
    LossBound,
    ntk_comparator,
    optimization_bound,
)
from antiphon_papers.kan_sgd.theory.geometry import Bounds, Constants

__all__ = ["Advice", "Recommendation", "advise"]

# At this noise multiplier and above, the noise of a mean gradient hardly depends on the batch.
_ENOUGH = 2.0
_NARROWEST = 32  # the smallest width of the experiments with these networks


@final
@dataclass(frozen=True)
class Recommendation:
    """A value and one sentence that says why.

    Attributes:
        value: The value.
        reason: The sentence.
    """

    value: float
    reason: str


@final
@dataclass(frozen=True)
class Advice:
    """Where to start; print it to read it.

    Attributes:
        width: m, of the hidden layer.
        steps: Noisy steps, T - 1.
        batch: Expected batch size, of Poisson sampling.
        step_size: η.
        clip_norm: C.
        lam: λ.
        noise_multiplier: κ, by a quick accountant: an upper bound on what `antiphon.calibrate` finds.
        bound: What is proved of the training loss of such a run with batches of a fixed size.
    """

    width: Recommendation
    steps: Recommendation
    batch: Recommendation
    step_size: Recommendation
    clip_norm: Recommendation
    lam: Recommendation
    noise_multiplier: Recommendation
    bound: LossBound

    @property
    def is_vacuous(self) -> bool:
        """Whether the theory promises nothing here: the values are then advice and not a theorem."""
        return self.bound.is_vacuous or not self.bound.is_proved

    def plan(self, n: int, relation: Relation | str = Relation.ADD_REMOVE) -> Plan:
        """The plan without its noise: `antiphon.calibrate` finds it."""
        batch, steps = int(self.batch.value), int(self.steps.value)
        return _plan(n, batch, steps, self.lam.value, relation)

    def __str__(self) -> str:
        names = ("width", "steps", "batch", "step_size", "clip_norm", "lam", "noise_multiplier")
        rows = [(name, getattr(self, name)) for name in names]
        lines = [f"{name:16} {row.value:<10.4g} {row.reason}" for name, row in rows]
        verdict = "vacuous" if self.is_vacuous else "a promise"
        return "\n".join([*lines, f"{'theory':16} {verdict:10} {self.bound.verdict}"])


def advise(
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    *,
    margin: float | None = None,
    smoothness: float | None = None,
    intervals: int = 5,
    degree: int = 3,
    activation: str = "tanh",
    relation: Relation | str = Relation.ADD_REMOVE,
    failure: float = 0.01,
    noise: Callable[[Plan], float] | None = None,
) -> Advice:
    """Parameters to start from, for private SGD on a two-layer KAN.

    Args:
        n: Records; a public nominal size.
        d: Inputs.
        epsilon: ε of privacy.
        delta: δ of privacy.
        margin: γ, from public data or an assumption; 1, the largest the theory knows, if not given.
        smoothness: β of the loss, from `measured_smoothness` of public data; the theory's worst case if
            not given.
        intervals: Of the splines' grids.
        degree: Of the splines.
        activation: "tanh" or "sigmoid".
        relation: How neighbouring data sets differ.
        failure: Probability with which the theory may fail; not the δ of privacy.
        noise: Accountant, from a plan without noise to its κ; by default the best of two quick ones.

    Guarantee:
        None of accuracy, unless ``bound`` is proved and not vacuous. Nothing looks at the data. All
        values are public numbers, so a run with them is as private as `antiphon.certify` says.

    Example:
        >>> advice = advise(1000, 5, 1.0, 1e-5, relation="replace-one")
        >>> advice.width.value, advice.steps.value, advice.is_vacuous
        (32, 30, True)
    """
    n, d, relation = whole("n", n), whole("d", d), Relation.of(relation)
    gamma = 1.0 if margin is None else margin
    if not 0 < gamma <= 1:
        raise PlanError(f"a margin must be in (0, 1]; got {margin}.")
    width = max(_NARROWEST, math.ceil(gamma**-4))
    T, why_steps = _iterates(n, d, positive("epsilon", epsilon), gamma)
    rate = min(1.0, _ENOUGH * gaussian_mu(epsilon, delta) / math.sqrt(T - 1))
    batch = min(n, math.ceil(rate * n))
    bounds = Bounds.of(intervals, degree, activation)
    constants = Constants.tight(width, failure / 4, bounds)
    beta = constants.smoothness if smoothness is None else positive("smoothness", smoothness)
    account = noise or (lambda plan: _quick(plan, epsilon, delta))

    @cache
    def kappa(lam: float) -> float:
        return account(_plan(n, batch, T - 1, lam, relation))

    clip = constants.gradient
    start = Descent(d, width, T, batch, 1.0, clip, kappa(0.0), 0.0, bounds.basis)
    far = ntk_comparator(gamma, constants, n, T, failure / 8).distance
    run = replace(start, step_size=_best_step(start, clip, far, beta))
    for _ in range(5):
        chosen = choose_lambda(kappa, 12 * beta * run.step_size)
        moved = replace(start, lam=chosen.lam, noise_multiplier=chosen.noise_multiplier)
        run, before = replace(moved, step_size=_best_step(moved, clip, far, beta)), run
        if run == before:
            break
    known = "an assumption, as none was given" if margin is None else "as given"
    curvature = "the theory's worst case" if smoothness is None else "as measured"
    return Advice(
        width=Recommendation(
            width,
            f"Noise grows with the width, so no wider than the theory's lower end γ^-4 = {gamma**-4:.4g} "
            f"(γ = {gamma:g}, {known}; logarithms unknown), but at least {_NARROWEST}, the narrowest "
            "network of the experiments.",
        ),
        steps=Recommendation(T - 1, why_steps),
        batch=Recommendation(
            batch,
            f"About the smallest (Poisson) batch whose mean gradient is hardly noisier than that of all "
            f"records: it needs a noise multiplier of about {_ENOUGH:g} without correlation.",
        ),
        step_size=Recommendation(
            run.step_size,
            f"Balances distance against noise in the bound, up to 1/(12β) = {1 / (12 * beta):.4g} with "
            f"β = {beta:.4g}, {curvature}.",
        ),
        clip_norm=Recommendation(
            clip,
            f"No gradient is longer, except with probability {failure / 4:g} over the second layer (the "
            f"paper's G_δ is {Constants.printed(width, failure / 4, bounds).gradient:.4g}); once that is "
            "drawn, Constants.drawn(model).gradient is sharper.",
        ),
        lam=Recommendation(
            run.lam,
            f"Of five values, the one with the least κ²((1 - λ)² + aλ²) for a = 12βη = "
            f"{12 * beta * run.step_size:.3g}: {chosen.gain:.3g} of the noise term without correlation.",
        ),
        noise_multiplier=Recommendation(
            run.noise_multiplier,
            f"Enough for ε = {epsilon:g} at δ = {delta:g} ({relation}); `calibrate` may find less.",
        ),
        bound=optimization_bound(run, constants, gamma, n, failure / 2),
    )


def _iterates(n: int, d: int, epsilon: float, gamma: float) -> tuple[int, str]:
    """T of Corollary 5.3, and why."""
    root, noisy = math.sqrt(n) / gamma, n * epsilon * gamma**2 / math.sqrt(d)
    why = "sqrt(n)/γ" if root <= noisy else "nεγ²/sqrt(d), where noise is the limit"
    reason = f"Corollary 5.3 stops at {why}; its constant is unknown and taken as 1."
    return max(2, math.floor(min(root, noisy))), reason


def _best_step(run: Descent, gradient: float, far: float, beta: float) -> float:
    """Minimises distance, batches and noise in the explicit bound, for η <= 1/(12β)."""
    batches = 2 * gradient**2 / run.batch
    noise = run.noise**2 * run.parameters

    def loss(log_step: float) -> float:
        eta = math.exp(log_step)
        share = (1 - run.lam) ** 2 + 12 * beta * eta * run.lam**2
        return 3 * far**2 / (eta * run.iterates) + 6 * eta * batches + 3 * eta * share * noise

    top = -math.log(12 * beta)
    found = minimize_scalar(loss, bounds=(top - 30, top), method="bounded", options={"xatol": 1e-4})
    return min(1 / (12 * beta), math.exp(min((float(found.x), top), key=loss)))


def _plan(n: int, batch: int, steps: int, lam: float, relation: Relation | str) -> Plan:
    mechanism = LambdaCGD(lam) if lam else Independent()
    sampling = Poisson(rate=batch / n)
    return Plan(n=n, sampling=sampling, steps=steps, mechanism=mechanism, relation=relation)


def _quick(plan: Plan, epsilon: float, delta: float) -> float:
    """The least noise by two deterministic accountants, the same two for every λ."""
    noises, refusals = [], []
    for least_noise in (moments_noise, conditioned_noise):
        try:
            noises.append(least_noise(plan, epsilon, delta))
        except UnsupportedError as refusal:
            refusals.append(str(refusal))
    if not noises:
        raise UnsupportedError("no quick accountant can bound this plan. " + " ".join(refusals))
    return min(noises)
