"""All accountants in one place: the smallest proved ε wins, and a refusal names every reason.

`ROUTES` prove a whole curve δ(ε); `SAMPLED` prove single points by Monte Carlo, which takes minutes.
"""

from collections.abc import Callable
from typing import Any

from antiphon.accounting import conditioned, mixture, pld, rdp, shuffling, unamplified
from antiphon.accounting.account import Account
from antiphon.accounting.sampled import SampledRoute
from antiphon.errors import UnsupportedError
from antiphon.plan import Plan

__all__ = ["ROUTES", "SAMPLED", "best_account", "open_routes", "sampled_routes"]

ROUTES: dict[str, Callable[[Plan], Account]] = {
    "gaussian": unamplified.account,
    "pld": pld.account,
    "rdp": rdp.account,
    "conditioned": conditioned.account,
    "shuffling": shuffling.account,
}


SAMPLED: dict[str, Callable[[Plan], SampledRoute]] = {
    "mixture": mixture.route,
    "sampled participations": conditioned.route,
}


def open_routes(plan: Plan) -> dict[str, Account]:
    """What each accountant of curves proves for the plan; one that refuses is left out.

    Raises:
        UnsupportedError: If all refuse, with the reason of each.
    """
    found, refusals = _ask(ROUTES, plan)
    if not found:
        raise UnsupportedError("no accountant can bound this plan. " + " ".join(refusals))
    return found


def sampled_routes(plan: Plan) -> list[SampledRoute]:
    """Accountants that could prove a point for the plan by Monte Carlo."""
    return [*_ask(SAMPLED, plan)[0].values()]


def best_account(plan: Plan, delta: float) -> Account:
    """The account of a whole curve with the smallest ε at ``delta``."""
    return min(open_routes(plan).values(), key=lambda account: account.profile.epsilon(delta))


def _ask(routes: dict[str, Callable[[Plan], Any]], plan: Plan) -> tuple[dict[str, Any], list[str]]:
    found, refusals = {}, []
    for name, route in routes.items():
        try:
            found[name] = route(plan)
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    return found, refusals
