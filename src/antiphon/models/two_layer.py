"""The two-layer Kolmogorov-Arnold network of the papers, with its second layer frozen."""

import math

import torch
from torch import Tensor, nn

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.models.kan import KANLayer

__all__ = ["TwoLayerKAN"]

# An activation, and the domain that its values fill.
_ACTIVATIONS = {"tanh": (torch.tanh, (-1.0, 1.0)), "sigmoid": (torch.sigmoid, (0.0, 1.0))}


class TwoLayerKAN(nn.Module):
    """The papers' network f(x) = m^(-1/2) Σ_j ⟨c_j, h(σ(a_j(x)))⟩ with a(x) = d^(-1/2) W h(x).

    h are the p spline values of one number, inputs on [-1, 1], hidden values on the activation's range.
    W and c start as N(0, 1); c is frozen: its gradient is not asked for, no optimizer moves it.

    Args:
        d: Number of inputs.
        m: Hidden width.
        intervals: Of both grids; p = intervals + degree.
        degree: Of all splines.
        activation: σ, "tanh" or "sigmoid".

    Attributes:
        first: The trained layer; ``first.coef[j, i · p + k]`` is the papers' w[i, j, k].
        second: The frozen layer; ``second.coef[0, j · p + k]`` is c[j, k].

    Guarantee:
        An example's gradient of f by ``first.coef`` is (m d)^(-1/2) σ'(a_j) ⟨c_j, h'(σ(a_j))⟩ b_k(x_i).

    Example:
        >>> TwoLayerKAN(5, 16)(torch.zeros(3, 5)).shape
        torch.Size([3])
    """

    def __init__(
        self, d: int, m: int, *, intervals: int = 5, degree: int = 3, activation: str = "tanh"
    ) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise PlanError(f"activation must be one of {[*_ACTIVATIONS]}; got {activation!r}.")
        self.activation = activation
        low, high = _ACTIVATIONS[activation][1]
        self.first = KANLayer(whole("d", d), whole("m", m), intervals=intervals, degree=degree)
        self.second = KANLayer(m, 1, intervals=intervals, degree=degree, low=low, high=high)
        self.second.coef.requires_grad_(False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws W and c anew from torch's generator."""
        nn.init.normal_(self.first.coef)
        nn.init.normal_(self.second.coef)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, d) to (batch,)."""
        activation, _ = _ACTIVATIONS[self.activation]
        hidden = activation(self.first(x) / math.sqrt(self.first.in_features))
        return self.second(hidden).squeeze(-1) / math.sqrt(self.second.in_features)
