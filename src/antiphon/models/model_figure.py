"""Pictures of the learned splines: one small curve per edge, or one panel per input."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.models.splines import spline_basis

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from antiphon.models.kan import KANLayer

    Curves = NDArray[np.float64]
else:
    from jaxtyping import Float64

    Curves = Float64[np.ndarray, "outputs inputs points"]

__all__ = ["Edges", "Levels", "draw", "edges", "names_of"]

_POINTS = 101
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_WIDTH = 1.9  # inches of one panel
_HEIGHT = 1.45


@final
@dataclass(frozen=True, eq=False)
class Edges:
    """The functions on all edges of one layer.

    Attributes:
        title: Of the layer.
        curves: Their values at evenly spaced points of the domain.
        ends: Of the domain, as they are to be shown: one pair for all inputs, or one for each.
        inputs: Names of the inputs.
        outputs: Names of the outputs; of a single output, maybe an empty one.
    """

    title: str
    curves: Curves
    ends: tuple[float, float] | tuple[tuple[float, float], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def points(self, place: int) -> "NDArray[np.float64]":
        """Where the curves of this input are known."""
        low, high = np.atleast_2d(self.ends)[place if np.ndim(self.ends) == 2 else 0]
        return np.linspace(low, high, self.curves.shape[-1])

    def ranked(self) -> list[tuple[int, int]]:
        """All pairs (output, input), the curves with the largest range first."""
        ranges = np.ptp(self.curves, axis=-1)
        order = np.argsort(-ranges, axis=None, kind="stable")
        return [divmod(int(place), len(self.inputs)) for place in order]


@final
@dataclass(frozen=True, eq=False)
class Levels:
    """What each category adds to each output.

    Attributes:
        title: Of the part.
        values: Shape (outputs, categories).
        inputs: Names of the categories.
        outputs: Names of the outputs; of a single output, maybe an empty one.
    """

    title: str
    values: "NDArray[np.float64]"
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def edges(
    layer: "KANLayer",
    title: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    factor: float = 1.0,
) -> Edges:
    """The edges of a layer, base functions included, with their values times ``factor``."""
    grid = layer.splines
    x = torch.linspace(grid.low, grid.high, _POINTS, dtype=torch.float64)
    with torch.no_grad():
        coef = layer.coef.detach().cpu().double().reshape(layer.out_features, -1, grid.size)
        curves = coef @ spline_basis(x, grid).T
        if layer.base is not None and layer.base_mix is not None:
            weight = layer.base_mix.weight
            shape = layer.base(x.to(weight)).cpu().double()
            curves = curves + weight.detach().cpu().double()[..., None] * shape
    return Edges(
        title, factor * curves.numpy(), (grid.low, grid.high), tuple(inputs), tuple(outputs)
    )


def names_of(names: Sequence[str] | None, count: int, letter: str = "x") -> tuple[str, ...]:
    """The names as given, or numbered ones; an error if there are too few or too many."""
    if names is None:
        return tuple(f"{letter}{i + 1}" for i in range(count))
    if isinstance(names, str) or len(names) != count:
        raise PlanError(f"names must be one per input, {count}; got {names!r}.")
    return tuple(map(str, names))


def draw(
    layers: "Sequence[Edges | Levels]", caption: str | None, most: int, *, together: bool = False
) -> "Figure":
    """A figure of all layers below each other, bound to no window.

    Args:
        layers: From the inputs on.
        caption: A line below the figure.
        most: Panels of one layer: those with the largest range are drawn if there are more.
        together: Whether all outputs of an input share a panel.
    """
    from matplotlib.figure import Figure

    whole("most", most)
    plans = [
        _dots(layer, most) if isinstance(layer, Levels) else _panels(layer, most, together)
        for layer in layers
    ]
    columns = max(plan.columns for plan in plans)
    heights = [plan.height for plan in plans]
    size = (max(4.5, columns * _WIDTH + 0.5), sum(heights) + (0.35 if caption else 0.0))
    picture = Figure(figsize=size, layout="constrained")
    parts = np.atleast_1d(np.asarray(picture.subfigures(len(plans), 1, height_ratios=heights)))
    for part, plan in zip(parts, plans, strict=True):
        plan.draw(part)
    if caption:
        picture.supxlabel(caption, fontsize=9, color="0.35")
    return picture


@final
@dataclass(frozen=True, eq=False)
class _Panels:
    """Which edges go into which panel of one layer."""

    layer: Edges
    panels: list[list[tuple[int, int]]]
    columns: int
    is_grid: bool  # rows are outputs, columns inputs
    note: str

    @property
    def rows(self) -> int:
        """Rows of panels."""
        return math.ceil(len(self.panels) / self.columns)

    @property
    def height(self) -> float:
        """In inches."""
        return self.rows * _HEIGHT + 0.75

    def draw(self, part: Any) -> None:
        """All panels, within ``part`` of a figure."""
        shared = np.ndim(self.layer.ends) == 1
        axes = part.subplots(self.rows, self.columns, sharex=shared, sharey=True, squeeze=False)
        for place, (ax, panel) in enumerate(zip(axes.flat, self.panels, strict=False)):
            self._draw_panel(ax, panel)
            self._label(ax, panel, *divmod(place, self.columns))
        for ax in axes.flat[len(self.panels) :]:
            ax.set_visible(False)
        if len(self.panels[0]) > 1:
            part.legend(
                *axes.flat[0].get_legend_handles_labels(), frameon=False, fontsize=8,
                loc="outside right upper",
            )  # fmt: skip
        part.suptitle(f"{self.layer.title}{self.note}", fontsize=10, x=0.01, ha="left")

    def _draw_panel(self, ax: Any, panel: list[tuple[int, int]]) -> None:
        x = self.layer.points(panel[0][1])
        ax.axhline(0.0, color="0.85", linewidth=0.8)
        for place, (o, i) in enumerate(panel):
            round_, colour = divmod(place, len(_COLOURS))
            style = _DASHES[round_ % len(_DASHES)]
            ax.plot(
                x, self.layer.curves[o, i], style, color=_COLOURS[colour], linewidth=1.5,
                label=self.layer.outputs[o],
            )  # fmt: skip
        ax.tick_params(labelsize=7)
        ax.spines[["top", "right"]].set_visible(False)

    def _label(self, ax: Any, panel: list[tuple[int, int]], row: int, column: int) -> None:
        o, i = panel[0]
        output = self.layer.outputs[o]
        if self.is_grid:
            if row == self.rows - 1:
                ax.set_xlabel(self.layer.inputs[i], fontsize=8)
            if column == 0 and output:
                ax.set_ylabel(output, fontsize=8)
            return
        ax.set_xlabel(self.layer.inputs[i], fontsize=8)
        ax.tick_params(labelbottom=True)
        if len(panel) == 1 and output:
            ax.set_title(f"→ {output}", fontsize=8)


@final
@dataclass(frozen=True, eq=False)
class _Dots:
    """One line per category, the largest effects on top."""

    levels: Levels
    kept: list[int]
    note: str
    columns: int = 3

    @property
    def height(self) -> float:
        """In inches."""
        return 0.18 * len(self.kept) + 0.9

    def draw(self, part: Any) -> None:
        """All dots of the kept columns."""
        ax = part.subplots()
        places = np.arange(len(self.kept))[::-1]
        ax.axvline(0.0, color="0.85", linewidth=0.8)
        for o, output in enumerate(self.levels.outputs):
            x, colour = self.levels.values[o, self.kept], _COLOURS[o % len(_COLOURS)]
            if len(self.levels.outputs) == 1:
                ax.hlines(places, 0.0, x, color=colour, linewidth=1.0)
            ax.plot(x, places, "o", color=colour, markersize=4, label=output)
        ax.set_yticks(places, [self.levels.inputs[i] for i in self.kept])
        ax.tick_params(labelsize=7)
        ax.margins(y=0.02)
        ax.spines[["top", "right"]].set_visible(False)
        if len(self.levels.outputs) > 1:
            part.legend(frameon=False, fontsize=8, loc="outside right upper")
        part.suptitle(f"{self.levels.title}{self.note}", fontsize=10, x=0.01, ha="left")


def _dots(levels: Levels, most: int) -> _Dots:
    size = np.abs(levels.values).max(axis=0)
    kept = np.argsort(-size, kind="stable")[:most].tolist()
    by_value = sorted(kept, key=lambda i: -float(levels.values[0, i]))
    return _Dots(levels, by_value, _note(len(kept), len(size), "categories", by_range=False))


def _panels(layer: Edges, most: int, together: bool) -> _Panels:
    outs, ins = len(layer.outputs), len(layer.inputs)
    if together:
        order = list(dict.fromkeys(i for _, i in layer.ranked()))
        kept = sorted(order[:most]) if ins <= most else order[:most]
        panels = [[(o, i) for o in range(outs)] for i in kept]
        return _Panels(layer, panels, min(len(panels), 5), False, _note(len(panels), ins, "inputs"))
    if outs * ins <= most and ins <= 8:
        panels = [[(o, i)] for o in range(outs) for i in range(ins)]
        return _Panels(layer, panels, ins, True, "")
    panels = [[edge] for edge in layer.ranked()[:most]]
    return _Panels(
        layer, panels, min(len(panels), 6), False, _note(len(panels), outs * ins, "edges")
    )


def _note(shown: int, total: int, what: str, *, by_range: bool = True) -> str:
    if shown == total:
        return ""
    if not by_range:
        return f": the {shown} of {total} {what} with the largest effect"
    return f": the {shown} of {total} {what} with the largest range, in that order"
