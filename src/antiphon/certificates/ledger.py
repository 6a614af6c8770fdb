"""What was spent on a data set: an append-only record that survives crashes and refuses overspending.

A run may start when `Ledger.spend` has returned: then its line is on the disk. Until a damaged line is
mended, nothing can be spent.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from antiphon.accounting import check_delta, check_epsilon
from antiphon.certificates import ledger_record as record
from antiphon.certificates.budgets import budget_of
from antiphon.certificates.renyi_filter import RenyiFilter
from antiphon.errors import LedgerError, PlanError
from antiphon.participation import Relation
from antiphon.plans import Plan

__all__ = ["Entry", "Ledger"]


@final
@dataclass(frozen=True)
class Entry:
    """One run, or all runs of a ledger whose plans are entered together.

    Attributes:
        plans: What ran.
        note: The user's words.
        mu: Gaussian parameter, in a ledger that adds those.
        rdp: RDP at each of the ledger's orders, in a ledger that adds those.
        epsilon: ε at the budget's δ, of plans entered together.
        failure: Probability that a Monte Carlo bound behind the entry is wrong.
    """

    plans: tuple[Plan, ...]
    note: str
    mu: float | None = None
    rdp: tuple[float, ...] | None = None
    epsilon: float | None = None
    failure: float = 0.0

    @property
    def plan(self) -> Plan:
        """The only plan."""
        if len(self.plans) != 1:
            raise LedgerError(f"this entry has {len(self.plans)} plans; read `plans`.")
        return self.plans[0]


@final
@dataclass(frozen=True)
class Ledger:
    """The record of one data set.

    Runs may be chosen in view of earlier results, if the ledger adds Gaussian parameters (``gdp``) or Rényi
    divergences (``rdp``): see `budgets` for each one's proof. Plans that are all known in
    advance can be composed more tightly, by their privacy loss distributions (``pld``), once.

    Attributes:
        path: The file.
    """

    path: Path

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        epsilon: float,
        delta: float,
        relation: str,
        data: str = "",
        filter: str = "gdp",
        orders: Sequence[float] | None = None,
        failure: float = 0.0,
    ) -> "Ledger":
        """A new ledger with a fixed budget.

        Args:
            path: The file, which must not exist.
            epsilon: Budget for everything ever released from the data set.
            delta: Its δ.
            relation: The neighbouring relation of all entries: others are refused, as are runs that protect
                another unit than the first entry's.
            data: A name for the data set.
            filter: "gdp" for runs without amplification, "rdp" for any run with a Rényi bound, "pld" for
                plans entered together in advance, once.
            orders: For "rdp", Rényi orders of equal weight; unless given, chosen for the budget.
            failure: Largest sum of the failure probabilities of Monte Carlo bounds; beside δ, not in it.
        """
        check_epsilon(epsilon)
        check_delta(delta)
        if not 0 <= failure < 1:
            raise PlanError(f"a failure probability is at least 0 and below 1; got {failure}.")
        if orders is not None and filter != "rdp":
            raise PlanError(f"orders belong to filter='rdp'; got {filter!r}.")
        head: dict[str, Any] = {
            "ledger": 1,
            "data": data,
            "epsilon": epsilon,
            "delta": delta,
            "relation": str(Relation.of(relation)),
            "filter": filter,
            "failure": failure,
        }
        if filter == "rdp":
            mixture = (
                RenyiFilter.for_budget(epsilon, delta)
                if orders is None
                else RenyiFilter(tuple(map(float, orders)), (1 / len(orders),) * len(orders))
            )
            head |= {"orders": mixture.orders, "weights": mixture.weights}
        budget_of(head)
        record.create(path, head)
        return cls(Path(path))

    @property
    def head(self) -> dict[str, Any]:
        """What the ledger was created with: budget, relation, filter, name of the data."""
        return dict(self._read().head)

    @property
    def budget(self) -> tuple[float, float]:
        """ε and δ that all entries together must not pass."""
        head = self._read().head
        return head["epsilon"], head["delta"]

    def entries(self) -> tuple[Entry, ...]:
        """All runs, in order."""
        return tuple(map(_entry, self._read().rows))

    def spent(self) -> float:
        """ε of all entries together, at the budget's δ, as the ledger's filter counts it.

        What a filter proves of adaptively chosen runs is the budget; this is how far it is used up.
        """
        content = self._read()
        return budget_of(content.head).spent(content.rows)

    def left(self) -> float:
        """The Gaussian parameter μ that a further run may still have."""
        content = self._read()
        return budget_of(content.head).left(content.rows)

    def failure(self) -> float:
        """Probability that any Monte Carlo bound behind the entries is wrong: they add up."""
        return _failures(self._read().rows)

    def spend(self, plan: Plan, note: str = "", *, failure: float = 0.0) -> Entry:
        """Enter a run before it starts, or refuse it.

        Args:
            plan: What will run.
            note: The user's words.
            failure: Probability that a Monte Carlo bound on which the plan's numbers rest is wrong.

        Raises:
            LedgerError: If the budget would be passed, the relation is another one, or the file is damaged.
            UnsupportedError: If the plan's guarantee cannot be added by the ledger's filter.
        """
        return self.spend_together([plan], note, failure=failure)

    def spend_together(
        self, plans: Sequence[Plan], note: str = "", *, failure: float = 0.0
    ) -> Entry:
        """Enter runs that are all known before the first one starts, or refuse them all.

        Raises:
            LedgerError: As `spend`; also if the ledger takes one run at a time.
            UnsupportedError: If a plan has no privacy loss distribution.
        """
        if not plans:
            raise LedgerError("there is nothing to enter: give at least one plan.")
        if not 0 <= failure < 1:
            raise PlanError(f"a failure probability is at least 0 and below 1; got {failure}.")
        with record.locked(self.path) as file:
            content = record.parse(file, self.path)
            self._check_others(content, plans, failure)
            budget = budget_of(content.head)
            price = budget.price(plans)
            budget.check(content.rows, price)
            written = [json.loads(plan.to_json()) for plan in plans]
            row = {"plan": written[0]} if len(written) == 1 else {"plans": written}
            row |= {**price, "note": note} | ({"failure": failure} if failure else {})
            record.add(file, self.path, content, row)
        return _entry(row)

    def _check_others(self, content: record.Content, plans: Sequence[Plan], failure: float) -> None:
        """Refuse other relations or units, and failure probabilities that add up to too much."""
        units = {plan.unit for entry in map(_entry, content.rows) for plan in entry.plans}
        for plan in plans:
            if str(plan.relation) != content.head["relation"]:
                raise LedgerError(
                    f"this ledger is for {content.head['relation']}, the plan for {plan.relation}; losses "
                    "under different relations do not add."
                )
        if len(units | {plan.unit for plan in plans}) > 1:
            raise LedgerError(
                "this ledger would hold runs that protect single examples and runs that protect users; "
                "their losses do not add up to either. Use a ledger for each."
            )
        allowed = content.head.get("failure", 0.0)
        total = math.fsum([_failures(content.rows), failure])
        if total > allowed * (1 + 1e-12):
            raise LedgerError(
                f"the failure probabilities of Monte Carlo bounds would add up to {total:g}, and this "
                f"ledger allows {allowed:g}. Use an accountant without Monte Carlo, more paths at a "
                "smaller failure probability, or a ledger created with a larger `failure`."
            )

    def _read(self) -> record.Content:
        with record.locked(self.path) as file:
            return record.parse(file, self.path)


def _entry(row: dict[str, Any]) -> Entry:
    plans = row["plans"] if "plans" in row else [row["plan"]]
    return Entry(
        plans=tuple(Plan.from_json(json.dumps(plan)) for plan in plans),
        note=row["note"],
        mu=row.get("mu"),
        rdp=tuple(row["rdp"]) if "rdp" in row else None,
        epsilon=row.get("epsilon"),
        failure=row.get("failure", 0.0),
    )


def _failures(rows: Sequence[dict[str, Any]]) -> float:
    return math.fsum(row.get("failure", 0.0) for row in rows)
