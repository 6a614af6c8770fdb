"""All accountants in one place: the smallest proved ε wins, and a refusal names every reason."""

from collections.abc import Callable, Iterable
from typing import TypeVar, final

from antiphon.accounting.abstract_accountant import AbstractAccountant, AbstractSampledAccountant
from antiphon.accounting.account import Account, is_independent
from antiphon.accounting.correlated import conditional_composition, conditioned, mixture, moments
from antiphon.accounting.independent import pld, rdp, shuffling, unamplified
from antiphon.accounting.monte_carlo.sampled import SampledRoute
from antiphon.errors import UnsupportedError
from antiphon.plans import Plan

__all__ = [
    "ACCOUNTANTS",
    "SAMPLED",
    "SLOW",
    "best_account",
    "curves",
    "is_proved",
    "no_bound",
    "open_routes",
    "sampled_routes",
]

Found = TypeVar("Found")


@final
class _ForCorrelated:
    """An accountant that leaves independent noise to tight ones."""

    def __init__(self, accountant: AbstractAccountant) -> None:
        self._accountant = accountant

    def account(self, plan: Plan) -> Account:
        """As the accountant."""
        return self._accountant.account(_correlated(plan))

    def least_noise(self, plan: Plan, epsilon: float, delta: float) -> float:
        """As the accountant."""
        return self._accountant.least_noise(_correlated(plan), epsilon, delta)


def _correlated(plan: Plan) -> Plan:
    if is_independent(plan.known_mechanism(), plan.steps):
        raise UnsupportedError("this accountant is for correlated noise.")
    return plan


ACCOUNTANTS: dict[str, AbstractAccountant] = {
    "gaussian": unamplified,
    "pld": pld,
    "rdp": rdp,
    "conditioned": conditioned,
    "moments": _ForCorrelated(moments),
    "shuffling": shuffling,
    "conditional composition": _ForCorrelated(conditional_composition),
}
"""Those that prove a whole curve δ(ε)."""

SLOW = ("conditional composition",)
"""Minutes for what is seldom better: asked only where a tight answer is wanted."""

SAMPLED: dict[str, AbstractSampledAccountant] = {
    "mixture": mixture,
    "sampled participations": conditioned,
}
"""Those that prove single points by Monte Carlo."""


def curves(tight: bool = False) -> dict[str, AbstractAccountant]:
    """The accountants of curves to be asked: all where a tight answer is wanted."""
    return {name: one for name, one in ACCOUNTANTS.items() if tight or name not in SLOW}


def open_routes(plan: Plan, *, tight: bool = False) -> dict[str, Account]:
    """What each accountant of curves proves for the plan; one that refuses is left out.

    Args:
        plan: With its noise.
        tight: Ask the slow ones too.

    Raises:
        UnsupportedError: If all refuse, with the reason of each.
    """
    found, refusals = _ask({name: one.account for name, one in curves(tight).items()}, plan)
    if not found:
        raise no_bound(refusals)
    return found


def sampled_routes(plan: Plan) -> list[SampledRoute]:
    """Accountants that could prove a point for the plan by Monte Carlo."""
    return [*_ask({name: one.route for name, one in SAMPLED.items()}, plan)[0].values()]


def best_account(plan: Plan, delta: float, *, tight: bool = False) -> Account:
    """The account of a whole curve with the smallest ε at ``delta``."""
    accounts = open_routes(plan, tight=tight).values()
    return min(accounts, key=lambda account: account.profile.epsilon(delta))


def is_proved(plan: Plan, epsilon: float, delta: float) -> bool:
    """Whether some accountant of curves proves (ε, δ); the first that does ends the search.

    Raises:
        UnsupportedError: If all refuse.
    """
    refusals, quick = [], curves()
    for name, accountant in quick.items():
        try:
            if accountant.account(plan).profile.delta(epsilon) <= delta:
                return True
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    if len(refusals) == len(quick):
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


def _ask(
    routes: dict[str, Callable[[Plan], Found]], plan: Plan
) -> tuple[dict[str, Found], list[str]]:
    found, refusals = dict[str, Found](), list[str]()
    for name, route in routes.items():
        try:
            found[name] = route(plan)
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    return found, refusals
