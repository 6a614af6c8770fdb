"""What an accountant is: from a plan to the curve that is proved for it, and from a budget to noise.

Each accountant is a module with these functions, listed in `antiphon.accounting.search.registry`.
"""

from typing import Protocol, runtime_checkable

from antiphon.accounting.account import Account
from antiphon.accounting.monte_carlo.sampled import SampledRoute
from antiphon.plans import Plan

__all__ = ["AbstractAccountant", "AbstractSampledAccountant"]


@runtime_checkable
class AbstractAccountant(Protocol):
    """Proves a whole curve δ(ε).

    Guarantee:
        Both functions raise `UnsupportedError` with a reason for every plan that the accountant cannot
        bound. ``account`` of a plan with the noise of ``least_noise`` proves (ε, δ).
    """

    def account(self, plan: Plan) -> Account:
        """What is proved for a plan with its noise."""

    def least_noise(self, plan: Plan, epsilon: float, delta: float) -> float:
        """A noise multiplier at which (ε, δ) is proved for the plan, close to the least."""


@runtime_checkable
class AbstractSampledAccountant(Protocol):
    """Proves single points (ε, δ) by Monte Carlo, which takes minutes."""

    def route(self, plan: Plan) -> SampledRoute:
        """How the plan's points can be proved; `UnsupportedError` where they cannot."""
