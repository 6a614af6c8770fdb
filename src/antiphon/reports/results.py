"""How good it is, what it learned, and from which columns: sections of the page about the model."""

from typing import Any

from antiphon.reports.axes import Axis, axis_over, brief, percent
from antiphon.reports.charts import Dots, Line, bars, legend, plot, small, span
from antiphon.reports.figures import figure
from antiphon.reports.markup import Markup, join, number, table, tag
from antiphon.reports.promise import is_of_training, noun

__all__ = ["columns", "learned", "quality"]

_Report = dict[str, Any]
_MOST_CATEGORIES = 12
_PLACES = ("lowest", "quarter", "middle", "three quarters", "highest")


def quality(report: _Report) -> Markup:
    """The evaluation, or why there is none and how to get one."""
    found = report["evaluation"]
    if found is None:
        return _no_score()
    rows = number(report, "evaluation.rows", f"{found['rows']:,}")
    if found["kind"] == "public":
        text = tag(
            "p", "Measured on ", rows, " records that were declared public: it cost no privacy."
        )
    else:
        text = tag(
            "p",
            "Measured on ",
            rows,
            f" private {noun(report)}s that were held out of training. The score is "
            "noisy, and the noise is what protects them; it is paid for within the ε and δ above",
            _cost(report),
            ".",
        )
    pictures = [picture for picture in (_interval(found), _pairs(report)) if picture]
    parts = tag("div", _metrics(report)), tag("div", pictures)
    return join(text, tag("div", parts, class_="split") if pictures else parts[0])


def _no_score() -> Markup:
    return tag(
        "div",
        tag(
            "p",
            "No score is shown. One on the training table would look at private records again, and "
            "anything shown of that would be outside the certificate. Two ways to a score:",
        ),
        tag(
            "ul",
            tag(
                "li",
                tag("code", "--test FILE", class_="flag"),
                " measures on records that you declare public, at no cost;",
            ),
            tag(
                "li",
                tag("code", "--evaluate SHARE", class_="flag"),
                " holds that share of the rows out, and releases "
                "a noisy score of them, paid for within the same ε and δ.",
            ),
        ),
        class_="note",
    )


def _cost(report: _Report) -> str:
    given = report["evaluation"]["cost"]
    costs = [] if given is None else [str(given)]
    for event in report["certificate"]["plan"]["extra"]:
        if not is_of_training(event["what"]):
            size = f"μ = {event['mu']:.4g}" if "mu" in event else f"ε = {event['epsilon']:.4g}"
            costs.append(f"{event['what']}: {size}")
    return f" ({'; '.join(costs)})" if costs else ""


def _metrics(report: _Report) -> Markup:
    found = report["evaluation"]
    intervals = found["interval"] or {}
    confidence = intervals.get("confidence")
    between = "interval" if confidence is None else f"{percent(confidence)} interval"
    rows = []
    for name, value in found["metrics"].items():
        ends = _ends(found, name)
        shown = (
            "–"
            if value is None
            else number(report, ("evaluation", "metrics", name), f"{value:.4g}")
        )
        rows.append([name, shown] + ([_between(ends)] if intervals else []))
    return table("Scores", ["score", "value"] + ([between] if intervals else []), rows)


def _ends(found: dict[str, Any], name: str) -> list[float] | None:
    """The interval of a metric; one without a name is that of the first."""
    intervals = found["interval"] or {}
    if "low" in intervals and name == next(iter(found["metrics"])):
        return [intervals["low"], intervals["high"]]
    ends: list[float] | None = intervals.get(name)
    return ends


def _between(ends: list[float] | None) -> str:
    return "–" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}"


def _interval(found: dict[str, Any]) -> Markup | None:
    name, value = next(iter(found["metrics"].items()), (None, None))
    ends = None if name is None else _ends(found, name)
    if ends is None or value is None:
        return None
    low, high = min(0.0, ends[0]), max(1.0, ends[1])
    text = f"{name}: {value:.4g}, and with the stated confidence between {ends[0]:.4g} and {ends[1]:.4g}."
    drawn = span(
        "interval",
        f"{name} with its interval",
        text,
        Axis(name or "", low, high, brief),
        ends[0],
        ends[1],
        value,
    )
    rows = [("low", f"{ends[0]:.4g}"), ("released", f"{value:.4g}"), ("high", f"{ends[1]:.4g}")]
    return figure(drawn, text, ("", name or ""), rows)


def _pairs(report: _Report) -> Markup | None:
    pairs = report["evaluation"]["pairs"] or {}
    if pairs.get("bins"):
        return _calibration(pairs["bins"], report["trained"]["target"])
    if pairs.get("points"):
        return _predictions(pairs["points"], report["trained"]["target"]["name"])
    return None


def _calibration(bins: list[list[float]], target: dict[str, Any]) -> Markup:
    most = max(count for *_, count in bins)
    seen = [each for each in bins if each[2]]
    dots = Dots(
        "records with this prediction; larger dots are more of them",
        [each[:2] for each in seen],
        1,
        [3 + 8 * (count / most) ** 0.5 for *_, count in seen],
    )
    line = Line("", [each[:2] for each in seen], 1)
    guide = Line("predictions that are right as stated", [[0.0, 0.0], [1.0, 1.0]], 0)
    classes = target["classes"] or []
    of = f" of {target['name']} = {classes[-1]}" if len(classes) == 2 else ""
    drawn = plot(
        "calibration",
        "Calibration: predicted probability against observed share",
        "Points on the diagonal are predictions that come true as often as they say.",
        Axis("predicted probability", 0.0, 1.0, percent),
        Axis("came true", 0.0, 1.0, percent),
        [guide, line, dots],
    )
    rows = [(f"{100 * p:.1f} %", f"{100 * share:.1f} %", f"{count:,}") for p, share, count in seen]
    caption = (
        f"Of records with about the same predicted probability{of}, how often it came true. On the "
        "diagonal a probability can be taken at its word."
    )
    return figure(
        drawn,
        caption,
        ("predicted", "came true", "records"),
        rows,
        legend=legend([dots, guide]),
        title="Do the probabilities mean what they say?",
    )


def _predictions(points: list[list[float]], name: str) -> Markup:
    both = axis_over("", [value for point in points for value in point], is_wide=True)
    x = Axis("predicted", both.low, both.high, brief)
    y = Axis(f"true {name}", both.low, both.high, brief)
    dots = Dots("one record each", points, 1, [3.0] * len(points))
    guide = Line("prediction = truth", [[x.low, x.low], [x.high, x.high]], 0)
    drawn = plot(
        "predictions",
        f"Predicted against true {name}",
        "Points on the diagonal are predicted exactly.",
        x,
        y,
        [guide, dots],
    )
    shown = points[:50]
    caption = "The nearer to the diagonal, the better." + (
        f" The table has the first {len(shown)} of {len(points):,}." if len(points) > 50 else ""
    )
    rows = [(brief(predicted), brief(true)) for predicted, true in shown]
    return figure(
        drawn,
        caption,
        ("predicted", "true"),
        rows,
        legend=legend([dots, guide]),
        title="Predicted and true",
    )


def learned(report: _Report) -> Markup | None:
    """The learned functions; None if the model has no pictures."""
    groups = report["functions"]["groups"]
    if not groups:
        return None
    text = (
        "The model is a sum: each column adds the value of its own function. All pictures have the same "
        "vertical scale; the columns that matter most come first."
        if report["functions"]["is_sum"]
        else "The model has hidden layers: its inputs pass through several layers of functions. The "
        "largest ones of each layer are shown."
    )
    return join(
        tag("p", text, " They are part of the release, and cost no privacy beyond it."),
        [_group(group, place) for place, group in enumerate(groups)],
    )


def _group(group: dict[str, Any], place: int) -> Markup:
    return (_levels if group["kind"] == "levels" else _curves)(group, place)


def _curves(group: dict[str, Any], place: int) -> Markup:
    items, outputs = group["items"], group["outputs"]
    values = [value for item in items for curve in item["y"] for value in curve]
    y = axis_over("", values, zero=True, labels=3)
    panels = []
    for number_, item in enumerate(items):
        x = Axis(item["name"], item["x"][0], item["x"][-1], brief)
        lines = [
            Line(name, list(zip(item["x"], curve, strict=True)), style)
            for style, (name, curve) in enumerate(zip(outputs, item["y"], strict=True), start=1)
        ]
        picture = small(
            f"curve-{place}-{number_}", f"Learned function of {item['name']}", x, y, lines
        )
        panels.append(tag("div", tag("p", item["name"], class_="name"), picture))
    keys = [Line(name, [], style) for style, name in enumerate(outputs, start=1)]
    return figure(
        tag("div", panels, class_="small-multiples"),
        _caption(group, "Upwards"),
        ("column", *(["class"] if len(outputs) > 1 else []), *_PLACES),
        [row for item in items for row in _at_places(item, outputs)],
        legend=legend(keys) if len(outputs) > 1 else None,
        title=group["title"],
        class_="many",
    )


def _at_places(item: dict[str, Any], outputs: list[str]) -> list[list[str]]:
    """The values of each curve at five places of the column's range."""
    last = len(item["x"]) - 1
    rows = []
    for name, curve in zip(outputs, item["y"], strict=True):
        cells = [brief(curve[round(last * i / 4)]) for i in range(5)]
        rows.append([item["name"], *([name] if len(outputs) > 1 else []), *cells])
    return rows


def _levels(group: dict[str, Any], place: int) -> Markup:
    items, outputs = group["items"], group["outputs"]
    x = axis_over(group["unit"] or "", [v for item in items for v in item["y"]], zero=True)
    rows = [(item["name"], item["y"]) for item in items]
    drawn = bars(
        f"levels-{place}",
        group["title"],
        f"The largest effect is that of {items[0]['name']}.",
        x,
        rows,
    )
    keys = [Line(name, [], style) for style, name in enumerate(outputs, start=1)]
    return figure(
        drawn,
        _caption(group, "To the right"),
        ("category", *outputs),
        [(name, *(brief(v) for v in values)) for name, values in rows],
        legend=legend(keys) if len(outputs) > 1 else None,
        title=group["title"],
    )


def _caption(group: dict[str, Any], direction: str) -> str:
    shown, total = len(group["items"]), group["total"]
    unit = f"{direction}: what is added to the {group['unit']}. " if group["unit"] else ""
    return unit + (
        "Largest effects first." if shown == total else f"The {shown} largest of {total}."
    )


def columns(report: _Report) -> Markup:
    """What was declared or found of each column."""
    trained = report["trained"]
    rows = [_column(column) for column in trained["columns"]]
    target = trained["target"]
    kind = "class" if target["classes"] is not None else "number"
    values = target["classes"] if target["classes"] is not None else None
    rows.append(
        [
            join(target["name"], " ", tag("span", "(target)", class_="soft")),
            kind,
            _range(target["bounds"], values),
            _source(target["from"]),
        ]
    )
    return join(
        tag(
            "p",
            "Values outside a range count as its nearest end, and categories that are not listed as none "
            "of them. Ranges marked “private” were found from the data with noise, and are paid for in the "
            "certificate; the others were declared without looking at the records.",
        ),
        table("Columns", ("name", "kind", "range or values", "known from"), rows, numbers=False),
    )


def _column(column: dict[str, Any]) -> list[Any]:
    return [
        column["name"],
        column["kind"],
        _range(column["bounds"], column["categories"]),
        _source(column["from"]),
    ]


def _range(bounds: list[float] | None, values: list[Any] | None) -> str:
    if bounds is not None:
        return f"{brief(bounds[0])} to {brief(bounds[1])}"
    if values is None:
        return "–"
    more = len(values) - _MOST_CATEGORIES
    listed = ", ".join(str(value) for value in values[:_MOST_CATEGORIES])
    return listed if more <= 0 else f"{listed}, and {more} more"


def _source(source: str) -> str:
    return {"private": "private, paid for"}.get(source, source)
