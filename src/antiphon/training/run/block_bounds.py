"""Declared bounds of the data: values outside are refused or moved to the nearest bound."""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from antiphon.errors import PlanError, RunError

__all__ = ["Bounds"]


@final
@dataclass(frozen=True)
class Bounds:
    """What the first tensor of every batch must lie between.

    Attributes:
        low: Smallest allowed value, or one per column.
        high: Largest.
        outside: "raise" or "clamp".
    """

    low: Any
    high: Any
    outside: str = "raise"

    def __post_init__(self) -> None:
        if self.outside not in ("raise", "clamp"):
            raise PlanError(f"outside is 'raise' or 'clamp'; got {self.outside!r}.")
        low, high = torch.as_tensor(self.low), torch.as_tensor(self.high)
        if not bool((low < high).all()):
            raise PlanError(f"every lower bound must be below its upper one; got {low} and {high}.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def enforce(self, data: Any) -> Any:
        """The batch with its first tensor within the bounds. NaN stays: its example counts as zero."""
        leaves, form = tree_flatten(data)
        place = next((i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)), None)
        if place is None:
            raise PlanError("bounds are for batches that hold a tensor; this one has none.")
        x = leaves[place]
        low, high = self.low.to(x.device, x.dtype), self.high.to(x.device, x.dtype)
        if self.outside == "clamp":
            leaves[place] = torch.minimum(torch.maximum(x, low), high)
        elif bool(((x < low) | (x > high)).any()):
            raise RunError(
                "a batch holds values outside the declared bounds. Correct the data or the bounds (of "
                "public knowledge, not of this data), or move such values to the bounds: outside='clamp'."
            )
        return tree_unflatten(leaves, form)
