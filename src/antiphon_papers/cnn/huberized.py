"""The Huberized ReLU: a power below its knee, a line above it."""

from torch import Tensor, nn

from antiphon.checks import positive
from antiphon.errors import PlanError

__all__ = ["HuberizedReLU", "huberized_relu", "huberized_slope"]


def huberized_relu(z: Tensor, q: float = 3.0, knee: float = 0.1) -> Tensor:
    """σ(z) = (κ/q) clip(z/κ, 0, 1)^q + max(z - κ, 0) [CNNGradientDescent26].

    Guarantee:
        Once differentiable, non-decreasing, σ' within [0, 1] and (q - 1)/κ-Lipschitz for q >= 2. For
        z >= 0, z - κ(1 - 1/q) <= σ(z) <= z and z σ'(z) <= q σ(z).

    Example:
        >>> import torch
        >>> huberized_relu(torch.tensor([-1.0, 0.5, 1.0]), q=3, knee=0.5).mul(6).tolist()
        [0.0, 1.0, 4.0]
    """
    return (z / knee).clamp(0, 1).pow(q) * (knee / q) + (z - knee).relu()


def huberized_slope(z: Tensor, q: float = 3.0, knee: float = 0.1) -> Tensor:
    """σ'(z) = clip(z/κ, 0, 1)^(q - 1).

    Example:
        >>> import torch
        >>> huberized_slope(torch.tensor([-1.0, 0.25, 1.0]), q=3, knee=0.5).tolist()
        [0.0, 0.25, 1.0]
    """
    return (z / knee).clamp(0, 1).pow(q - 1)


class HuberizedReLU(nn.Module):
    """The activation as a module.

    Args:
        q: Power below the knee; above 1, and 3 or more in the theorems.
        knee: κ, where it becomes a line. As it tends to 0 this tends to the ReLU.
    """

    def __init__(self, q: float = 3.0, knee: float = 0.1) -> None:
        super().__init__()
        if not positive("q", q) > 1:
            raise PlanError(f"q must be above 1, so that the slope is continuous; got {q}.")
        self.q, self.knee = float(q), positive("knee", knee)

    def forward(self, z: Tensor) -> Tensor:
        """Any shape to the same shape."""
        return huberized_relu(z, self.q, self.knee)

    def slope(self, z: Tensor) -> Tensor:
        """σ'(z)."""
        return huberized_slope(z, self.q, self.knee)

    def extra_repr(self) -> str:
        """Of ``print(model)``."""
        return f"q={self.q:g}, knee={self.knee:g}"
