"""How Figures 1 and 2 of the ReLU paper are drawn: a row for each table, a column for each ε."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon_papers.common.drawing import COLOURS, finish, grid
from antiphon_papers.common.experiment import Row
from antiphon_papers.relu.experiments.neuron_curves import METHODS, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]


def draw(rows: Sequence[Row], measure: str) -> "Figure":
    """Losses against passes; in brackets the ε that a curve really costs."""
    means = summary(rows)
    tables = list(dict.fromkeys(row["data"] for row in means))
    epsilons = sorted({row["epsilon"] for row in means})
    title = "in brackets: the ε that a run really costs; stars: averaged weights"
    figure, axes = grid(len(tables), len(epsilons), title, width=5.2)
    for places, data in zip(axes, tables, strict=True):
        for place, epsilon in zip(places, epsilons, strict=True):
            here = [row for row in means if (row["data"], row["epsilon"]) == (data, epsilon)]
            _panel(place, here, measure)
            place.set(xscale="log", yscale="log")
            finish(place, title=f"{data}: nominal ε = {epsilon:g}", xlabel="passes", ylabel=measure)
    return figure


def _panel(axes: "Axes", rows: Sequence[Row], measure: str) -> None:
    for (name, method), colour in zip(METHODS.items(), COLOURS, strict=True):
        curve = [row for row in rows if row["method"] == name]
        if not curve:
            continue
        if name == "none":
            axes.axhline(curve[0][measure], color=colour, linestyle=":", label=method.label)
            continue
        some = [row for row in curve if not row["is_average"]]
        label = f"{method.label} ({curve[0]['real_epsilon']:.3g})"
        axes.plot(
            [r["passes"] for r in some], [r[measure] for r in some], color=colour, label=label
        )
        ends = [row for row in curve if row["is_average"]]
        axes.plot([r["passes"] for r in ends], [r[measure] for r in ends], "*", color=colour)
