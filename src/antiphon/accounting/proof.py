"""The best that all accountants together prove for a plan at one δ."""

import math
from dataclasses import dataclass
from typing import final

from antiphon.accounting.certification import Point, estimated_epsilon, least_epsilon, prove
from antiphon.accounting.gaussian import check_delta, check_epsilon
from antiphon.accounting.profile import AbstractProfile
from antiphon.accounting.routes import best_account, sampled_routes
from antiphon.accounting.sampled import SampledRoute
from antiphon.errors import PlanError, UnsupportedError
from antiphon.plan import Plan

__all__ = ["Proof", "best_proof"]

# Monte Carlo takes minutes: it must promise this share of the ε that a curve gives, or less.
_WORTH = 0.97


@final
@dataclass(frozen=True)
class Proof:
    """An ε proved for a plan at a δ, and why.

    Attributes:
        epsilon: ε.
        route: Name of the accountant.
        theorem: Why it holds, in words.
        references: Keys of ``docs/references.bib``.
        profile: δ(ε) as far as it is proved: a curve, or a band around the point.
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
) -> Proof:
    """The proof with the smallest ε; with ``epsilon``, any proof of that ε or a smaller one.

    Raises:
        UnsupportedError: If no accountant can bound the plan; the message names each one's reason.
        PlanError: If ``epsilon`` is given and cannot be proved.
    """
    check_delta(delta)
    if epsilon is not None:
        check_epsilon(epsilon)
    if not plan.blocks:
        plan.known_noise()
    sampled, best = sampled_routes(plan), None
    try:
        best = _of_curve(plan, delta, tight)
    except UnsupportedError:
        if not sampled:
            raise
    for route in sampled:
        least = best.epsilon if best is not None else math.inf
        if epsilon is not None and least <= epsilon:
            break
        try:
            point = _point(plan, route, delta, epsilon, least, tight)
        except UnsupportedError:
            if best is None:
                raise
            continue
        if point is not None and point.epsilon < least:
            best = _of_point(route, point)
    if best is None or (epsilon is not None and best.epsilon > epsilon):
        raise PlanError(
            f"ε = {epsilon} is not proved for this plan at δ = {delta:g}. Leave epsilon out to see what is."
        )
    return best


def _of_curve(plan: Plan, delta: float, tight: bool) -> Proof:
    account = best_account(plan, delta, tight=tight)
    return Proof(
        account.profile.epsilon(delta),
        account.route,
        account.theorem,
        account.references,
        account.profile,
        is_tight=account.is_tight,
    )


def _of_point(route: SampledRoute, point: Point) -> Proof:
    return Proof(
        point.epsilon,
        route.route,
        f"{route.theorem}; {point.paths:.2g} paths in each direction",
        route.references,
        point.profile,
        failure=point.failure,
    )


def _point(
    plan: Plan,
    route: SampledRoute,
    delta: float,
    epsilon: float | None,
    least: float,
    tight: bool,
) -> Point | None:
    """What a Monte Carlo accountant proves, if that can be better than ``least``."""
    if epsilon is not None:
        return prove(plan, route, epsilon, delta, tight=tight)[0]
    if least < math.inf and estimated_epsilon(plan, route, delta, tight=tight) > _WORTH * least:
        return None
    return least_epsilon(plan, route, delta, tight=tight)
