"""A Kolmogorov-Arnold network for tables: a spline for every number, a free value for every category."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.models.kan import KANLayer
from antiphon.models.model_figure import Edges, Levels, draw, edges, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TableKAN"]

_NEARLY_LINEAR = 0.3  # of tanh's argument


class TableKAN(nn.Module):
    """Splines of the numbers plus weights of the indicators, through any number of further layers.

    An edge of a KAN is a function of one column. On a number it is a spline; on a category it is any
    function at all, which is one weight per category: splines of indicators would need p for each.
    Every layer is divided by the root of its number of inputs, so that an example's gradient does not
    grow with the table. Without hidden layers the output starts at 0. With them, a start near a linear
    model leaves noise the least to spoil: the last layer as ± the identity, the others as N(0, 0.3²).

    Args:
        is_number: Of each feature, whether it is a number in [-1, 1]; the others are indicators.
        columns: Of the table: a category is one column with several indicators.
        outputs: How many.
        hidden: Widths of hidden layers, with tanh before each further layer. None: the output is a sum of
            functions of single columns.
        intervals: Of all grids.
        degree: Of all splines.

    Example:
        >>> model = TableKAN([True, True, False, False], columns=3, outputs=2)
        >>> model(torch.zeros(5, 4)).shape
        torch.Size([5, 2])
    """

    numbers: Tensor
    indicators: Tensor

    def __init__(
        self,
        is_number: Sequence[bool],
        columns: int,
        outputs: int,
        hidden: Sequence[int] = (),
        *,
        intervals: int = 5,
        degree: int = 3,
    ) -> None:
        super().__init__()
        kinds = torch.as_tensor(list(is_number), dtype=torch.bool)
        if not len(kinds):
            raise PlanError("a table needs at least one feature; got none.")
        self.register_buffer("numbers", kinds.nonzero().flatten())
        self.register_buffer("indicators", (~kinds).nonzero().flatten())
        self.columns = whole("columns", columns)
        first, *wider = *(whole("a hidden width", w) for w in hidden), whole("outputs", outputs)
        layer = partial(KANLayer, intervals=intervals, degree=degree)
        numbers, indicators = len(self.numbers), len(self.indicators)
        self.splines = layer(numbers, first) if numbers else None
        self.weights = nn.Linear(indicators, first, bias=False) if indicators else None
        self._further = nn.ModuleList(layer(*widths) for widths in pairwise([first, *wider]))
        self.reset_parameters()

    @property
    def further(self) -> list[KANLayer]:
        """The layers after the first."""
        return [layer for layer in self._further if isinstance(layer, KANLayer)]

    def reset_parameters(self) -> None:
        """Draws a new start from torch's generator."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=_NEARLY_LINEAR if self.further else 0.0)
        for layer in self.further[-1:]:
            signs = 2.0 * torch.randint(2, (layer.out_features, layer.in_features, 1)) - 1
            identity = torch.from_numpy(layer.splines.identity())
            with torch.no_grad():
                layer.coef.copy_((signs * identity).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, features) to (batch, outputs)."""
        parts = []
        if self.splines is not None:
            parts.append(self.splines(x[:, self.numbers]))
        if self.weights is not None:
            parts.append(self.weights(x[:, self.indicators]))
        out: Tensor = sum(parts[1:], parts[0]) / math.sqrt(self.columns)
        for layer in self.further:
            out = layer(torch.tanh(out)) / math.sqrt(layer.in_features)
        return out

    def plot(
        self,
        names: Sequence[str] | None = None,
        caption: str | None = None,
        *,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        most: int = 48,
    ) -> "Figure":
        """The learned functions: without hidden layers, the effect of each column on the output.

        Args:
            names: Of the features, indicators too.
            caption: A line below the figure, such as the guarantee under which the model was trained.
            bounds: What -1 and 1 stand for in the numbers with these names, for the axes.
            most: Panels per layer; of more, those with the largest range, in that order.

        Example:
            >>> model = TableKAN([True, False, False], columns=2, outputs=1)
            >>> len(model.plot(["age", "sex=f", "sex=m"], bounds={"age": (0, 100)}).axes)
            2
        """
        drawn = self.functions(names, bounds=bounds)
        return draw(drawn, caption, most, together=not self.further)

    def functions(
        self,
        names: Sequence[str] | None = None,
        *,
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ) -> "list[Edges | Levels]":
        """The learned functions as numbers, layer by layer: what `plot` draws.

        Args:
            names: Of the features, indicators too.
            bounds: What -1 and 1 stand for in the numbers with these names.

        Example:
            >>> numbers, categories = TableKAN([True, False, False], columns=2, outputs=1).functions()
            >>> numbers.inputs, categories.inputs
            (('x1',), ('x2', 'x3'))
        """
        features = names_of(names, len(self.numbers) + len(self.indicators))
        found: list[Edges | Levels] = []
        if self.splines is not None:
            found.append(self._of_numbers(self.splines, features, bounds or {}))
        if self.weights is not None:
            inputs = tuple(features[i] for i in self.indicators.tolist())
            values = self.weights.weight.detach().cpu().double().numpy() / math.sqrt(self.columns)
            found.append(Levels("Effect of each category", values, inputs, _outputs(len(values))))
        for depth, layer in enumerate(self.further, start=2):
            hidden = [f"tanh u{i + 1}" for i in range(layer.in_features)]
            factor = 1 / math.sqrt(layer.in_features)
            outputs = _outputs(layer.out_features)
            found.append(edges(layer, f"Layer {depth}", hidden, outputs, factor))
        return found

    def _of_numbers(
        self, layer: KANLayer, features: Sequence[str], bounds: Mapping[str, tuple[float, float]]
    ) -> Edges:
        inputs = [features[i] for i in self.numbers.tolist()]
        title = "Layer 1" if self.further else "Effect of each number"
        factor = 1 / math.sqrt(self.columns)
        found = edges(layer, title, inputs, _outputs(layer.out_features), factor)
        if self.further or not bounds:
            return found
        return replace(found, ends=tuple(bounds.get(name, (-1.0, 1.0)) for name in inputs))


def _outputs(count: int) -> tuple[str, ...]:
    return ("",) if count == 1 else names_of(None, count, "y")
