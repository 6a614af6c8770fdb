"""The certificate in plain words: what was released, what is promised, what ε means for a person."""

import math
from typing import Any

from antiphon.certificate import round_up
from antiphon.reports.axes import Axis, percent
from antiphon.reports.charts import Line, legend, plot
from antiphon.reports.figures import facts, figure
from antiphon.reports.markup import Markup, join, number, powers, tag

__all__ = ["is_of_training", "is_seeded", "meaning", "noun", "promise", "share", "upper", "warning"]

_Report = dict[str, Any]

# What neighbours differ in, and what an attack on one unit would have to find out.
_DIFFERENCE = {
    "add-remove": "whether or not the data hold one given {unit}",
    "zero-out": "whether one given {unit} counted or was set to zero",
    "replace-one": "which of two given {unit}s was in the data",
}
_QUESTION = {
    "add-remove": "was this {unit} in the data?",
    "zero-out": "did this {unit} count?",
    "replace-one": "was it this {unit} or that one?",
}
_PRESENCE = {
    "add-remove": "that their {unit} is in the data",
    "zero-out": "that their {unit} counts",
    "replace-one": "that the data hold their {unit}, and not another in its place,",
}
_NEIGHBOURS = {
    "add-remove": "one {unit} more or less (add-remove)",
    "zero-out": "the same, with one {unit} set to zero (zero-out)",
    "replace-one": "the same, with one {unit} replaced by any other (replace-one)",
}
_ATTACKS = "certificate.attacks"
_TABLE_RATES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


def noun(report: _Report) -> str:
    """What one unit is called on the page."""
    return "person" if report["certificate"]["unit"] == "user" else "record"


def is_seeded(report: _Report) -> bool:
    """Whether the noise can be drawn again by whoever knows the seed."""
    return any("not for release" in line for line in report["certificate"]["assumptions"])


def upper(report: _Report, path: str) -> Markup:
    """A bound of the certificate, rounded up."""
    return number(report, path, round_up(_at(report, path)))


def share(report: _Report, path: str) -> Markup:
    """A bound that is a share, rounded up, in per cent."""
    return number(report, path, f"{round_up(100 * _at(report, path))} %")


def warning(report: _Report) -> Markup | None:
    """What must be seen before everything else, if there is such a thing."""
    if not is_seeded(report):
        return None
    return tag(
        "aside",
        tag("strong", "Reproducible, not for release. "),
        "The noise and the batches came from a seed. Whoever knows the seed can take the noise off again: "
        "the promise below holds only towards those who do not. For a model to be given away, train again "
        "without a seed.",
        class_="note bad",
        aria_label="Warning",
    )


def promise(report: _Report) -> Markup:
    """What was released, and what is promised of it."""
    certificate, unit = report["certificate"], noun(report)
    difference = _DIFFERENCE[certificate["relation"]].format(unit=unit)
    return join(
        tag("p", "Released was ", _released(report), "."),
        tag(
            "p",
            "The promise: from all of that together, nobody can tell well ",
            tag("strong", difference),
            ", however much else they know, and whatever they compute from it now or later. How well at "
            "most is measured by two numbers, ε = ",
            upper(report, "certificate.epsilon"),
            " and δ = ",
            upper(report, "certificate.delta"),
            "; smaller is more private.",
        ),
        _whose(report),
        tag(
            "div",
            tag("div", tag("h3", "The guarantee"), facts(_why(report))),
            tag("div", tag("h3", "It holds if"), _assumptions(report)),
            class_="split",
        ),
    )


def _assumptions(report: _Report) -> Markup:
    certificate = report["certificate"]
    paid = {event["what"]: event for event in certificate["plan"]["extra"]}
    lines = []
    for line in certificate["assumptions"]:
        what = line.partition(" was released: ")[0]
        lines.append(_payment(paid[what]) if what in paid else _sentence(line))
    return tag("ul", [tag("li", line) for line in lines], class_="assumptions")


def _payment(event: dict[str, Any]) -> str:
    size = f"μ = {event['mu']:.4g}" if "mu" in event else f"ε = {event['epsilon']:.4g}"
    return f"Released with noise of its own: {event['what']} ({size}), which ε and δ include."


def is_of_training(what: str) -> bool:
    """Whether a paid release is a part of the training, such as bounds of the columns, and not a score."""
    return what.startswith(("bounds", "the clip norm"))


def _released(report: _Report) -> Markup:
    trained = report["trained"]
    parts: list[Any] = [
        join(
            "the trained model, ",
            number(report, "trained.parameters", f"{trained['parameters']:,}"),
            " numbers",
        )
    ]
    plan = report["certificate"]["plan"]
    parts += [event["what"] for event in (*plan["extra"], *plan.get("apart", ()))]
    first, *others = parts
    return join(first, [join(", and " if part is parts[-1] else ", ", part) for part in others])


def _whose(report: _Report) -> Markup:
    if report["certificate"]["unit"] == "user":
        return tag("p", "Protected is a person with all of their rows in the table.")
    return tag(
        "p",
        "A record is one row of the table. Somebody with several rows is protected less; to protect people "
        "with all their rows, name the column that tells them apart: ",
        tag("code", "--user COLUMN", class_="flag"),
        ".",
    )


def _why(report: _Report) -> list[tuple[str, Any]]:
    certificate = report["certificate"]
    lines = [
        (
            "Guarantee",
            join(
                "(",
                upper(report, "certificate.epsilon"),
                ", ",
                upper(report, "certificate.delta"),
                ")-differential privacy",
            ),
        ),
        ("Neighbours", _NEIGHBOURS[certificate["relation"]].format(unit=noun(report))),
        ("Batches", _batches(report)),
        ("Why it holds", _sentence(certificate["theorem"])),
        (
            "Can it be better?",
            "No: some data and some attack reach it."
            if certificate["is_tight"]
            else "Maybe: the truth may be more private than what is proved here, never less.",
        ),
    ]
    if certificate["confidence"] is not None:
        failure = round_up(round(1 - certificate["confidence"], 12))
        text = (
            "The bound, with all that follows from it on this page, was computed by simulation. It is "
            f"wrong with probability at most {powers(failure)}."
        )
        lines.append(("Confidence", text))
    lines.append(("Sources", ", ".join(certificate["references"])))
    return lines


def _batches(report: _Report) -> str:
    certificate = report["certificate"]
    drawn = certificate["plan"]["sampling"]
    if drawn["kind"] == "poisson":
        return (
            f"each {noun(report)} joins with probability {drawn['rate']:.4g}, by a coin of its own"
        )
    return (
        "all of the data in every step"
        if drawn["kind"] == "full-batch"
        else certificate["sampling"]
    )


def meaning(report: _Report) -> Markup:
    """What ε means for a person in the data."""
    certificate, unit = report["certificate"], noun(report)
    question = _QUESTION[certificate["relation"]].format(unit=unit)
    scene = tag(
        "p",
        "Imagine an attacker who knows the model, the whole rest of the table and everything about one "
        f"{unit}, and asks one question: ",
        tag("em", question),
        " No such attack, known or unknown, can do better than this:",
    )
    limits = tag(
        "p",
        "Not promised is that nothing can be learned about a person. What is true of many, such as that a "
        "disease is more frequent at some age, the model may tell of anybody, also of those who were not "
        "in the data. The promise is that it hardly matters whether they were.",
        class_="soft",
    )
    return join(
        scene,
        tag("div", tag("div", _numbers(report), limits), _trade_off(report), class_="split"),
    )


def _numbers(report: _Report) -> Markup:
    """The bounds on attacks as sentences, each rounded up."""
    certificate = report["certificate"]
    presence = _PRESENCE[certificate["relation"]].format(unit=noun(report))
    factor = powers(round_up(math.exp(certificate["epsilon"])))
    return tag(
        "ul",
        tag(
            "li",
            "It answers right in at most ",
            tag("strong", share(report, f"{_ATTACKS}.accuracy")),
            " of cases, if both answers are equally likely before. A coin is right in 50 %.",
        ),
        tag(
            "li",
            "If it may raise 1 false alarm in 100, it finds at most ",
            tag("strong", share(report, f"{_ATTACKS}.true_positive_at_1_percent")),
            " of those it looks for; with 1 false alarm in 1,000, at most ",
            tag("strong", share(report, f"{_ATTACKS}.true_positive_at_01_percent")),
            ".",
        ),
        tag(
            "li",
            f"Whatever may happen to somebody because of the release: {presence} makes it at most e",
            tag("sup", "ε"),
            f" = {factor} times as likely, plus δ ({_one_in(certificate['delta'])}).",
        ),
        class_="points",
    )


def _trade_off(report: _Report) -> Markup:
    points = report["trade_off"]
    alarms = Axis("false alarms", 0.0, 1.0, percent)
    found = Axis("found at most", 0.0, 1.0, percent)
    curve = Line("no attack finds more", points, 1, is_filled=True)
    coin = Line("a coin", [[0.0, 0.0], [1.0, 1.0]], 0)
    accuracy = round_up(100 * report["certificate"]["attacks"]["accuracy"])
    drawn = plot(
        "trade-off",
        "Trade-off curve: the most that any attack finds, at every rate of false alarms",
        f"The proved curve lies above the diagonal of a coin; best accuracy {accuracy} per cent.",
        alarms,
        found,
        [coin, curve],
    )
    rows = [
        (f"{100 * rate:g} %", f"{round_up(100 * _interpolated(points, rate))} %")
        for rate in _TABLE_RATES
    ]
    return figure(
        drawn,
        "The nearer the curve is to the dotted diagonal, the less the release tells about any one "
        f"{noun(report)}. On the diagonal it tells nothing.",
        ("false alarms", "found at most"),
        rows,
        legend=legend([curve, coin]),
    )


def _interpolated(points: list[list[float]], rate: float) -> float:
    """The curve at the next known rate that is not smaller: the curve rises, so this is a bound."""
    return next(found for known, found in points if known >= rate * (1 - 1e-12))


def _one_in(delta: float) -> str:
    return f"at most 1 in {math.floor(1 / delta * (1 + 1e-12)):,}"


def _sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}{'' if line.endswith('.') else '.'}"


def _at(report: _Report, path: str) -> float:
    value: Any = report
    for key in path.split("."):
        value = value[key]
    return float(value)
