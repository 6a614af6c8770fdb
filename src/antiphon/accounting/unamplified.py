"""Plans as one Gaussian release: no credit for randomness in the batches."""

from antiphon.accounting.account import Account, effective_noise, supported_amplitude
from antiphon.accounting.gaussian import compose_gaussians
from antiphon.accounting.profile import GaussianProfile
from antiphon.errors import UnsupportedError
from antiphon.events import GaussianRelease
from antiphon.plan import Plan

__all__ = ["account", "gaussian_parameter"]


def account(plan: Plan) -> Account:
    """Exact Gaussian accounting of any mechanism under any sampling, by its worst pattern.

    Guarantee:
        The run is μ-GDP with μ = amplitude × sensitivity / noise multiplier, the sensitivity taken over
        every pattern of steps that the sampling can give to a unit. Tight where the sensitivity is exact
        and the worst pattern is surely met by a unit (full batches, one pass in the given order, a recorded
        schedule).
    """
    mu = compose_gaussians([gaussian_parameter(plan), *_extra(plan)])
    sensitivity = plan.known_mechanism().sensitivity(plan.steps, plan.participation)
    # In a shuffled order a unit meets its worst pattern only by chance.
    certain = plan.sampling.name in ("full-batch", "one-pass", "recorded")
    return Account(
        route="gaussian",
        profile=GaussianProfile(mu),
        theorem=(
            f"one Gaussian release with sensitivity {float(sensitivity):.6g} under {plan.participation}: "
            f"exactly {mu:.6g}-GDP"
        ),
        references=("BalleWang18", "Denisov22", "DongRothSu22"),
        is_tight=sensitivity.is_exact and certain,
    )


def gaussian_parameter(plan: Plan) -> float:
    """μ of the training alone."""
    amplitude = supported_amplitude(plan)
    sensitivity = plan.known_mechanism().sensitivity(plan.steps, plan.participation)
    return amplitude * float(sensitivity) / effective_noise(plan)


def _extra(plan: Plan) -> list[float]:
    mus = []
    for event in plan.extra:
        if not isinstance(event, GaussianRelease):
            raise UnsupportedError(
                f"exact Gaussian accounting cannot add {event}: it is not Gaussian. The PLD accountant can."
            )
        mus.append(event.mu)
    return mus
