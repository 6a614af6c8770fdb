"""From a budget to a plan: the least noise that is certified for it."""

import math
from collections.abc import Callable
from dataclasses import replace

from scipy.optimize import brentq

from antiphon.accounting import conditioned_route, pld, shuffling
from antiphon.accounting.gaussian import check_delta, check_epsilon, gaussian_mu
from antiphon.accounting.routes import ROUTES, best_account
from antiphon.accounting.unamplified import gaussian_parameter
from antiphon.errors import PlanError, UnsupportedError
from antiphon.plan import Plan

__all__ = ["calibrate", "most_steps"]

_COARSE = 1e-3
# Noise found is at most this much above the least that its accountant would certify.
_SLACK = 2e-4


def calibrate(plan: Plan, epsilon: float, delta: float) -> Plan:
    """The plan with the smallest noise multiplier for which (``epsilon``, ``delta``) is proved.

    Guarantee:
        Some accountant proves (ε, δ) for exactly the plan returned. Its noise is within 0.02 % of the
        least that this accountant can certify.

    Example:
        >>> from antiphon.mechanisms import NuFTRL
        >>> from antiphon.sampling import ShuffledEpochs
        >>> plan = Plan(n=50_000, sampling=ShuffledEpochs(500), steps=2000, mechanism=NuFTRL(0.0037),
        ...             relation="zero-out")
        >>> round(calibrate(plan, epsilon=10, delta=1e-5).noise_multiplier, 6)
        4.445674
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if plan.blocks:
        raise PlanError(
            "blocks have noise multipliers of their own; scale them and certify the plan."
        )
    plan.known_mechanism()
    found, refusals = [], []
    for name, search in _SEARCHES.items():
        try:
            found.append(search(plan, epsilon, delta))
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    if not found:
        raise UnsupportedError("no accountant can bound this plan. " + " ".join(refusals))
    return plan.with_noise(min(found))


def most_steps(plan: Plan, epsilon: float, delta: float) -> Plan:
    """The plan with as many steps, up to its own, as its noise allows within (``epsilon``, ``delta``)."""

    def fits(steps: int) -> bool:
        shorter = replace(plan, steps=steps)
        return best_account(shorter, delta).profile.epsilon(delta) <= epsilon

    check_epsilon(epsilon)
    check_delta(delta)
    plan.known_noise()
    low, high = 0, plan.steps
    if fits(high):
        return plan
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low == 0:
        raise PlanError(
            f"not even one step fits into ε = {epsilon} at δ = {delta} with this noise."
        )
    return replace(plan, steps=low)


def _gaussian_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """In closed form: what the extra releases leave of μ² is the training's."""
    unit = gaussian_parameter(plan.with_noise(1.0))
    extra = ROUTES["gaussian"](plan.with_noise(1.0)).profile
    budget = gaussian_mu(epsilon, delta)
    others = getattr(extra, "mu", unit) ** 2 - unit**2
    left = budget**2 - max(0.0, others)
    if left <= 0:
        raise PlanError(
            f"the releases beside training already cost more than ε = {epsilon} at δ = {delta}."
        )
    noise = unit / math.sqrt(left)
    while ROUTES["gaussian"](plan.with_noise(noise)).profile.epsilon(delta) > epsilon:
        noise *= 1 + 1e-13
    return noise


def _pld_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """Bracket and solve on a coarse grid, then certify on the fine one."""

    def excess(noise: float, grid: float | None) -> float:
        profile = pld.account(plan.with_noise(noise), grid=grid).profile
        return math.log(max(profile.delta(epsilon), 1e-300)) - math.log(delta)

    low, high = _bracket(lambda noise: excess(noise, _COARSE))
    coarse = float(brentq(lambda x: excess(x, _COARSE), low, high, rtol=1e-4))
    # The coarse answer is a little too large; log δ is nearly linear in log κ, so few fine steps suffice.
    noise, value, slope = coarse, excess(coarse, None), -20.0
    for _ in range(6):
        if -0.5 * _SLACK * abs(slope) <= value <= 0:
            break
        # Aim a little inside the budget.
        step = (value + 0.2 * _SLACK * abs(slope)) / slope
        moved = noise * math.exp(-step)
        after = excess(moved, None)
        if after != value and moved != noise:
            slope = (after - value) / math.log(moved / noise)
        noise, value = moved, after
    while value > 0:
        noise *= 1 + _SLACK
        value = excess(noise, None)
    return noise


def _bracket(excess: Callable[[float], float]) -> tuple[float, float]:
    """Two noises, a factor of two apart, between which the coarse answer lies."""
    noise = 1.0
    if excess(noise) > 0:
        while excess(2 * noise) > 0:
            noise *= 2
            if noise > 1e6:
                raise UnsupportedError("no noise below a multiplier of a million is enough.")
        return noise, 2 * noise
    while excess(noise / 2) <= 0:
        noise /= 2
        if noise < 1e-3:
            raise PlanError(
                "hardly any noise is needed for this budget: is ε meant to be so large?"
            )
    return noise / 2, noise


_SEARCHES: dict[str, Callable[[Plan, float, float], float]] = {
    "gaussian": _gaussian_noise,
    "pld": _pld_noise,
    "conditioned": conditioned_route.least_noise,
    "shuffling": shuffling.least_noise,
}
