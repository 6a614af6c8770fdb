"""``antiphon ledger``: what was spent on a data set, and what is left."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.commands.arguments import RELATIONS, Commands, command, positive_number, probability

if TYPE_CHECKING:
    from rich.table import Table

    from antiphon.certificates import Ledger

__all__ = ["add", "run"]

_FILTERS = ("gdp", "rdp", "pld")


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "ledger",
        "keep the record of what was spent on a data set, against a budget",
        "A plan is entered before it runs, and refused if it does not fit. Nothing can be taken out.",
        """
antiphon ledger patients.ledger create --epsilon 3 --delta 1e-6 --data "patients 2024"
antiphon ledger patients.ledger spend plan.json --note "first model"
antiphon ledger patients.ledger""",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the ledger")
    parser.add_argument(
        "action", nargs="?", choices=("show", "create", "spend"), default="show", help="(show)"
    )
    parser.add_argument(
        "plans",
        metavar="PLAN",
        nargs="*",
        type=Path,
        help="to spend: the JSON of a plan or a certificate; several only with the filter pld",
    )
    parser.add_argument("--note", metavar="TEXT", help="words to keep with the entry")
    budget = parser.add_argument_group("create")
    budget.add_argument("--epsilon", metavar="E", type=positive_number, help="the budget's ε")
    budget.add_argument("--delta", metavar="D", type=probability, help="its δ")
    budget.add_argument("--relation", choices=RELATIONS, help="how neighbours differ (add-remove)")
    budget.add_argument(
        "--filter",
        choices=_FILTERS,
        help="gdp: runs without amplification (the default); rdp: any run with a Rényi bound; pld: plans "
        "entered together, once",
    )
    budget.add_argument("--data", metavar="TEXT", help="a name for the data set")
    budget.add_argument(
        "--failure",
        metavar="P",
        type=probability,
        help="failures of Monte Carlo bounds allowed (0)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Create, spend or show."""
    _check(options)
    from antiphon.certificates import Ledger

    if options.action == "create":
        ledger = Ledger.create(
            options.file,
            epsilon=options.epsilon,
            delta=options.delta,
            relation=options.relation or RELATIONS[0],
            data=options.data or "",
            filter=options.filter or _FILTERS[0],
            failure=options.failure or 0.0,
        )
    else:
        ledger = Ledger(options.file)
    if options.action == "spend":
        _spend(ledger, options)
    _show(ledger, options.json)
    return 0


def _check(options: argparse.Namespace) -> None:
    creating = ("epsilon", "delta", "relation", "filter", "data", "failure")
    given = [name for name in creating if getattr(options, name) is not None]
    if options.action == "create" and not {"epsilon", "delta"} <= set(given):
        options.misused(
            "create needs --epsilon and --delta, the budget of everything ever released"
        )
    if options.action != "create" and given:
        options.misused(f"--{given[0]} belongs to create: a budget is never changed")
    if (options.action == "spend") != bool(options.plans):
        options.misused("spend needs a PLAN, and nothing else takes one")
    if options.note is not None and options.action != "spend":
        options.misused("--note belongs to spend")


def _spend(ledger: "Ledger", options: argparse.Namespace) -> None:
    from antiphon.commands.target import checked, find
    from antiphon.plans import Plan

    plans, failure = [], 0.0
    for path in options.plans:
        found, _ = find(path)
        if isinstance(found, Plan):
            plans.append(found)
            continue
        certificate, _ = checked(found)
        plans.append(certificate.plan)
        failure += 0.0 if certificate.confidence is None else 1 - certificate.confidence
    ledger.spend_together(plans, options.note or "", failure=failure)


def _show(ledger: "Ledger", as_json: bool) -> None:
    values = _values(ledger)
    if as_json:
        print(json.dumps(values))
        return
    from rich.console import Console

    console = Console()
    if values["entries"]:
        console.print(_table(values))
    for line in _summary(values):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _values(ledger: "Ledger") -> dict[str, Any]:
    head, entries = ledger.head, ledger.entries()
    return {
        "data": head["data"],
        "epsilon": head["epsilon"],
        "delta": head["delta"],
        "relation": head["relation"],
        "filter": head.get("filter", "gdp"),
        "spent_epsilon": ledger.spent(),
        "left_mu": ledger.left(),
        "failure": ledger.failure(),
        "entries": [
            {
                "note": entry.note,
                "mu": entry.mu,
                "epsilon": entry.epsilon,
                "failure": entry.failure,
                "plan_hashes": [plan.hash for plan in entry.plans],
                "plans": [json.loads(plan.to_json()) for plan in entry.plans],
            }
            for entry in entries
        ],
    }


def _table(values: dict[str, Any]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    view = Table()
    for name in ("entry", "plan", "steps", "cost", "note"):
        view.add_column(name, justify="left" if name in ("plan", "note") else "right")
    for number, entry in enumerate(values["entries"], start=1):
        view.add_row(
            str(number),
            " ".join(hash[:8] for hash in entry["plan_hashes"]),
            str(sum(plan["steps"] for plan in entry["plans"])),
            _cost(entry),
            escape(entry["note"]),
        )
    return view


def _cost(entry: dict[str, Any]) -> str:
    from antiphon.certificates import round_up

    if entry["mu"] is not None:
        return f"μ = {entry['mu']:.4g}"
    return "Rényi" if entry["epsilon"] is None else f"ε = {round_up(entry['epsilon'])}"


def _summary(values: dict[str, Any]) -> list[str]:
    from antiphon.certificates import round_up

    count = len(values["entries"])
    lines = [f"data:   {values['data']}"] if values["data"] else []
    lines += [
        f"budget: ε = {values['epsilon']:g}, δ = {values['delta']:g}, {values['relation']}, filter "
        f"{values['filter']}",
        f"spent:  ε = {round_up(values['spent_epsilon'])} in {count} entr{'y' if count == 1 else 'ies'}",
        f"left:   a run of μ = {values['left_mu']:.4g}",
    ]
    if values["failure"]:
        lines.append(f"Monte Carlo bounds fail with probability {round_up(values['failure'])}")
    return lines
