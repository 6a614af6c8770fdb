"""Pictures of the run: the proved trade-off, the noise and what it cancels, the learning curve."""

from typing import Any

from antiphon.reports.axes import Axis, axis_over, brief, percent
from antiphon.reports.captions import Figure, thinned
from antiphon.reports.charts import Line, columns, legend, plot
from antiphon.reports.numerals import bound, bound_percent
from antiphon.reports.wording import noun

__all__ = ["learning_curves", "noise_figures", "trade_off"]

_Report = dict[str, Any]
_RATES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


def trade_off(report: _Report) -> Figure:
    """The most that any attack finds, at every rate of false alarms."""
    points = report["trade_off"]
    curve = Line("no attack finds more", points, 1, is_filled=True)
    coin = Line("a coin", [[0.0, 0.0], [1.0, 1.0]], 0)
    accuracy = bound(100 * report["certificate"]["attacks"]["accuracy"])
    drawn = plot(
        "trade-off",
        "Trade-off curve: the most that any attack finds, at every rate of false alarms",
        f"The proved curve lies above the diagonal of a coin; best accuracy {accuracy} per cent.",
        Axis("false alarms", 0.0, 1.0, percent),
        Axis("found at most", 0.0, 1.0, percent),
        [coin, curve],
    )
    caption = (
        "The nearer the curve is to the dotted diagonal, the less the release tells about any one "
        f"{noun(report)}. On the diagonal it tells nothing."
    )
    rows = [(f"{100 * rate:g} %", bound_percent(_found(points, rate))) for rate in _RATES]
    head = ("false alarms", "found at most")
    return Figure(drawn, caption, head, rows, legend=legend([curve, coin]))


def _found(points: list[list[float]], rate: float) -> float:
    """The curve at the next known rate that is not smaller: the curve rises, so this is a bound."""
    return next(found for known, found in points if known >= rate * (1 - 1e-12))


def learning_curves(report: _Report) -> list[Figure]:
    """One for each name that was measured while the model was trained."""
    rows = report["learning"]
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    return [_learning(rows, name, place) for place, name in enumerate(names)]


def _learning(rows: list[dict[str, Any]], name: str, place: int) -> Figure:
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
    few = [(f"{step:g}", "–" if value is None else brief(value)) for step, value in thinned(points)]
    return Figure(drawn, f"{name}: {last}.", ("step", name), few)


def noise_figures(report: _Report) -> list[Figure]:
    """What each step cancels, and how the noise adds up; what is not known is left out."""
    noise = report["noise"]
    found = [_taken_back(noise["taken_back"])] if noise["taken_back"] else []
    return found + ([_summed(noise["summed"], noun(report))] if noise["summed"] else [])


def _taken_back(points: list[list[float]]) -> Figure:
    used = [lag for lag, value in points if abs(value) > 5e-4]
    shown = points[: int(max(6, max(used, default=1)))]
    lags, parts = zip(*shown, strict=True)
    first = percent(parts[0])
    drawn = columns(
        "taken-back",
        "Correlation of the noise: what a step cancels of earlier noise",
        f"A step cancels {first} of the noise of the step before it.",
        axis_over("steps back", [0.5, lags[-1] + 0.5], labels=6),
        axis_over("share taken back", parts, percent, zero=True, is_wide=True),
        shown,
    )
    caption = (
        f"Each step cancels {first} of the noise that the step before it has drawn"
        f"{', less of what is longer ago' if len(used) > 1 else ''}. Shown for the last step."
    )
    rows = [(lag, brief(part)) for lag, part in points]
    return Figure(drawn, caption, ("steps back", "share"), rows, "What each step cancels")


def _summed(rows: list[list[Any]], unit: str) -> Figure:
    parts = [Line("this run", [[step, value] for step, value, _ in rows], 1)]
    last, without = rows[-1][1], rows[-1][2]
    caption = f"After the last step, {brief(last)} times the largest push of one {unit}"
    if without is not None:
        parts.append(Line("independent noise, same promise", [[row[0], row[2]] for row in rows], 2))
        left = f"independent noise of the same ε and δ would leave {brief(without)}"
        caption += f"; {left}, {_compared(without / last)}"
    caption += "."
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
    shown = [(row[0], *(brief(v) for v in row[1:] if v is not None)) for row in thinned(rows)]
    return Figure(drawn, caption, head, shown, "Noise in the sum of all steps", legend(parts))


def _compared(factor: float) -> str:
    if 0.995 < factor < 1.005:
        return "as much"
    if factor > 1:
        return f"{brief(factor)} times as much"
    return "less: here the correlation does not pay in this sum"
