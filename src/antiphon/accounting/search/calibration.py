"""From a budget to a plan: the least noise that is certified for it."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console

from antiphon.accounting.abstract_accountant import AbstractAccountant
from antiphon.accounting.account import is_independent
from antiphon.accounting.independent import unamplified
from antiphon.accounting.independent.gaussian import check_delta, check_epsilon
from antiphon.accounting.monte_carlo.proved_points import estimated_noise, identity, least_noise
from antiphon.accounting.monte_carlo.sampled import SampledRoute
from antiphon.accounting.search.auto import Choice, choose
from antiphon.accounting.search.edition import edition
from antiphon.accounting.search.registry import ACCOUNTANTS, curves, no_bound, sampled_routes
from antiphon.cache import remembered
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent
from antiphon.mechanisms import from_dict as mechanism_from_dict
from antiphon.plans import FullBatch, Plan, Poisson

__all__ = ["calibrate", "choose_mechanism", "noise_by"]

# Monte Carlo takes minutes and proves a single point: it must promise this share of the noise or less.
_WORTH = 0.97


def calibrate(
    plan: Plan, epsilon: float, delta: float, *, tight: bool = False, quick: bool = False
) -> Plan:
    """The plan with the smallest noise multiplier for which (``epsilon``, ``delta``) is proved.

    Args:
        plan: Without noise, or with noise that is replaced.
        epsilon: ε to be proved.
        delta: δ to be proved.
        tight: Where a Monte Carlo accountant is the best, draw three times as many paths for one or two
            per cent less noise.
        quick: Leave out Monte Carlo, which takes minutes: the noise may then be larger.

    Guarantee:
        Some accountant proves (ε, δ) for exactly the plan returned. Its noise is within 0.02 % of the
        least that an accountant of curves can certify; `proved_points` says what
        Monte Carlo adds.

    Example:
        >>> from antiphon.mechanisms import NuFTRL
        >>> from antiphon.plans import ShuffledEpochs
        >>> plan = Plan(n=50_000, sampling=ShuffledEpochs(500), steps=2000, mechanism=NuFTRL(0.0037),
        ...             relation="zero-out")
        >>> round(calibrate(plan, epsilon=10, delta=1e-5).noise_multiplier, 5)
        4.42541
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if plan.blocks:
        raise PlanError(
            "blocks have noise multipliers of their own; scale them and certify the plan."
        )
    how = _How(tight, quick)
    key: dict[str, Any] = {"plan": identity(plan), "edition": edition()}
    key |= {"epsilon": epsilon, "delta": delta, "tight": tight}
    if quick:
        key["quick"] = True
    found = remembered("plans", key, lambda: _found(plan, epsilon, delta, how))
    mechanism = mechanism_from_dict(found["mechanism"])
    return replace(plan, mechanism=mechanism, noise_multiplier=found["noise_multiplier"])


def noise_by(route: str, plan: Plan, epsilon: float, delta: float) -> float:
    """The noise multiplier at which one accountant of curves proves (``epsilon``, ``delta``).

    Args:
        route: The accountant's name, one of `antiphon.accounting.ACCOUNTANTS`.
        plan: With a mechanism.
        epsilon: ε to be proved.
        delta: δ to be proved.

    Guarantee:
        As `calibrate`, by this accountant alone and without Monte Carlo: another may prove less noise.

    Raises:
        UnsupportedError: If the accountant has no bound for the plan.

    Example:
        >>> from antiphon.plans import FullBatch
        >>> plan = Plan(n=100, sampling=FullBatch(), steps=16, mechanism=Independent())
        >>> round(noise_by("gaussian", plan, 2.0, 1e-5), 4)
        7.9752
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if route not in ACCOUNTANTS:
        raise PlanError(f"an accountant is one of {', '.join(ACCOUNTANTS)}; got {route!r}.")
    return ACCOUNTANTS[route].least_noise(plan, epsilon, delta)


class _How(NamedTuple):
    tight: bool
    quick: bool

    def sampled(self, plan: Plan) -> list[SampledRoute]:
        """Accountants by Monte Carlo, unless an answer is wanted quickly."""
        return [] if self.quick else sampled_routes(plan)


def _found(plan: Plan, epsilon: float, delta: float, how: _How) -> dict[str, Any]:
    """Mechanism and noise, to be kept on disk: they are proved by `certify` before they are used."""
    if plan.mechanism == "auto":
        choice = choose_mechanism(plan, epsilon, delta, **how._asdict())
        shown = Console(stderr=True)
        if shown.is_terminal:
            shown.print(choice)
        plan = choice.plan
    else:
        plan = plan.with_noise(_least_noise(plan, epsilon, delta, how))
    mechanism, noise = plan.known_mechanism(), plan.known_noise()
    return {"mechanism": mechanism.to_dict(), "noise_multiplier": noise}


def _least_noise(plan: Plan, epsilon: float, delta: float, how: _How) -> float:
    tight = how.tight
    best, refusals = _least_of_curves(curves(tight), plan, epsilon, delta)
    near, ranked = best if best < math.inf else 1.0, []
    for route in how.sampled(plan):
        try:
            noise = estimated_noise(plan, route, epsilon, delta, tight=tight, near=near)
            ranked.append((noise, route))
        except UnsupportedError as refusal:
            refusals.append(f"{route.route}: {refusal}")
    # Only one is certified: a choice by certified results would add up their failures.
    noise, chosen = min(ranked, key=lambda pair: pair[0], default=(math.inf, None))
    if chosen is not None and noise < _WORTH * best:
        point = least_noise(plan, chosen, epsilon, delta, tight=tight, start=noise)
        best = min(best, point.noise_multiplier)
    if best == math.inf:
        raise no_bound(refusals)
    return best


def choose_mechanism(
    plan: Plan, epsilon: float, delta: float, *, tight: bool = False, quick: bool = False
) -> Choice:
    """The mechanism with the smallest noise × error for a plan whose mechanism is "auto".

    The plan's sampling, relation, steps and clip norm are kept. Candidates are ranked by estimates within
    about half a minute; the best and independent noise are certified, and the smaller certified
    product wins. Print the result to see the ranking. ``tight`` and ``quick`` are those of `calibrate`.
    """
    how = _How(tight, quick)
    if plan.mechanism != "auto":
        raise PlanError(f'the mechanism is chosen already: {plan.mechanism}. Use mechanism="auto".')

    # Under Poisson sampling with correlated noise, the others are slower and not better.
    usual = curves()
    few = {"moments": usual["moments"]} if isinstance(plan.sampling, Poisson) else usual

    def estimate(candidate: Plan, near: float) -> float:
        independent = is_independent(candidate.known_mechanism(), plan.steps)
        best, _ = _least_of_curves(usual if independent else few, candidate, epsilon, delta)
        for route in how.sampled(candidate):
            guess = best if best < math.inf else near
            noise = estimated_noise(candidate, route, epsilon, delta, rough=True, near=guess)
            best = min(best, noise)
        if best == math.inf:
            raise UnsupportedError("no accountant can bound this plan.")
        return best

    floor = 0.0
    if isinstance(plan.sampling, Poisson):
        whole = replace(plan, sampling=FullBatch(), mechanism=Independent())
        floor = plan.sampling.rate * unamplified.least_noise(whole, epsilon, delta)
    return choose(
        plan, estimate, lambda p: calibrate(p, epsilon, delta, **how._asdict()), floor=floor
    )


def _least_of_curves(
    accountants: dict[str, AbstractAccountant], plan: Plan, epsilon: float, delta: float
) -> tuple[float, list[str]]:
    """The least noise by any accountant of curves, infinite if all refuse, with their reasons."""
    best, refusals = math.inf, []
    # Of Rényi divergences last: the others are at least as tight wherever they have an answer.
    for name in sorted(accountants, key="rdp".__eq__):
        if best < math.inf and name == "rdp":
            continue
        try:
            best = min(best, accountants[name].least_noise(plan, epsilon, delta))
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    return best, refusals
