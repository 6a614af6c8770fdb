"""Three ways to add up runs against a budget (ε, δ): Gaussian, Rényi, and all at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.optimize import brentq

from antiphon.accounting import (
    ACCOUNTANTS,
    GaussianProfile,
    compose_gaussians,
    gaussian_epsilon,
    gaussian_mu,
    pld_together,
    renyi_curve,
)
from antiphon.certificates.renyi_filter import RenyiFilter
from antiphon.errors import LedgerError, UnsupportedError
from antiphon.numerics import Series
from antiphon.plans import Plan

__all__ = ["AbstractBudget", "GaussianBudget", "RenyiBudget", "TogetherBudget", "budget_of"]

_Row = dict[str, Any]


@dataclass(frozen=True)
class AbstractBudget(ABC):
    """A limit on everything ever released from a data set."""

    epsilon: float
    delta: float

    @abstractmethod
    def price(self, plans: Sequence[Plan]) -> _Row:
        """What the ledger stores of the plans' privacy, beside the plans."""

    @abstractmethod
    def check(self, rows: Sequence[_Row], price: _Row) -> None:
        """Raise LedgerError unless the budget allows this price after these rows."""

    @abstractmethod
    def spent(self, rows: Sequence[_Row]) -> float:
        """ε of all rows together, at the budget's δ."""

    @abstractmethod
    def left(self, rows: Sequence[_Row]) -> float:
        """The Gaussian parameter μ that a further run may still have."""

    @final
    def refuse(self, needs: str, left: str) -> LedgerError:
        """The error of a run that does not fit."""
        return LedgerError(
            f"the run needs {needs}, and {left} is left of the budget (ε = {self.epsilon:g}, δ = "
            f"{self.delta:g}). Use more noise, fewer steps, or other data."
        )


@final
@dataclass(frozen=True)
class GaussianBudget(AbstractBudget):
    """Gaussian parameters add in squares, also of adaptively chosen runs.

    The filter that stops before the sum passes the budget's μ² is as private as one release of that μ
    [KoskelaTobabenHonkela23, Smith and Thakurta 2022]. So only runs whose whole curve is Gaussian fit.
    """

    def price(self, plans: Sequence[Plan]) -> _Row:
        """μ of the one plan."""
        profile = ACCOUNTANTS["gaussian"].account(_only(plans, "gdp")).profile
        if not isinstance(profile, GaussianProfile):
            raise UnsupportedError("a ledger adds Gaussian guarantees only.")
        return {"mu": profile.mu}

    def check(self, rows: Sequence[_Row], price: _Row) -> None:
        """By the sum of squares."""
        left = self.left(rows)
        if price["mu"] > left * (1 + 1e-12):
            raise self.refuse(f"μ = {price['mu']:.6g}", f"{left:.6g}")

    def spent(self, rows: Sequence[_Row]) -> float:
        """Of one release of the composed μ."""
        return gaussian_epsilon(compose_gaussians(row["mu"] for row in rows), self.delta)

    def left(self, rows: Sequence[_Row]) -> float:
        """The root of what is left of μ²."""
        whole = gaussian_mu(self.epsilon, self.delta)
        return max(0.0, whole**2 - compose_gaussians(row["mu"] for row in rows) ** 2) ** 0.5


@final
@dataclass(frozen=True)
class RenyiBudget(AbstractBudget):
    """RDP adds up order by order, and `RenyiFilter` says when to stop: for amplified runs, too."""

    filter: RenyiFilter

    def price(self, plans: Sequence[Plan]) -> _Row:
        """The plan's RDP at the filter's orders."""
        return {"rdp": renyi_curve(_only(plans, "rdp"), self.filter.orders).tolist()}

    def check(self, rows: Sequence[_Row], price: _Row) -> None:
        """By the filter, at the budget's ε."""
        after = self.filter.delta(self._sum([*rows, price]), self.epsilon)
        if after > self.delta:
            before = self.filter.delta(self._sum(rows), self.epsilon)
            raise self.refuse(
                f"δ = {after:.3g} at ε = {self.epsilon:g} with all before it",
                f"δ = {self.delta:.3g} (of which {before:.3g} is spent)",
            )

    def spent(self, rows: Sequence[_Row]) -> float:
        """By the filter, at the budget's δ."""
        return self.filter.epsilon(self._sum(rows), self.delta) if rows else 0.0

    def left(self, rows: Sequence[_Row]) -> float:
        """By the filter, for a run of RDP α μ²/2."""
        now, orders = self._sum(rows), np.array(self.filter.orders)

        def excess(mu: float) -> float:
            return self.filter.delta(now + 0.5 * mu**2 * orders, self.epsilon) - self.delta

        if excess(0.0) >= 0:
            return 0.0
        high = gaussian_mu(self.epsilon, self.delta)
        root = float(brentq(excess, 0.0, high, xtol=1e-12)) if excess(high) > 0 else high
        while excess(root) > 0:
            root *= 1 - 1e-9
        return root

    def _sum(self, rows: Sequence[_Row]) -> Series:
        return np.array([np.zeros(len(self.filter.orders)), *(row["rdp"] for row in rows)]).sum(0)


@final
@dataclass(frozen=True)
class TogetherBudget(AbstractBudget):
    """Plans that are all known in advance, composed by their privacy loss distributions, once.

    A point (ε, δ) of a composition leaves nothing that could be added to later: one entry, and no more.
    """

    def price(self, plans: Sequence[Plan]) -> _Row:
        """(ε, δ) of all plans, at the budget's δ and ε."""
        profile = pld_together(plans)
        return {"epsilon": profile.epsilon(self.delta), "delta": profile.delta(self.epsilon)}

    def check(self, rows: Sequence[_Row], price: _Row) -> None:
        """Whether it is the first and only entry, and within the budget."""
        if rows:
            raise LedgerError(
                "this ledger was for plans entered together in advance, and they are entered; nothing can "
                "be added. Use a ledger with filter='rdp' or 'gdp' for runs chosen one after another."
            )
        if price["delta"] > self.delta:
            raise self.refuse(f"ε = {price['epsilon']:.6g}", f"ε = {self.epsilon:g}")

    def spent(self, rows: Sequence[_Row]) -> float:
        """Of the one entry."""
        return float(rows[0]["epsilon"]) if rows else 0.0

    def left(self, rows: Sequence[_Row]) -> float:
        """Everything before the entry, nothing after it."""
        return 0.0 if rows else gaussian_mu(self.epsilon, self.delta)


def budget_of(head: _Row) -> AbstractBudget:
    """The budget that a ledger's first line describes; one that names no filter is Gaussian."""
    limits = head["epsilon"], head["delta"]
    match head.get("filter", "gdp"):
        case "gdp":
            return GaussianBudget(*limits)
        case "rdp":
            return RenyiBudget(*limits, RenyiFilter(tuple(head["orders"]), tuple(head["weights"])))
        case "pld":
            return TogetherBudget(*limits)
        case other:
            raise LedgerError(f"a ledger's filter is 'gdp', 'rdp' or 'pld'; got {other!r}.")


def _only(plans: Sequence[Plan], name: str) -> Plan:
    if len(plans) != 1:
        raise LedgerError(
            f"a ledger with filter='{name}' takes one run at a time: spend them one after another, or "
            "create a ledger with filter='pld' for plans entered together in advance."
        )
    return plans[0]
