"""B-splines of tensors, with all derivatives: what a Kolmogorov-Arnold network computes of its inputs.

Inputs outside the domain count as the nearest end of it, and have derivative 0; at the right end values
and derivatives are the limits from the left. A NaN gives NaNs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from antiphon.errors import PlanError
from antiphon.models import spline_kernels as kernels
from antiphon.numerics import UniformSplines, spline_pieces

__all__ = ["FUNCTIONS", "spline_basis"]

_hidden = torch._C.DisableTorchFunction  # modes need not see what kernels read, and may copy it


def spline_basis(x: Tensor, splines: UniformSplines, order: int = 0) -> Tensor:
    """All basis functions of each entry of ``x``, or their derivatives: shape (*x.shape, p).

    Guarantee:
        Values on the domain are non-negative and sum to 1, up to rounding; at most degree + 1 of the p
        are not zero. Differentiable any number of times, in torch.func transforms too.

    Example:
        >>> spline_basis(torch.tensor([-1.0, 0.25]), UniformSplines(intervals=2, degree=1))
        tensor([[1.0000, 0.0000, 0.0000],
                [0.0000, 0.7500, 0.2500]])
    """
    if not x.is_floating_point():
        raise PlanError(f"splines need inputs of a floating-point type; got {x.dtype}.")
    compiled = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if compiled and not torch.compiler.is_compiling():
        return _basis(x, splines, order)
    return _basis_by_torch(x, splines, order)


def _basis_by_torch(x: Tensor, splines: UniformSplines, order: int) -> Tensor:
    """The same by plain torch operations, for other devices, other types and ``torch.compile``."""
    z = (x.clamp(splines.low, splines.high) - splines.low) / splines.spacing
    q = z.detach().nan_to_num(0.0).long().clamp(0, splines.intervals - 1)
    t = (z - q).unsqueeze(-1)
    table = x.new_tensor(_table(splines.degree, order))
    values = table[:, -1].expand(*x.shape, -1)
    for column in table.T.flip(0)[1:]:
        values = values * t + column
    if order:
        inside = (x >= splines.low) & (x <= splines.high)
        values = values * (inside.to(x.dtype) / splines.spacing**order).unsqueeze(-1)
    places = q.unsqueeze(-1) + torch.arange(splines.degree + 1, device=x.device)
    return x.new_zeros(*x.shape, splines.size).scatter(-1, places, values)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _table(degree: int, order: int) -> list[list[float]]:
    return spline_pieces(degree, order).tolist()


def _array(tensor: Tensor) -> Any:
    with _hidden():
        return tensor.detach().contiguous().numpy()


def _basis(x: Tensor, splines: UniformSplines, order: int) -> Tensor:
    return _Basis.apply(x, splines, order)  # type: ignore[no-untyped-call]


def _contraction(x: Tensor, weights: Tensor, splines: UniformSplines, order: int) -> Tensor:
    return _Contraction.apply(x, weights, splines, order)  # type: ignore[no-untyped-call]


class _Basis(Function):
    """Derivatives of one order; the derivative of that is `_Contraction` with the next order."""

    @staticmethod
    def forward(x: Tensor, splines: UniformSplines, order: int) -> Tensor:
        """By the kernel, of plain tensors."""
        return torch.from_numpy(kernels.basis(_array(x), splines, order))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Keeps what derivatives need."""
        x, ctx.splines, ctx.order = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Reverse mode."""
        (x,) = ctx.saved_tensors
        return _contraction(x, grads[0], ctx.splines, ctx.order + 1), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Forward mode."""
        (x,) = ctx.saved_tensors
        return _basis(x, ctx.splines, ctx.order + 1) * tangents[0].unsqueeze(-1)

    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor, splines: Any, order: int) -> tuple[Tensor, int]:
        """A batch is one more dimension in front."""
        return _basis(x.movedim(dims[0], 0), splines, order), 0


class _Contraction(Function):
    """⟨weights, derivatives of one order⟩ for each entry of x."""

    @staticmethod
    def forward(x: Tensor, weights: Tensor, splines: UniformSplines, order: int) -> Tensor:
        """By the kernel, of plain tensors."""
        found = kernels.contraction(_array(x), _array(weights), splines, order)
        return torch.from_numpy(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Keeps what derivatives need."""
        x, weights, ctx.splines, ctx.order = inputs
        ctx.save_for_backward(x, weights)
        ctx.save_for_forward(x, weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Reverse mode."""
        x, weights = ctx.saved_tensors
        by_x = grads[0] * _contraction(x, weights, ctx.splines, ctx.order + 1)
        by_weights = grads[0].unsqueeze(-1) * _basis(x, ctx.splines, ctx.order)
        return by_x, by_weights, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Forward mode."""
        x, weights = ctx.saved_tensors
        by_x = tangents[0] * _contraction(x, weights, ctx.splines, ctx.order + 1)
        return by_x + _contraction(x, tangents[1], ctx.splines, ctx.order)

    @staticmethod
    def vmap(
        info: Any, dims: Any, x: Tensor, weights: Tensor, splines: Any, order: int
    ) -> tuple[Tensor, int]:
        """A batch is one more dimension in front."""
        pair = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in ((x, dims[0]), (weights, dims[1]))
        ]
        return _contraction(pair[0], pair[1], splines, order), 0


# Each entry of x has a result of its own, so their batching rules keep rows apart; tests check it.
FUNCTIONS = (_Basis, _Contraction)
