"""All accountants in one place: the smallest proved ε wins, and a refusal names every reason."""

from collections.abc import Callable

from antiphon.accounting import conditioned_route, pld, shuffling, unamplified
from antiphon.accounting.account import Account
from antiphon.errors import UnsupportedError
from antiphon.plan import Plan

__all__ = ["ROUTES", "best_account", "open_routes"]

ROUTES: dict[str, Callable[[Plan], Account]] = {
    "gaussian": unamplified.account,
    "pld": pld.account,
    "conditioned": conditioned_route.account,
    "shuffling": shuffling.account,
}


def open_routes(plan: Plan) -> dict[str, Account]:
    """What each accountant proves for the plan; an accountant that refuses is left out.

    Raises:
        UnsupportedError: If all refuse, with the reason of each.
    """
    found, refusals = {}, []
    for name, account in ROUTES.items():
        try:
            found[name] = account(plan)
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    if not found:
        raise UnsupportedError("no accountant can bound this plan. " + " ".join(refusals))
    return found


def best_account(plan: Plan, delta: float) -> Account:
    """The account with the smallest ε at ``delta``."""
    return min(open_routes(plan).values(), key=lambda account: account.profile.epsilon(delta))
