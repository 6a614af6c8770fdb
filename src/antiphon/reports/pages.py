"""The report page: one HTML file that needs nothing else."""

import datetime
import json
from typing import Any

from antiphon.reports.figures import facts
from antiphon.reports.markup import Markup, document, download, join, number, tag
from antiphon.reports.promise import meaning, noun, promise, share, upper, warning
from antiphon.reports.results import columns, learned, quality
from antiphon.reports.run import learning, noise

__all__ = ["as_json", "page"]

_Report = dict[str, Any]


def as_json(report: _Report) -> str:
    """The report as the file ``report.json`` holds it."""
    return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def page(report: _Report) -> str:
    """The whole page of a report.

    Args:
        report: From `describe` or `read`.

    Guarantee:
        The page loads nothing, sends nothing and runs no script. Every bound is rounded up: none is below
        the one that is proved. All texts from outside are escaped.
    """
    sections = [
        ("promise", "Promise", "What was released and what is promised", promise(report)),
        ("meaning", "What ε means", "What ε means for a person in the data", meaning(report)),
        ("quality", "Quality", "How good is it", quality(report)),
        ("learning", "Learning", "How it learned", learning(report)),
        ("noise", "Noise", "The noise", noise(report)),
        ("learned", "Functions", "What it learned", learned(report)),
        ("columns", "Columns", "The columns", columns(report)),
        ("machines", "Files", "For machines", _machines(report)),
    ]
    trained = report["trained"]
    title = f"{trained['target']['name']} from {trained['table']}: a private model"
    shown = [(key, name, heading, body) for key, name, heading, body in sections if body]
    return document(title, _header(report), shown, _footer(report))


def _header(report: _Report) -> Markup:
    trained = report["trained"]
    return join(
        tag("p", "Antiphon · report of a private training", class_="eyebrow"),
        tag("h1", f"A private model of {trained['target']['name']}"),
        tag(
            "p",
            "Trained on ",
            number(report, "trained.units", f"{trained['units']:,}"),
            f" {_units(report)} of ",
            tag("b", trained["table"]),
            f" with {_count(trained['columns'])}, on ",
            tag("time", _day(report["date"]), datetime=report["date"]),
            ", with noise that hides every single one of them.",
            class_="lead",
        ),
        warning(report),
        tag("dl", _cards(report), class_="cards"),
    )


def _cards(report: _Report) -> list[Markup]:
    certificate, trained = report["certificate"], report["trained"]
    accuracy = share(report, "certificate.attacks.accuracy")
    return [
        _card(
            "Privacy loss ε",
            upper(report, "certificate.epsilon"),
            join("any attack guesses right in at most ", accuracy),
        ),
        _card(
            "Failure δ", upper(report, "certificate.delta"), "the small rest, added to every bound"
        ),
        _card("Protected", f"one {noun(report)}", certificate["relation"]),
        _card(
            _units(report).capitalize(),
            number(report, "trained.units", f"{trained['units']:,}"),
            "their number is public",
        ),
        _card("Model", *_model(trained["estimator"])),
    ]


def _card(name: str, value: Any, hint: Any) -> Markup:
    return tag(
        "div", tag("dt", name), tag("dd", value, tag("span", hint, class_="hint")), class_="card"
    )


def _model(estimator: str) -> tuple[str, str]:
    """What it is called, and what it is."""
    known = {
        "KAN": ("KAN", "functions of single columns, put together"),
        "MLP": ("Neural network", "layers of weighted sums"),
        "Logistic": ("Logistic", "a weight for every column"),
        "ReLU": ("ReLU", "one unit over all columns"),
    }
    found = (shown for part, shown in known.items() if part in estimator)
    return next(found, (estimator.removeprefix("Private"), "a private estimator"))


def _day(date: str) -> str:
    """As people write it; in any language with its numbers."""
    try:
        day = datetime.date.fromisoformat(date)
    except ValueError:
        return date
    return f"{day.day} {day:%B %Y}"


def _units(report: _Report) -> str:
    return "people" if noun(report) == "person" else "records"


def _count(columns: list[Any]) -> str:
    return f"{len(columns)} column{'' if len(columns) == 1 else 's'}"


def _machines(report: _Report) -> Markup:
    certificate = report["certificate"]
    parts = [
        (as_json(report), "report.json", "Download report.json", "button"),
        (json.dumps(certificate), "certificate.json", "certificate.json", "button quiet"),
        (json.dumps(certificate["plan"]), "plan.json", "plan.json", "button quiet"),
    ]
    links = [
        tag("li", download(text, name, "application/json", shown, class_))
        for text, name, shown, class_ in parts
    ]
    made = [] if report["command"] is None else [("Made by", tag("code", report["command"]))]
    return join(
        tag(
            "p",
            "Everything on this page is in the JSON, with every digit. The certificate can be proved "
            "again from the plan, and attacked:",
        ),
        tag(
            "pre",
            tag("code", "antiphon certify plan.json\nantiphon audit certificate.json"),
            tabindex="0",
        ),
        tag("ul", links, class_="downloads no-print"),
        facts(
            [
                ("Estimator", tag("code", report["trained"]["estimator"])),
                ("Plan (SHA-256)", tag("code", certificate["plan_hash"])),
                ("Accountant", certificate["route"]),
                ("Version", f"antiphon {certificate['version']}"),
                *made,
            ]
        ),
    )


def _footer(report: _Report) -> Markup:
    return tag(
        "p",
        f"Written by antiphon {report['version']} on {report['date']}. The page is complete in itself: "
        "it loads nothing and sends nothing.",
    )
