"""The look that all figures share."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from antiphon_papers.common.experiment import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "errorbars", "finish", "grid", "mark", "panels"]

# They stay apart for readers who see few colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def panels(count: int, title: str = "") -> "tuple[Figure, Sequence[Axes]]":
    """A figure, bound to no window, with panels side by side."""
    figure, (axes,) = grid(1, count, title)
    return figure, axes


def grid(
    rows: int, columns: int, title: str = "", width: float = 4.6
) -> "tuple[Figure, Sequence[Sequence[Axes]]]":
    """The same with several rows of panels, each of a width in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, 4.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    if title:
        figure.suptitle(title, fontsize=10, color="0.35")
    return figure, [list(row) for row in axes]


def errorbars(axes: "Axes", rows: Sequence[Row], x: str, y: str, colour: str, label: str) -> None:
    """A curve of means with their standard errors."""
    axes.errorbar(
        [row[x] for row in rows],
        [row[y] for row in rows],
        [row[f"{y}_se"] or 0.0 for row in rows],
        color=colour,
        marker="o",
        markersize=4,
        capsize=2,
        label=label,
    )


def finish(axes: "Axes", **labels: Any) -> None:
    """Labels, a faint grid, two spines, and a legend of what has a label."""
    from matplotlib.ticker import LogFormatter

    axes.set(**labels)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":  # numbers in place of powers, fewer where there are many
            axis.set_major_formatter(LogFormatter(labelOnlyBase=False))
            axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    axes.grid(alpha=0.25, which="major")
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def mark(axes: "Axes", values: Iterable[float]) -> None:
    """Ticks of the horizontal axis at these values and nowhere else, as plain numbers."""
    places = sorted(set(values))
    axes.set_xticks(places, [f"{value:g}" for value in places])
    axes.set_xticks([], minor=True)
