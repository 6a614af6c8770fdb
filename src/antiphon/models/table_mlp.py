"""A perceptron for tables: weights of every feature, through any number of hidden layers of tanh."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.models.model_figure import Edges, Levels, draw, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TableMLP"]

_POINTS = 101
_STEEPNESS = 2.0


class TableMLP(nn.Module):
    """Linear layers with tanh between them; without hidden layers, a linear model with an intercept.

    The inputs of every layer are divided by the root of their number, so that an example's gradient does
    not grow with the table or the width. The last layer starts at 0, hence the output; the others as
    N(0, 4), so that tanh bends within the bounds.

    Args:
        is_number: Of each feature, whether it is a number in [-1, 1]; the others are indicators.
        columns: Of the table: a category is one column with several indicators.
        outputs: How many.
        hidden: Widths of hidden layers.

    Example:
        >>> model = TableMLP([True, True, False, False], columns=3, outputs=2, hidden=(8,))
        >>> model(torch.zeros(5, 4)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self, is_number: Sequence[bool], columns: int, outputs: int, hidden: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.is_number = tuple(map(bool, is_number))
        if not self.is_number:
            raise PlanError("a table needs at least one feature; got none.")
        self.columns = whole("columns", columns)
        between = [whole("a hidden width", width) for width in hidden]
        widths = [len(self.is_number), *between, whole("outputs", outputs)]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.scales = [1 / math.sqrt(inputs) for inputs in (self.columns, *between)]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a new start from torch's generator; the last layer starts at 0."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=_STEEPNESS)
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, features) to (batch, outputs)."""
        out = self.layers[0](x * self.scales[0])
        for layer, scale in zip(list(self.layers)[1:], self.scales[1:], strict=True):
            out = layer(torch.tanh(out) * scale)
        return out

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights per unit of a feature, shape (outputs, features), and intercepts, of a linear model."""
        if len(self.layers) > 1:
            raise PlanError("a network with hidden layers has no coefficients; see plot.")
        layer: Any = self.layers[0]
        return layer.weight.detach() * self.scales[0], layer.bias.detach()

    def plot(
        self,
        names: Sequence[str] | None = None,
        caption: str | None = None,
        *,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        most: int = 48,
    ) -> "Figure":
        """The coefficients; with hidden layers, how the output changes along each column by itself.

        Such a partial effect is what one feature adds to the output if all others are 0: numbers in the
        middle of their bounds, categories unknown. Interactions are not in it.

        Args:
            names: Of the features, indicators too.
            caption: A line below the figure, such as the guarantee under which the model was trained.
            bounds: What -1 and 1 stand for in the numbers with these names, for the axes.
            most: Panels or lines: of more, those with the largest effect.

        Example:
            >>> model = TableMLP([True, False, False], columns=2, outputs=1, hidden=(4,))
            >>> len(model.plot(["age", "sex=f", "sex=m"], bounds={"age": (0, 100)}).axes)
            2
        """
        features = names_of(names, len(self.is_number))
        last: Any = self.layers[-1]
        outputs = ("",) if last.out_features == 1 else names_of(None, last.out_features, "y")
        if len(self.layers) == 1:
            values = self.linear()[0].cpu().double().numpy()
            title = "Coefficients, per half of a number's bounds or category"
            return draw([Levels(title, values, features, outputs)], caption, most)
        drawn: list[Edges | Levels] = []
        numbers = [i for i, kind in enumerate(self.is_number) if kind]
        if numbers:
            curves = np.stack([self._effect(i, np.linspace(-1, 1, _POINTS)) for i in numbers], 1)
            ends = tuple((bounds or {}).get(features[i], (-1.0, 1.0)) for i in numbers)
            inputs = tuple(features[i] for i in numbers)
            drawn.append(Edges("Effect of each number by itself", curves, ends, inputs, outputs))
        others = [i for i, kind in enumerate(self.is_number) if not kind]
        if others:
            values = np.concatenate([self._effect(i, np.ones(1)) for i in others], 1)
            inputs = tuple(features[i] for i in others)
            drawn.append(Levels("Effect of each category by itself", values, inputs, outputs))
        return draw(drawn, caption, most, together=True)

    def _effect(self, feature: int, values: Any) -> Any:
        """What a feature adds to each output at these values, shape (outputs, values)."""
        weight: Any = self.layers[0].weight
        x = torch.zeros(len(values) + 1, len(self.is_number), dtype=weight.dtype)
        x[1:, feature] = torch.as_tensor(values)
        with torch.no_grad():
            out = self(x.to(weight.device)).cpu().double()
        return (out[1:] - out[0]).T.numpy()
