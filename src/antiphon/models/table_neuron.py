"""One ReLU neuron for tables."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.models.model_figure import Levels, draw, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TableNeuron"]


class TableNeuron(nn.Module):
    """2 ReLU(w·x + b) - 1: the lower bound of a target scaled to [-1, 1] where the neuron is inactive.

    Inputs, the 1 of the intercept among them, are divided by the root of their number, so that the norm of
    an example's input is at most 1.

    Args:
        is_number: Of each feature, whether it is a number in [-1, 1]; the others are indicators.
        columns: Of the table: a category is one column with several indicators.
        has_intercept: Whether there is a b.
        spread: Norm of the weights of a random start; 0 starts at 0.

    Example:
        >>> model = TableNeuron([True, True, False, False], columns=3)
        >>> model(torch.zeros(5, 4)).shape
        torch.Size([5, 1])
    """

    def __init__(
        self,
        is_number: Sequence[bool],
        columns: int,
        *,
        has_intercept: bool = True,
        spread: float = 0.0,
    ) -> None:
        super().__init__()
        self.is_number = tuple(map(bool, is_number))
        if not self.is_number:
            raise PlanError("a table needs at least one feature; got none.")
        self.has_intercept, self.spread = bool(has_intercept), spread
        self.scale = 1 / math.sqrt(whole("columns", columns) + self.has_intercept)
        self.weight = nn.Parameter(torch.empty(len(self.is_number) + self.has_intercept))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a new start from torch's generator, whose weights have the norm ``spread`` or so.

        The intercept of a random start is ``spread`` itself: a neuron that is inactive for all records has
        no gradient, and would stay so.
        """
        nn.init.normal_(self.weight, std=self.spread / math.sqrt(len(self.is_number)))
        if self.has_intercept:
            nn.init.constant_(self.weight[len(self.is_number) :], self.spread)

    def inputs(self, x: Tensor) -> Tensor:
        """What the weights are multiplied by: the features, and 1 for the intercept, all scaled."""
        whole_input = torch.cat([x, x.new_ones(len(x), 1)], dim=1) if self.has_intercept else x
        return whole_input * self.scale

    def forward(self, x: Tensor) -> Tensor:
        """(batch, features) to (batch, 1)."""
        return 2 * torch.relu(self.inputs(x) @ self.weight)[:, None] - 1

    def linear(self) -> tuple[Tensor, Tensor]:
        """Twice the weights of the features and the intercept: 2 (w·x + b) of each unit."""
        weight = 2 * self.scale * self.weight.detach()
        count = len(self.is_number)
        return weight[:count], weight[count:].sum()

    def plot(
        self,
        names: Sequence[str] | None = None,
        caption: str | None = None,
        *,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        most: int = 48,
    ) -> "Figure":
        """The coefficients.

        Args:
            names: Of the features, indicators too.
            caption: A line below the figure, such as the guarantee under which the model was trained.
            bounds: Not needed here.
            most: Lines: of more, those with the largest coefficients.

        Example:
            >>> len(TableNeuron([True, False, False], columns=2).plot(["age", "sex=f", "sex=m"]).axes)
            1
        """
        features = names_of(names, len(self.is_number))
        values = self.linear()[0].cpu().double().numpy()[None]
        title = "Coefficients, per half of a number's bounds or category"
        return draw([Levels(title, values, features, ("",))], caption, most)
