"""Kolmogorov-Arnold networks: each edge carries a learned spline, each node adds up its edges.

A layer is linear in its parameters, coef · φ(x), with fixed features φ: a plain ``nn.Linear`` after the
splines. So one example's gradient is the outer product of the gradient by the layer's output and φ(x), and
its norm the product of two norms: private training needs no gradients of single examples.
"""

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor, nn

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.models.model_figure import draw, edges, names_of
from antiphon.models.splines import spline_basis
from antiphon.numerics import UniformSplines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KAN", "KANLayer"]


class KANLayer(nn.Module):
    """``out_features`` sums of splines of the inputs: coef · features(x).

    All parameters start as N(0, 1/in_features), a bias as 0. For cubic splines the values of one input
    have a norm between 0.678 and 0.708, and so has then the standard deviation of each output over the
    starts, whatever the inputs and the width (without ``base``).

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        intervals: Equal intervals of the domain; there are p = intervals + degree functions per input.
        degree: Of the splines, 1 to 5.
        low: Left end of the domain. Inputs outside the domain count as its nearest end.
        high: Right end of the domain.
        base: A function, such as ``nn.SiLU()``, that is also applied to the (unclamped) inputs and has a
            weight of its own for each edge.
        bias: Whether to add a constant; the splines can already express it.

    Attributes:
        mix: Multiplies the features by ``coef`` and adds the bias.
        base_mix: Multiplies what ``base`` returns, or None.
        splines: The grid.

    Example:
        >>> import torch
        >>> KANLayer(4, 2)(torch.zeros(7, 4)).shape
        torch.Size([7, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        intervals: int = 5,
        degree: int = 3,
        low: float = -1.0,
        high: float = 1.0,
        base: nn.Module | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.in_features = whole("in_features", in_features)
        self.out_features = whole("out_features", out_features)
        self.splines = UniformSplines(intervals, degree, low, high)
        self.mix = nn.Linear(in_features * self.splines.size, out_features, bias=bias)
        self.base = base
        self.base_mix = None if base is None else nn.Linear(in_features, out_features, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a new start from torch's generator."""
        std = 1 / math.sqrt(self.in_features)
        nn.init.normal_(self.mix.weight, std=std)
        if self.base_mix is not None:
            nn.init.normal_(self.base_mix.weight, std=std)
        if self.mix.bias is not None:
            nn.init.zeros_(self.mix.bias)

    @property
    def coef(self) -> Tensor:
        """Shape (out_features, in_features · p); an input's p coefficients stand together."""
        return self.mix.weight

    def features(self, x: Tensor) -> Tensor:
        """What ``coef`` multiplies: (..., in_features) to (..., in_features · p)."""
        if x.shape[-1:] != (self.in_features,):
            shape = tuple(x.shape)
            raise PlanError(f"inputs must have shape (..., {self.in_features}); got {shape}.")
        return spline_basis(x, self.splines).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        out: Tensor = self.mix(self.features(x))
        if self.base is None or self.base_mix is None:
            return out
        return out + self.base_mix(self.base(x))

    def plot(
        self, names: Sequence[str] | None = None, caption: str | None = None, *, most: int = 48
    ) -> "Figure":
        """The function on every edge, one row per output and one column per input.

        Args:
            names: Of the inputs.
            caption: A line below the figure, such as the guarantee under which the model was trained.
            most: Edges that are drawn; of more, those with the largest range, in that order.

        Returns:
            A matplotlib figure, bound to no window: save it with ``savefig``. It shows the model, and
            needs no data: what is private of the one is private of the other.
        """
        inputs = names_of(names, self.in_features)
        outputs = names_of(None, self.out_features, "y")
        return draw([edges(self, "Splines of the layer", inputs, outputs)], caption, most)

    def extra_repr(self) -> str:
        """The sizes and the grid, for printing."""
        return f"{self.in_features}, {self.out_features}, {self.splines}"


class KAN(nn.Sequential):
    """Layers of the given widths, with tanh between them.

    Args:
        widths: Inputs, hidden widths, outputs: at least two numbers.
        intervals: Of each layer's grid.
        degree: Of all splines.
        low: Left end of the first layer's domain; that of the others is tanh's range, [-1, 1].
        high: Right end of the first layer's domain.
        base: As for a layer; each layer has its own copy.
        bias: As for a layer.

    Example:
        >>> import torch
        >>> KAN([64, 64, 10])(torch.zeros(3, 64)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        intervals: int = 5,
        degree: int = 3,
        low: float = -1.0,
        high: float = 1.0,
        base: nn.Module | None = None,
        bias: bool = False,
    ) -> None:
        if len(widths) < 2:
            raise PlanError(f"widths must name inputs and outputs at least; got {list(widths)}.")
        parts: list[nn.Module] = []
        for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
            ends = (-1.0, 1.0) if i else (low, high)
            layer = KANLayer(
                fan_in,
                fan_out,
                intervals=intervals,
                degree=degree,
                low=ends[0],
                high=ends[1],
                base=copy.deepcopy(base),
                bias=bias,
            )
            parts += [nn.Tanh(), layer] if i else [layer]
        super().__init__(*parts)

    def plot(
        self, names: Sequence[str] | None = None, caption: str | None = None, *, most: int = 48
    ) -> "Figure":
        """The splines of every layer; an additive model, of one layer, has a panel for each input.

        Args:
            names: Of the inputs.
            caption: A line below the figure, such as the guarantee under which the model was trained.
            most: Panels per layer; of more, those with the largest range, in that order.

        Returns:
            A matplotlib figure, bound to no window: save it with ``savefig``.

        Example:
            >>> figure = KAN([3, 1]).plot(names=["age", "height", "weight"])
            >>> [axes.get_xlabel() for axes in figure.axes]
            ['age', 'height', 'weight']
        """
        layers = [part for part in self if isinstance(part, KANLayer)]
        inputs, drawn = names_of(names, layers[0].in_features), []
        for depth, layer in enumerate(layers, start=1):
            is_last = depth == len(layers)
            hidden = "y" if is_last else "u" if len(layers) == 2 else f"u{depth}."
            outputs = names_of(None, layer.out_features, hidden)
            outputs = ("",) if is_last and layer.out_features == 1 else outputs
            title = "Effect of each input" if len(layers) == 1 else f"Layer {depth}"
            drawn.append(edges(layer, title, inputs, outputs))
            inputs = tuple(f"tanh {name}" for name in outputs)
        return draw(drawn, caption, most, together=len(layers) == 1)
