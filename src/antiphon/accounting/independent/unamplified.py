"""Plans as one Gaussian release: no credit for randomness in the batches."""

import math

from antiphon.accounting.account import Account, effective_noise, supported_amplitude
from antiphon.accounting.curve import GaussianProfile
from antiphon.accounting.independent.gaussian import compose_gaussians, gaussian_mu
from antiphon.errors import PlanError, UnsupportedError
from antiphon.plans import GaussianRelease, Plan

__all__ = ["account", "gaussian_parameter", "least_noise", "training_parameter"]

_ENDLESS = 1e12  # noise that leaves nothing of the training


def account(plan: Plan) -> Account:
    """Exact Gaussian accounting of any mechanism under any sampling, by its worst pattern.

    Guarantee:
        The run is μ-GDP with μ = amplitude × sensitivity / noise multiplier, the sensitivity taken over
        every pattern of steps that the sampling can give to a unit. With releases apart from the steps it
        is the larger of that μ and theirs: given the places, which no value decides, a unit's record is in
        one of the releases or in one step, and all else is a function of what was released and of other
        records; a mixture over secret places is not worse than its worst place. Without these, tight where
        the sensitivity is exact and the worst pattern is surely met by a unit (full batches, one pass in
        the given order, a recorded schedule).
    """
    mu = compose_gaussians([gaussian_parameter(plan), *_extra(plan)])
    sensitivity = plan.known_mechanism().sensitivity(plan.steps, plan.participation)
    beside = (
        f", or {_apart(plan):.6g}-GDP for a record that is apart from the steps"
        if plan.apart
        else ""
    )
    # In a shuffled order a unit meets its worst pattern only by chance.
    certain = plan.sampling.name in ("full-batch", "one-pass", "recorded")
    return Account(
        route="gaussian",
        profile=GaussianProfile(mu),
        theorem=(
            f"one Gaussian release with sensitivity {float(sensitivity):.6g} under {plan.participation}: "
            f"exactly {mu:.6g}-GDP{beside}"
        ),
        references=("BalleWang18", "Denisov22", "DongRothSu22"),
        is_tight=sensitivity.is_exact and certain and not plan.apart,
    )


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """The noise multiplier at which `account` proves (ε, δ), in closed form.

    What the releases beside training leave of μ² is the training's.
    """
    whole = gaussian_parameter(plan.with_noise(1.0))
    extra = account(plan.with_noise(1.0)).profile
    budget = gaussian_mu(epsilon, delta)
    others = max(0.0, getattr(extra, "mu", whole) ** 2 - whole**2)
    left = budget**2 - others
    if left <= 0:
        raise PlanError(
            f"the releases beside training already cost more than ε = {epsilon} at δ = {delta}."
        )
    alone = account(plan.with_noise(_ENDLESS)).profile
    if plan.apart and alone.epsilon(delta) > epsilon:
        raise PlanError(
            f"what is released apart from the steps already costs more than ε = {epsilon} at δ = {delta}."
        )
    noise = training_parameter(plan.with_noise(1.0)) / math.sqrt(left)
    while account(plan.with_noise(noise)).profile.epsilon(delta) > epsilon:
        noise *= 1 + 1e-13
    return noise


def gaussian_parameter(plan: Plan) -> float:
    """μ of the training, and of what is released apart from its steps; without what is beside it."""
    return max(training_parameter(plan), _apart(plan))


def training_parameter(plan: Plan) -> float:
    """μ of the steps alone."""
    amplitude = supported_amplitude(plan)
    sensitivity = plan.known_mechanism().sensitivity(plan.steps, plan.participation)
    return amplitude * float(sensitivity) / effective_noise(plan)


def _apart(plan: Plan) -> float:
    return max((event.mu for event in plan.apart), default=0.0)


def _extra(plan: Plan) -> list[float]:
    mus = []
    for event in plan.extra:
        if not isinstance(event, GaussianRelease):
            raise UnsupportedError(
                f"exact Gaussian accounting cannot add {event}: it is not Gaussian. The PLD accountant can."
            )
        mus.append(event.mu)
    return mus
