"""Pictures of the model: how good it is, and the functions that it learned."""

from typing import Any

from markupsafe import Markup

from antiphon.reports.axes import Axis, axis_over, brief, percent
from antiphon.reports.captions import Figure
from antiphon.reports.charts import Dots, Line, bars, legend, plot, small, span
from antiphon.reports.numerals import count
from antiphon.reports.wording import interval_of

__all__ = ["learned_functions", "quality_figures"]

_Report = dict[str, Any]
_PLACES = ("lowest", "quarter", "middle", "three quarters", "highest")


def quality_figures(report: _Report) -> list[Figure]:
    """The interval of the first score, and the predictions, as far as they are known."""
    found, target = report["evaluation"], report["trained"]["target"]
    if found is None:
        return []
    name, value = next(iter(found["metrics"].items()), (None, None))
    ends = None if name is None else interval_of(found, name)
    figures = [] if ends is None or value is None else [_interval(str(name), value, *ends)]
    pairs = found["pairs"] or {}
    if pairs.get("bins"):
        figures.append(_calibration(pairs["bins"], target))
    elif pairs.get("points"):
        figures.append(_predictions(pairs["points"], target["name"]))
    return figures


def _interval(name: str, value: float, low: float, high: float) -> Figure:
    told = f"{name}: {value:.4g}, and with the stated confidence between {low:.4g} and {high:.4g}."
    axis = Axis(name, min(0.0, low), max(1.0, high), brief)
    drawn = span("interval", f"{name} with its interval", told, axis, low, high, value)
    places = {"low": low, "released": value, "high": high}
    return Figure(drawn, told, ("", name), [(at, f"{v:.4g}") for at, v in places.items()])


def _calibration(bins: list[list[float]], target: dict[str, Any]) -> Figure:
    most = max(records for *_, records in bins)
    seen = [each for each in bins if each[2]]
    points = [each[:2] for each in seen]
    sizes = [3 + 8 * (records / most) ** 0.5 for *_, records in seen]
    dots = Dots("records with this prediction; larger dots are more of them", points, sizes)
    guide = Line("predictions that are right as stated", [[0.0, 0.0], [1.0, 1.0]], 0)
    drawn = plot(
        "calibration",
        "Calibration: predicted probability against observed share",
        "Points on the diagonal are predictions that come true as often as they say.",
        Axis("predicted probability", 0.0, 1.0, percent),
        Axis("came true", 0.0, 1.0, percent),
        [guide, Line("", points, 1), dots],
    )
    classes = target["classes"] or []
    of = f" of {target['name']} = {classes[-1]}" if len(classes) == 2 else ""
    caption = (
        f"Of records with about the same predicted probability{of}, how often it came true. On the "
        "diagonal a probability can be taken at its word."
    )
    head = ("predicted", "came true", "records")
    rows = [(f"{100 * p:.1f} %", f"{100 * s:.1f} %", f"{records:,}") for p, s, records in seen]
    title = "Do the probabilities mean what they say?"
    return Figure(drawn, caption, head, rows, title, legend([dots, guide]))


def _predictions(points: list[list[float]], name: str) -> Figure:
    both = axis_over("", [value for point in points for value in point], is_wide=True)
    low, high = both.low, both.high
    dots = Dots("one record each", points, [3.0] * len(points))
    guide = Line("prediction = truth", [[low, low], [high, high]], 0)
    drawn = plot(
        "predictions",
        f"Predicted against true {name}",
        "Points on the diagonal are predicted exactly.",
        Axis("predicted", low, high, brief),
        Axis(f"true {name}", low, high, brief),
        [guide, dots],
    )
    few = [(brief(predicted), brief(true)) for predicted, true in points[:50]]
    more = f" The table has the first 50 of {count(len(points))}." if len(points) > 50 else ""
    caption = f"The nearer to the diagonal, the better.{more}"
    names = legend([dots, guide])
    return Figure(drawn, caption, ("predicted", "true"), few, "Predicted and true", names)


def learned_functions(report: _Report) -> list[Figure]:
    """One figure for each group; none if the model has no pictures."""
    groups = report["functions"]["groups"]
    return [
        (_levels if group["kind"] == "levels" else _curves)(group, place)
        for place, group in enumerate(groups)
    ]


def _curves(group: dict[str, Any], place: int) -> Figure:
    items, outputs = group["items"], group["outputs"]
    y = axis_over("", [v for i in items for curve in i["y"] for v in curve], zero=True, labels=3)
    panel = Markup('<div><p class="name">{}</p>{}</div>')
    panels, rows = [], []
    for number, item in enumerate(items):
        name, x = item["name"], item["x"]
        curves = list(zip(outputs, item["y"], strict=True))
        lines = [
            Line(output, list(zip(x, curve, strict=True)), style)
            for style, (output, curve) in enumerate(curves, start=1)
        ]
        title, axis = f"Learned function of {name}", Axis(name, x[0], x[-1], brief)
        panels.append(panel.format(name, small(f"curve-{place}-{number}", title, axis, y, lines)))
        for output, curve in curves:
            cells = [brief(curve[round((len(x) - 1) * i / 4)]) for i in range(5)]
            rows.append([name, *([output] if len(outputs) > 1 else []), *cells])
    drawn = Markup('<div class="small-multiples">{}</div>').format(Markup().join(panels))
    head = ("column", *(["class"] if len(outputs) > 1 else []), *_PLACES)
    caption = _caption(group, "Upwards")
    return Figure(drawn, caption, head, rows, group["title"], _outputs(outputs), is_many=True)


def _levels(group: dict[str, Any], place: int) -> Figure:
    items, outputs = group["items"], group["outputs"]
    x = axis_over(group["unit"] or "", [v for item in items for v in item["y"]], zero=True)
    told = f"The largest effect is that of {items[0]['name']}."
    values = [(item["name"], item["y"]) for item in items]
    drawn = bars(f"levels-{place}", group["title"], told, x, values)
    rows = [(name, *(brief(v) for v in ups)) for name, ups in values]
    head, caption = ("category", *outputs), _caption(group, "To the right")
    return Figure(drawn, caption, head, rows, group["title"], _outputs(outputs))


def _outputs(names: list[str]) -> Markup | None:
    """The colours of several outputs."""
    return legend([Line(name, [], style) for style, name in enumerate(names, start=1)])


def _caption(group: dict[str, Any], direction: str) -> str:
    shown, total = len(group["items"]), group["total"]
    unit = f"{direction}: what is added to the {group['unit']}. " if group["unit"] else ""
    most = "Largest effects first." if shown == total else f"The {shown} largest of {total}."
    return unit + most
