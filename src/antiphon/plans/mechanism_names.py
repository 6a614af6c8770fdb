"""The one reader of a mechanism's name, for Python and the command line."""

from collections.abc import Callable
from typing import Any

from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, NuFTRL, makers, optimize
from antiphon.participation import AbstractParticipation
from antiphon.plans.plan import Plan

__all__ = ["mechanism_of", "named_mechanism", "named_mechanisms"]


def named_mechanisms(
    T: int, participation: AbstractParticipation
) -> dict[str, Callable[[], AbstractMechanism]]:
    """By name, functions that make each mechanism at its best parameter for T steps.

    Names are those of `antiphon.mechanisms.table`, with hyphens.
    """
    found = {
        label.replace(",", "").replace(" ", "-"): make
        for label, make in makers(T, participation).items()
    }
    # Too slow to be shown among all, but not to whoever asks for it.
    found.setdefault("dense", lambda: optimize("dense", T, participation).mechanism)
    return found


def named_mechanism(
    name: str, T: int, participation: AbstractParticipation, *beside: str
) -> Callable[[], AbstractMechanism]:
    """The function of `named_mechanisms` that makes the mechanism of this name.

    Args:
        name: Its name.
        T: Number of steps.
        participation: What it is to be best for.
        beside: Further names that the caller knows, for the error.
    """
    known = named_mechanisms(T, participation)
    if name not in known:
        there = ", ".join([*beside, *known])
        raise PlanError(f"no mechanism is called {name!r}; there are {there}.")
    return known[name]


def mechanism_of(mechanism: Any, plan: Plan) -> AbstractMechanism | str:
    """The mechanism that is named, "auto" included; a family is optimised for the plan.

    Of "nu-ftrl" it is the BLT fitted to the best ν: ν-FTRL itself would keep all its past noise.

    Example:
        >>> from antiphon.plans import OnePass
        >>> plan = Plan(n=64, sampling=OnePass(8), steps=8, mechanism="auto", relation="zero-out")
        >>> mechanism_of("independent", plan), mechanism_of("tree", plan)
        (Independent(), Tree())
    """
    if isinstance(mechanism, AbstractMechanism):
        return mechanism
    if not isinstance(mechanism, str):
        raise PlanError(f"mechanism is a mechanism or its name; got {mechanism!r}.")
    if mechanism == "auto":
        return mechanism
    best = named_mechanism(mechanism, plan.steps, plan.participation, "auto")()
    return best.buffered(plan.steps) if isinstance(best, NuFTRL) else best
