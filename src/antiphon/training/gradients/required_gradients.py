"""``requires_grad_`` in a loss, which ``torch.func.vmap`` refuses.

Libraries call it on the output of a first layer, so that checkpoints behind frozen layers have a gradient.
Under vmap it is not needed: no gradient of a parameter depends on it. A loss that asks for the gradient of
such a tensor itself, by ``torch.autograd.grad``, fails there.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from antiphon.training.gradients.taps import Taps

__all__ = ["CALLS"]


def _require(taps: "Taps", tensor: Tensor, requires_grad: bool = True) -> Tensor:
    """The tensor as it is, unless something else is asked for, or within a transform of the loss."""
    if requires_grad and taps.is_plain() and not isinstance(tensor, nn.Parameter):
        return tensor
    return tensor.requires_grad_(requires_grad)


def _set(taps: "Taps", tensor: Tensor, requires_grad: bool) -> None:
    if tensor.requires_grad != requires_grad:
        _require(taps, tensor, requires_grad)


CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    Tensor.requires_grad_: _require,
    Tensor.requires_grad.__set__: _set,  # type: ignore[attr-defined]
}
