"""All accountants in one place: the smallest proved ε wins, and a refusal names every reason.

`ROUTES` prove a whole curve δ(ε), `SLOW` too; `SAMPLED` prove single points by Monte Carlo, which takes
minutes.
"""

from collections.abc import Callable, Iterable
from typing import Any

from antiphon.accounting import (
    conditional,
    conditioned,
    mixture,
    moments,
    pld,
    rdp,
    shuffling,
    unamplified,
)
from antiphon.accounting.account import Account, is_independent
from antiphon.accounting.sampled import SampledRoute
from antiphon.errors import UnsupportedError
from antiphon.plan import Plan

__all__ = [
    "ROUTES",
    "SAMPLED",
    "SLOW",
    "best_account",
    "correlated",
    "is_proved",
    "no_bound",
    "open_routes",
    "sampled_routes",
]

ROUTES: dict[str, Callable[[Plan], Account]] = {
    "gaussian": unamplified.account,
    "pld": pld.account,
    "rdp": rdp.account,
    "conditioned": conditioned.account,
    "moments": lambda plan: moments.account(correlated(plan)),
    "shuffling": shuffling.account,
}

# Minutes for what is seldom better: asked only where a tight answer is wanted.
SLOW: dict[str, Callable[[Plan], Account]] = {
    "conditional composition": lambda plan: conditional.account(correlated(plan)),
}


SAMPLED: dict[str, Callable[[Plan], SampledRoute]] = {
    "mixture": mixture.route,
    "sampled participations": conditioned.route,
}


def correlated(plan: Plan) -> Plan:
    """The plan, unless its noise is independent: then a tight accountant serves it."""
    if is_independent(plan.known_mechanism(), plan.steps):
        raise UnsupportedError("this accountant is for correlated noise.")
    return plan


def open_routes(plan: Plan, *, tight: bool = False) -> dict[str, Account]:
    """What each accountant of curves proves for the plan; one that refuses is left out.

    Args:
        plan: With its noise.
        tight: Ask the slow ones too.

    Raises:
        UnsupportedError: If all refuse, with the reason of each.
    """
    found, refusals = _ask(ROUTES | SLOW if tight else ROUTES, plan)
    if not found:
        raise no_bound(refusals)
    return found


def sampled_routes(plan: Plan) -> list[SampledRoute]:
    """Accountants that could prove a point for the plan by Monte Carlo."""
    return [*_ask(SAMPLED, plan)[0].values()]


def best_account(plan: Plan, delta: float, *, tight: bool = False) -> Account:
    """The account of a whole curve with the smallest ε at ``delta``."""
    accounts = open_routes(plan, tight=tight).values()
    return min(accounts, key=lambda account: account.profile.epsilon(delta))


def is_proved(plan: Plan, epsilon: float, delta: float) -> bool:
    """Whether some accountant of curves proves (ε, δ); the first that does ends the search.

    Raises:
        UnsupportedError: If all refuse.
    """
    refusals = []
    for name, route in ROUTES.items():
        try:
            if route(plan).profile.delta(epsilon) <= delta:
                return True
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    if len(refusals) == len(ROUTES):
        raise no_bound(refusals)
    return False


def no_bound(refusals: Iterable[str]) -> UnsupportedError:
    """The error of a plan that all accountants refuse, with each reason once and who gives it."""
    who: dict[str, list[str]] = {}
    for refusal in refusals:
        name, _, reason = refusal.partition(": ")
        who.setdefault(reason, []).append(name)
    reasons = (f"{', '.join(names)}: {reason}" for reason, names in who.items())
    return UnsupportedError(" ".join(("no accountant can bound this plan.", *reasons)))


def _ask(routes: dict[str, Callable[[Plan], Any]], plan: Plan) -> tuple[dict[str, Any], list[str]]:
    found, refusals = {}, []
    for name, route in routes.items():
        try:
            found[name] = route(plan)
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    return found, refusals
