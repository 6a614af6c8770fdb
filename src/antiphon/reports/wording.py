"""How the pages say the facts of a report."""

import datetime
import json
from collections.abc import Sequence
from typing import Any

from antiphon.reports.axes import brief

__all__ = [
    "as_json",
    "assumptions",
    "batches",
    "costs",
    "day",
    "interval_of",
    "is_of_training",
    "model_name",
    "noun",
    "sentence",
    "value_range",
]

_Report = dict[str, Any]
_MOST_CATEGORIES = 12
_MODELS = {
    "KAN": ("KAN", "functions of single columns, put together"),
    "MLP": ("Neural network", "layers of weighted sums"),
    "Logistic": ("Logistic", "a weight for every column"),
    "ReLU": ("ReLU", "one unit over all columns"),
}


def as_json(report: _Report) -> str:
    """The report as the file ``report.json`` holds it."""
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sentence(line: str) -> str:
    """With a capital and a full stop."""
    return f"{line[:1].upper()}{line[1:]}{'' if line.endswith('.') else '.'}"


def day(date: str) -> str:
    """As people write it; in any language with its numbers."""
    try:
        found = datetime.date.fromisoformat(date)
    except ValueError:
        return date
    return f"{found.day} {found:%B %Y}"


def noun(report: _Report) -> str:
    """What one unit is called on the page."""
    return "person" if report["certificate"]["unit"] == "user" else "record"


def model_name(estimator: str) -> tuple[str, str]:
    """What it is called, and what it is."""
    found = (shown for part, shown in _MODELS.items() if part in estimator)
    return next(found, (estimator.removeprefix("Private"), "a private estimator"))


def batches(report: _Report) -> str:
    """Who is in a batch."""
    drawn = report["certificate"]["plan"]["sampling"]
    if drawn["kind"] == "poisson":
        chance = f"{drawn['rate']:.4g}"
        return f"each {noun(report)} joins with probability {chance}, by a coin of its own"
    if drawn["kind"] == "full-batch":
        return "all of the data in every step"
    return str(report["certificate"]["sampling"])


def is_of_training(what: str) -> bool:
    """Whether a paid release is a part of the training, such as bounds of the columns, and not a score."""
    return what.startswith(("bounds", "the clip norm"))


def assumptions(certificate: dict[str, Any]) -> list[str]:
    """What the promise holds under, in sentences."""
    paid = {event["what"]: event for event in certificate["plan"]["extra"]}
    lines = []
    for line in certificate["assumptions"]:
        what = line.partition(" was released: ")[0]
        own = f"Released with noise of its own: {what}"
        known = what in paid
        lines.append(
            f"{own} ({_price(paid[what])}), which ε and δ include." if known else sentence(line)
        )
    return lines


def costs(report: _Report) -> str:
    """How the score is paid for, in brackets; nothing if that is not known."""
    given, extra = report["evaluation"]["cost"], report["certificate"]["plan"]["extra"]
    found = [] if given is None else [str(given)]
    found += [f"{e['what']}: {_price(e)}" for e in extra if not is_of_training(e["what"])]
    return f" ({'; '.join(found)})" if found else ""


def _price(event: dict[str, Any]) -> str:
    return f"μ = {event['mu']:.4g}" if "mu" in event else f"ε = {event['epsilon']:.4g}"


def interval_of(evaluation: dict[str, Any], name: str) -> list[float] | None:
    """The interval of a metric; one without a name is that of the first."""
    intervals = evaluation["interval"] or {}
    if "low" in intervals and name == next(iter(evaluation["metrics"])):
        return [intervals["low"], intervals["high"]]
    ends: list[float] | None = intervals.get(name)
    return ends


def value_range(bounds: Sequence[float] | None, values: Sequence[Any] | None) -> str:
    """What a column may hold: from where to where, or the first of its categories."""
    if bounds is not None:
        return f"{brief(bounds[0])} to {brief(bounds[1])}"
    if values is None:
        return "–"
    more = len(values) - _MOST_CATEGORIES
    listed = ", ".join(str(value) for value in values[:_MOST_CATEGORIES])
    return listed if more <= 0 else f"{listed}, and {more} more"
