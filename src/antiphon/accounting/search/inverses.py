"""From a noise and a budget to a plan: the most steps, the largest batch."""

import math
from collections.abc import Callable
from dataclasses import replace

from antiphon.accounting.independent.gaussian import check_delta, check_epsilon
from antiphon.accounting.monte_carlo.proved_points import is_likely, prove
from antiphon.accounting.search.registry import is_proved, sampled_routes
from antiphon.errors import PlanError, UnsupportedError
from antiphon.plans import AbstractSampling, CyclicPoisson, FixedSize, Plan, Poisson, ShuffledEpochs

__all__ = ["largest_batch", "most_steps"]


def most_steps(plan: Plan, epsilon: float, delta: float, *, tight: bool = False) -> Plan:
    """The plan with as many steps, up to its own, as its noise allows within (``epsilon``, ``delta``).

    Guarantee:
        Some accountant proves (ε, δ) for exactly the plan returned.
    """
    return _largest(
        lambda steps: replace(plan, steps=steps), plan.steps, "step", epsilon, delta, tight
    )


def largest_batch(plan: Plan, epsilon: float, delta: float, *, tight: bool = False) -> Plan:
    """The plan with as large an (expected) batch, up to n, as its noise multiplier allows.

    Guarantee:
        Some accountant proves (ε, δ) for exactly the plan returned.
    """
    sampling = plan.sampling
    make: Callable[[int], AbstractSampling]
    match sampling:
        case Poisson():
            make = lambda batch: Poisson(batch / plan.n)  # noqa: E731
        case CyclicPoisson(_, cycle):
            make = lambda batch: CyclicPoisson(min(1.0, batch * cycle / plan.n), cycle)  # noqa: E731
        case FixedSize():
            make = FixedSize
        case ShuffledEpochs(_, reshuffle):
            make = lambda batch: ShuffledEpochs(batch, reshuffle)  # noqa: E731
        case _:
            raise UnsupportedError(
                f"{sampling} has no batch size to choose. Poisson, CyclicPoisson, FixedSize and "
                "ShuffledEpochs have."
            )
    most = plan.n // sampling.cycle if isinstance(sampling, CyclicPoisson) else plan.n
    return _largest(
        lambda batch: replace(plan, sampling=make(batch)), most, "record", epsilon, delta, tight
    )


def _largest(
    make: Callable[[int], Plan], most: int, what: str, epsilon: float, delta: float, tight: bool
) -> Plan:
    """The last of ``make(1)``, ..., ``make(most)`` that fits, by bisection."""
    check_epsilon(epsilon)
    check_delta(delta)
    make(most).known_noise()
    low, high = 0, most + 1
    if _fits(make(most), epsilon, delta, tight):
        low = most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(make(middle), epsilon, delta, tight) else (low, middle)
    attempt = 0
    while low > 0 and not _proved(make(low), epsilon, delta, attempt, tight):
        low, attempt = math.floor(0.99 * low), attempt + 1
    if low == 0:
        raise PlanError(
            f"not even one {what} fits into ε = {epsilon} at δ = {delta} with this noise."
        )
    return make(low)


def _fits(plan: Plan, epsilon: float, delta: float, tight: bool) -> bool:
    """Whether a curve proves it, or Monte Carlo is likely to."""
    return _by_curve(plan, epsilon, delta) or any(
        is_likely(plan, route, epsilon, delta, tight=tight) for route in sampled_routes(plan)
    )


def _proved(plan: Plan, epsilon: float, delta: float, attempt: int, tight: bool) -> bool:
    if _by_curve(plan, epsilon, delta):
        return True
    # One route only: each further one would need a share of the failure probability.
    likely = (r for r in sampled_routes(plan) if is_likely(plan, r, epsilon, delta, tight=tight))
    route = next(likely, None)
    return (
        route is not None
        and prove(plan, route, epsilon, delta, attempt, tight=tight)[0] is not None
    )


def _by_curve(plan: Plan, epsilon: float, delta: float) -> bool:
    try:
        return is_proved(plan, epsilon, delta)
    except UnsupportedError:
        if not sampled_routes(plan):
            raise
        return False
