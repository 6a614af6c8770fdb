"""The two-layer CNN of [CNNGradientDescent26]: its filters learn, and what adds them up is fixed."""

import torch
from torch import Tensor, nn

from antiphon.checks import positive, whole
from antiphon_papers.cnn.huberized import HuberizedReLU

__all__ = ["TwoLayerCNN"]


class TwoLayerCNN(nn.Module):
    """f(x) = F₊(x) - F₋(x), F_j(x) = (1/m) Σ_r Σ_p σ(⟨w_{j,r}, x_p⟩), with a Huberized ReLU σ.

    Filters are shared by all patches, whose order therefore cannot matter. The second layer, +1/m and -1/m,
    is fixed. All weights start as N(0, scale²).

    Args:
        d: Numbers in a patch.
        m: Filters of each sign; there are 2m.
        q: Power of the activation below its knee.
        knee: κ.
        scale: σ₀, of the weights at the start.

    Attributes:
        filters: All filters, ``filters.weight`` of shape (2m, d): first those of F₊, then those of F₋.
        signs: +1 and -1, for each filter.

    Guarantee:
        For P patches, an example's gradient of the logistic loss has norm at most sqrt(2P/m) ‖x‖, whatever
        the weights; for two patches that is (2/sqrt(m)) ‖x‖, and it can be reached.

    Example:
        >>> TwoLayerCNN(20, 4)(torch.zeros(3, 2, 20)).tolist()
        [0.0, 0.0, 0.0]
    """

    signs: Tensor

    def __init__(
        self, d: int, m: int, *, q: float = 3.0, knee: float = 0.1, scale: float = 0.007
    ) -> None:
        super().__init__()
        self.m, self.scale = whole("m", m), positive("scale", scale)
        self.filters = nn.Linear(whole("d", d), 2 * m, bias=False)
        self.activation = HuberizedReLU(q, knee)
        self.register_buffer("signs", torch.tensor([1.0, -1.0]).repeat_interleave(m))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws all weights again from torch's generator."""
        nn.init.normal_(self.filters.weight, std=self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, patches, d) to (batch,)."""
        return self.activation(self.filters(x)).sum(dim=-2) @ self.signs / self.m
