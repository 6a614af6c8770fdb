"""How it learned, and the noise: sections of the page about the run itself."""

import re
from typing import Any

from antiphon.reports.axes import axis_over, brief, percent
from antiphon.reports.charts import Line, columns, legend, plot
from antiphon.reports.figures import facts, figure
from antiphon.reports.markup import Markup, join, number, tag
from antiphon.reports.promise import noun

__all__ = ["learning", "noise"]

_Report = dict[str, Any]
_TABLE_ROWS = 12


def learning(report: _Report) -> Markup:
    """The learning curve, or why there is none."""
    rows = report["learning"]
    if not rows:
        return tag(
            "p",
            "There is no learning curve. Drawn from the training table it would be one more look at "
            "private records, which the certificate does not cover. With records that are declared "
            "public (",
            tag("code", "--test FILE", class_="flag"),
            "), the curve on those is shown here.",
            class_="note",
        )
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    return join(
        tag("p", "Measured on public records while the model was trained; it cost no privacy."),
        tag("div", [_curve(rows, name, place) for place, name in enumerate(names)], class_="split"),
    )


def _curve(rows: list[dict[str, Any]], name: str, place: int) -> Markup:
    points = [[row["step"], row.get(name)] for row in rows]
    known = [value for _, value in points if value is not None]
    last = f"{brief(known[0])} at first, {brief(known[-1])} at the end" if known else "no value"
    drawn = plot(
        f"learning-{place}",
        f"Learning curve: {name} by step",
        f"{name}: {last}.",
        axis_over("step", [row["step"] for row in rows]),
        axis_over(name, known, is_wide=True),
        [Line(name, points)],
    )
    few = _thinned(points)
    rows_shown = [(f"{step:g}", "–" if value is None else brief(value)) for step, value in few]
    return figure(drawn, f"{name}: {last}.", ("step", name), rows_shown)


def noise(report: _Report) -> Markup:
    """Which noise was added, how it is correlated and how it adds up."""
    settings, found = report["trained"]["settings"], report["noise"]
    unit = noun(report)
    first = (
        f"In every step each {unit} may push the model by at most the clip norm, and Gaussian noise hides "
        "each single push. "
    )
    if found["is_independent"]:
        second = (
            "The noise of every step is drawn anew, independently of all others (as in DP-SGD)."
        )
    else:
        second = (
            "The noise is correlated: each step takes back a part of what earlier steps have added."
        )
    pictures = [picture for picture in (_taken_back(report), _summed(report)) if picture]
    return join(
        tag("p", first, second),
        facts(
            [
                ("Mechanism", _shortened(settings["mechanism"])),
                ("Noise multiplier", _setting(report, "noise_multiplier")),
                ("Clip norm", _setting(report, "clip_norm")),
                ("Steps", number(report, "trained.settings.steps", f"{settings['steps']:,}")),
                ("Expected batch", join(_setting(report, "expected_batch"), f" {_plural(unit)}")),
                ("Learning rate", _setting(report, "learning_rate")),
            ]
        ),
        tag("div", pictures, class_="split") if len(pictures) > 1 else pictures,
    )


def _shortened(text: str) -> str:
    """The same with four digits of each long number; all of them are in the JSON."""
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def _plural(unit: str) -> str:
    return "people" if unit == "person" else f"{unit}s"


def _setting(report: _Report, name: str) -> Any:
    value = report["trained"]["settings"][name]
    return "–" if value is None else number(report, f"trained.settings.{name}", f"{value:.4g}")


def _taken_back(report: _Report) -> Markup | None:
    points = report["noise"]["taken_back"]
    if not points:
        return None
    used = [lag for lag, value in points if abs(value) > 5e-4]
    shown = points[: max(6, max(used, default=1))]
    lags, parts = zip(*shown, strict=True)
    drawn = columns(
        "taken-back",
        "Correlation of the noise: what a step takes back of earlier noise",
        f"A step takes back {percent(parts[0])} of the noise of the step before it.",
        axis_over("steps back", [0.5, lags[-1] + 0.5], labels=6),
        axis_over("share taken back", parts, percent, zero=True, is_wide=True),
        shown,
    )
    caption = (
        f"Each step takes back {percent(parts[0])} of the noise that the step before it has drawn"
        f"{', less of what is longer ago' if len(used) > 1 else ''}. Shown for the last step."
    )
    rows = [(lag, brief(part)) for lag, part in points]
    return figure(drawn, caption, ("steps back", "share"), rows, title="What each step takes back")


def _summed(report: _Report) -> Markup | None:
    rows = report["noise"]["summed"]
    if not rows:
        return None
    own = Line("this run", [[step, value] for step, value, _ in rows], 1)
    parts = [own]
    last, without = rows[-1][1], rows[-1][2]
    caption = f"After the last step, {brief(last)} times the largest push of one {noun(report)}"
    if without is None:
        caption += "."
    else:
        parts.append(Line("independent noise, same promise", [[row[0], row[2]] for row in rows], 2))
        caption += (
            f"; independent noise of the same ε and δ would leave {brief(without)}, "
            f"{_compared(without / last)}."
        )
    values = [value for row in rows for value in row[1:] if value is not None]
    drawn = plot(
        "summed",
        "Standard deviation of the noise in the sum of all steps so far",
        caption,
        axis_over("step", [1, rows[-1][0]]),
        axis_over("in units of the clip norm", values, zero=True, is_wide=True),
        parts,
    )
    head = ("step", *(part.name for part in parts))
    shown = [(row[0], *(brief(v) for v in row[1:] if v is not None)) for row in _thinned(rows)]
    return figure(
        drawn,
        caption,
        head,
        shown,
        legend=legend(parts) if len(parts) > 1 else None,
        title="Noise in the sum of all steps",
    )


def _compared(factor: float) -> str:
    if 0.995 < factor < 1.005:
        return "as much"
    if factor > 1:
        return f"{brief(factor)} times as much"
    return "less: here the correlation does not pay in this sum"


def _thinned(rows: list[Any]) -> list[Any]:
    """About a dozen rows, the first and the last among them."""
    last = len(rows) - 1
    places = {round(last * i / (_TABLE_ROWS - 1)) for i in range(_TABLE_ROWS)}
    return [rows[place] for place in sorted(places)]
