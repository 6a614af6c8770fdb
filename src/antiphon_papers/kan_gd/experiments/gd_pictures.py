"""How both figures of [KANGradientDescent26] are drawn: a row for each setting, m left, T right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon_papers.common.averages import grouped
from antiphon_papers.common.drawing import COLOURS, finish, grid, mark
from antiphon_papers.common.experiment import Row
from antiphon_papers.kan_gd.experiments.gd_runs import NOISES, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_SWEEPS = {"width": "m", "steps": "T"}


def draw(rows: Sequence[Row], measure: str, level: str, level_label: str) -> "Figure":
    """A figure of one measure.

    Args:
        rows: Of `gd_runs.run`.
        measure: "accuracy" or "loss".
        level: The column that is a dotted line, what a constant answer would have.
        level_label: What that line is called.
    """
    settings = grouped(summary(rows), ["data", "step_size", "radius"])
    title = "test: solid; train: dashed (public data); in brackets: largest certified ε"
    figure, axes = grid(len(settings), len(_SWEEPS), title, width=6.2)
    for places, ((data, step_size, radius), found) in zip(axes, settings.items(), strict=True):
        for place, (sweep, symbol) in zip(places, _SWEEPS.items(), strict=True):
            some = [row for row in found if row["sweep"] == sweep]
            _panel(place, some, sweep, measure)
            place.axhline(some[0][level], color="0.3", linestyle=":", label=level_label)
            name = f"{data}: η = {step_size:g}, R = {radius:g}, {_fixed(some, sweep)}"
            place.set_xscale("log", base=2)
            finish(place, title=name, xlabel=symbol, ylabel=measure)
            mark(place, (row[sweep] for row in some))
            place.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _panel(axes: "Axes", rows: Sequence[Row], sweep: str, measure: str) -> None:
    curves = {noise: [row for row in rows if row["noise"] == noise] for noise in NOISES}
    for (noise, curve), colour in zip(curves.items(), COLOURS, strict=False):
        places = [row[sweep] for row in curve]
        axes.errorbar(
            places,
            [row[f"test_{measure}"] for row in curve],
            [row[f"test_{measure}_se"] or 0.0 for row in curve],
            color=colour,
            marker="o",
            markersize=4,
            capsize=2,
            label=_label(noise, curve),
        )
        values = [row[f"train_{measure}"] for row in curve]
        axes.plot(places, values, color=colour, linestyle="--", linewidth=0.8)


def _label(noise: str, curve: Sequence[Row]) -> str:
    certified = [row["epsilon"] for row in curve if row["epsilon"] is not None]
    return f"{noise} (ε = {max(certified):.2g})" if certified else noise.replace("none", "no noise")


def _fixed(rows: Sequence[Row], sweep: str) -> str:
    """What does not vary, in words."""
    other = "steps" if sweep == "width" else "width"
    return f"{_SWEEPS[other]} = {rows[0][other]}"
