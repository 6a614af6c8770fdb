"""Examples that are computed together, each a batch of one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from antiphon.errors import UnsupportedError

__all__ = ["Examples"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """The arguments of ``loss(model, *args, **kwargs)`` for several examples.

    Every tensor in them has one row per example, and row i is what the loss is given for example i: a
    batch of one. So the shape is (examples, 1, ...) wherever the collated batch of one has a batch axis.
    What is not a tensor is equal for all examples.

    Attributes:
        args: Positional arguments.
        kwargs: Keyword arguments.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, content: Any) -> "Examples":
        """Examples whose tensors have one row each already.

        A tuple or list holds positional arguments, a mapping keyword arguments; anything else is the only
        argument.
        """
        if isinstance(content, Mapping):
            if not all(isinstance(name, str) for name in content):
                raise UnsupportedError(
                    "a row is a mapping with keys that are not texts, which cannot be names of the loss "
                    "function's arguments. Give it such names in collate=, or return a tuple."
                )
            return cls((), dict(content))
        if isinstance(content, tuple | list):
            return cls(tuple(content), {})
        return cls((content,), {})

    def __len__(self) -> int:
        leaves = tree_leaves((self.args, self.kwargs))
        return next(len(leaf) for leaf in leaves if isinstance(leaf, Tensor))

    def __repr__(self) -> str:
        """How many they are, and nothing of what they hold."""
        return f"<Examples: {len(self)}>"

    def one(
        self, place: int, device: torch.device | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the loss for one example.

        They are copies of its rows, since a view leads to the tensor that holds the other examples.
        """
        one = self._changed(lambda leaf: leaf[place].clone().to(device))
        return one.args, one.kwargs

    def select(self, which: Tensor) -> "Examples":
        """Those at these places, or where a mask is true."""
        return self._changed(lambda leaf: leaf[which.to(leaf.device)])

    def to(self, device: torch.device) -> "Examples":
        """All tensors on this device."""
        is_ahead = device.type != "cpu"
        return self._changed(lambda leaf: leaf.to(device, non_blocking=is_ahead))

    def pin_memory(self) -> "Examples":
        """All tensors in memory from which GPUs copy quickly; a `DataLoader` calls this."""
        return self._changed(Tensor.pin_memory)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Examples":
        return Examples(
            *tree_map(
                lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf,
                (self.args, self.kwargs),
            )
        )
