"""Convolutions under autocast: under ``vmap`` torch leaves out their casts on a CPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from antiphon.training.gradients.taps import Taps

__all__ = ["CALLS", "as_autocast"]


def as_autocast(tensor: Any, device: str) -> Any:
    """A tensor in the type that autocast gives to arguments of products; other things as they are."""
    if isinstance(tensor, Tensor) and tensor.dtype == torch.float32:
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


def _cast(function: Callable[..., Any], *, has_rule: bool) -> Callable[..., Any]:
    def call(taps: "Taps", input: Any, weight: Any, *rest: Any, **named: Any) -> Any:
        device = weight.device.type
        if not torch.is_autocast_enabled(device) or (has_rule and taps.is_trained(weight)):
            return NotImplemented

        def cast(thing: Any) -> Any:
            return as_autocast(taps.tapped(thing) if taps.is_trained(thing) else thing, device)

        return function(
            *map(cast, (input, weight, *rest)),
            **{name: cast(value) for name, value in named.items()},
        )

    return call


CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    f: _cast(f, has_rule=True) for f in (torch.conv1d, torch.conv2d, torch.conv3d)
} | {
    f: _cast(f, has_rule=False)
    for f in (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
}
