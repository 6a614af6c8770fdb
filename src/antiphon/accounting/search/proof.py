"""The best that all accountants together prove for a plan at one δ."""

import math
from dataclasses import dataclass
from typing import final

from antiphon.accounting.account import Account
from antiphon.accounting.curve import AbstractProfile, ConvexProfile
from antiphon.accounting.independent.gaussian import check_delta, check_epsilon
from antiphon.accounting.monte_carlo.proved_points import (
    Point,
    estimated_epsilon,
    failed_before,
    known_point,
    least_epsilon,
    prove,
    remember_failed,
)
from antiphon.accounting.monte_carlo.sampled import SampledRoute
from antiphon.accounting.search.registry import open_routes, sampled_routes
from antiphon.errors import PlanError, UnsupportedError
from antiphon.plans import Plan

__all__ = ["Proof", "best_proof"]

# Monte Carlo takes minutes: it must promise this share of the ε that a curve gives, or less.
_WORTH = 0.97
_GRID = (0.0, *(round(0.01 * 1.25**i, 6) for i in range(36)))  # ε at which the whole curve is shown


@final
@dataclass(frozen=True)
class Proof:
    """An ε proved for a plan at a δ, and why.

    Attributes:
        epsilon: ε.
        route: Name of the accountant.
        theorem: Why it holds, in words.
        references: Keys of ``docs/references.bib``.
        profile: δ(ε) as far as this accountant proves it: a curve, or a band around the point.
        failure: Failure probability of a Monte Carlo bound, profile included; 0 if there was none.
        is_tight: Whether a data set and an attack exist that reach it.
    """

    epsilon: float
    route: str
    theorem: str
    references: tuple[str, ...]
    profile: AbstractProfile
    failure: float = 0.0
    is_tight: bool = False


def best_proof(
    plan: Plan, delta: float, *, epsilon: float | None = None, tight: bool = False
) -> tuple[Proof, ConvexProfile]:
    """The proof with the smallest ε (with ``epsilon``: of that ε or a smaller one), and the whole curve.

    The curve is the convex hull of what all accountants prove; with Monte Carlo, it holds with the same
    confidence as the point.

    Raises:
        UnsupportedError: If no accountant can bound the plan; the message names each one's reason.
        PlanError: If ``epsilon`` is given and cannot be proved.
    """
    check_delta(delta)
    if epsilon is not None:
        check_epsilon(epsilon)
    if not plan.blocks:
        plan.known_noise()
    sampled, accounts, best = sampled_routes(plan), [], None
    try:
        accounts = [*open_routes(plan, tight=tight).values()]
        best = min(
            (_of_curve(a, delta, epsilon) for a in accounts), key=lambda proof: proof.epsilon
        )
    except UnsupportedError:
        if not sampled:
            raise
    least = best.epsilon if best is not None else math.inf
    if sampled and not (epsilon is not None and least <= epsilon):
        try:
            found = _sampled(plan, sampled, delta, epsilon, least, tight)
        except UnsupportedError:
            if best is None:
                raise
            found = None
        best = found or best
    if best is None or (epsilon is not None and best.epsilon > epsilon):
        raise PlanError(
            f"ε = {epsilon} is not proved for this plan at δ = {delta:g}. Leave epsilon out to see what is."
        )
    profiles = [account.profile for account in accounts]
    if best.failure:  # the band holds together with the point; without Monte Carlo there is none
        profiles.append(best.profile)
    return best, _hull(profiles, best.epsilon, delta)


def _hull(profiles: list[AbstractProfile], epsilon: float, delta: float) -> ConvexProfile:
    """All that is proved for the plan, the point itself included."""
    proved = [(e, min(profile.delta(e) for profile in profiles)) for e in _GRID]
    if math.isfinite(epsilon):
        proved.append((epsilon, delta))
    return ConvexProfile.through(proved)


def _of_curve(account: Account, delta: float, wanted: float | None) -> Proof:
    epsilon = account.profile.epsilon(delta)
    # The inverse is rounded up, so the point that the noise was made for is looked at itself.
    if wanted is not None and wanted < epsilon and account.profile.delta(wanted) <= delta:
        epsilon = wanted
    return Proof(
        epsilon,
        account.route,
        account.theorem,
        account.references,
        account.profile,
        is_tight=account.is_tight,
    )


def _of_point(plan: Plan, route: SampledRoute, point: Point) -> Proof:
    return Proof(
        point.epsilon,
        route.route,
        f"{route.theorem}; {point.paths:.2g} paths in each direction",
        route.references,
        point.profile,
        failure=point.failure + failed_before(plan),
    )


def _sampled(
    plan: Plan,
    routes: list[SampledRoute],
    delta: float,
    epsilon: float | None,
    least: float,
    tight: bool,
) -> Proof | None:
    """What Monte Carlo proves, if that is better than ``least``.

    Only the route with the best estimate is certified: a choice by results would add up failures.
    """
    for route in routes:  # such as the point that the plan was calibrated for
        known = known_point(plan, route, delta, epsilon)
        if known is not None and known.epsilon < least:
            return _of_point(plan, route, known)
    if epsilon is not None and len(routes) == 1:
        estimates = [epsilon]  # nothing to choose
    else:
        estimates = [_estimate(plan, route, delta, tight) for route in routes]
    promised, route = min(zip(estimates, routes, strict=True), key=lambda pair: pair[0])
    if epsilon is not None:
        point = prove(plan, route, epsilon, delta, tight=tight)[0]
        if point is None:
            remember_failed(plan, route, epsilon, delta, tight)
    elif promised > _WORTH * least:
        return None
    else:
        # Infinite if there was no estimate: then the search says why.
        start = promised if promised < math.inf else None
        point = least_epsilon(plan, route, delta, tight=tight, start=start)
    return _of_point(plan, route, point) if point is not None and point.epsilon < least else None


def _estimate(plan: Plan, route: SampledRoute, delta: float, tight: bool) -> float:
    try:
        return estimated_epsilon(plan, route, delta, tight=tight)
    except UnsupportedError:
        return math.inf
