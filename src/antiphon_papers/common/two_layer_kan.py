"""The two-layer Kolmogorov-Arnold network of the papers: which layers learn, and how it starts."""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.models import KANLayer, draw, edges, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TwoLayerKAN"]

# An activation, and the domain that its values fill.
_ACTIVATIONS = {"tanh": (torch.tanh, (-1.0, 1.0)), "sigmoid": (torch.sigmoid, (0.0, 1.0))}
_TRAINED = {"first": (True, False), "second": (False, True), "both": (True, True)}
_STARTS = ("gaussian", "antisymmetric")


class TwoLayerKAN(nn.Module):
    """The papers' network f(x) = m^(-1/2) Σ_j ⟨c_j, h(σ(a_j(x)))⟩ with a(x) = d^(-1/2) W h(x).

    h are the p spline values of one number, inputs on [-1, 1], hidden values on the activation's range.
    W starts as N(0, 1) and c as N(0, scale²). The gradient of a frozen layer is not asked for, and no
    optimizer moves it.

    Args:
        d: Number of inputs.
        m: Hidden width.
        intervals: Of both grids; p = intervals + degree.
        degree: Of all splines.
        activation: σ, "tanh" or "sigmoid".
        train: Which layers learn: "first", "second" (random spline features: a convex problem) or "both".
        start: "gaussian", or "antisymmetric": units come in pairs with equal W and opposite c, so that
            f = 0 before training whatever was drawn; m is even then.
        scale: Of c at the start. The bound on the first layer's gradient grows with it.

    Attributes:
        first: The layer on the inputs; ``first.coef[j, i · p + k]`` is the papers' w[i, j, k].
        second: The layer on the hidden values; ``second.coef[0, j · p + k]`` is c[j, k].

    Guarantee:
        An example's gradient of f by ``first.coef`` is (m d)^(-1/2) σ'(a_j) ⟨c_j, h'(σ(a_j))⟩ b_k(x_i), and
        by ``second.coef`` m^(-1/2) b_k(σ(a_j)).

    Example:
        >>> TwoLayerKAN(5, 16)(torch.zeros(3, 5)).shape
        torch.Size([3])
    """

    def __init__(
        self,
        d: int,
        m: int,
        *,
        intervals: int = 5,
        degree: int = 3,
        activation: str = "tanh",
        train: str = "first",
        start: str = "gaussian",
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        _check_choice("activation", activation, _ACTIVATIONS)
        _check_choice("train", train, _TRAINED)
        _check_choice("start", start, _STARTS)
        if start == "antisymmetric" and whole("m", m) % 2:
            raise PlanError(
                f"an antisymmetric start has units in pairs: m must be even; got {m}. Take m = {m + 1}, "
                "or start='gaussian'."
            )
        self.activation, self.start, self.scale = activation, start, positive("scale", scale)
        low, high = _ACTIVATIONS[activation][1]
        self.first = KANLayer(whole("d", d), whole("m", m), intervals=intervals, degree=degree)
        self.second = KANLayer(m, 1, intervals=intervals, degree=degree, low=low, high=high)
        for layer, learns in zip((self.first, self.second), _TRAINED[train], strict=True):
            layer.coef.requires_grad_(learns)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws W and c again from torch's generator."""
        nn.init.normal_(self.first.coef)
        nn.init.normal_(self.second.coef, std=self.scale)
        if self.start == "antisymmetric":
            half = self.first.out_features // 2
            c = self.second.coef.view(2, half, -1)  # the twin of unit j is unit j + m/2
            self.first.coef[half:] = self.first.coef[:half]
            c[1] = -c[0]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, d) to (batch,)."""
        activation, _ = _ACTIVATIONS[self.activation]
        hidden = activation(self.first(x) / math.sqrt(self.first.in_features))
        return self.second(hidden).squeeze(-1) / math.sqrt(self.second.in_features)

    def plot(
        self, names: Sequence[str] | None = None, caption: str | None = None, *, most: int = 48
    ) -> "Figure":
        """The splines of both layers, with their factors d^(-1/2) and m^(-1/2).

        Args:
            names: Of the inputs.
            caption: A line below the figure, such as the guarantee under which the model was trained.
            most: Edges per layer that are drawn; of more, those with the largest range, in that order.

        Returns:
            A matplotlib figure, bound to no window: save it with ``savefig``.
        """
        d, m = self.first.in_features, self.second.in_features
        units = names_of(None, m, "a")
        hidden = [f"{self.activation} {unit}" for unit in units]
        parts = [
            edges(self.first, "First layer", names_of(names, d), units, d**-0.5),
            edges(self.second, "Second layer", hidden, ("",), m**-0.5),
        ]
        return draw(parts, caption, most)


def _check_choice(name: str, value: object, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise PlanError(f"{name} must be one of {[*allowed]}; got {value!r}.")
