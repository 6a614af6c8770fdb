"""Batches of one are copied, row after row, into the tensors of examples."""

from collections.abc import Iterable, Mapping
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from antiphon.errors import UnsupportedError
from antiphon.training.gradients import Examples

__all__ = ["stacked"]

# What is equal for all examples may be given to all of them; of other types equality cannot be told.
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes)


def stacked(batches: Iterable[Any], count: int) -> Examples:
    """Examples from ``count`` batches of one, of which one at a time is kept.

    Guarantee:
        What `Examples.one` returns for an example is its own batch bit for bit: stacking neither pads
        nor converts. Batches that would need it are refused.

    Example:
        >>> examples = stacked(({"x": torch.full((1, 2), row)} for row in (3.0, 4.0)), 2)
        >>> examples.kwargs["x"]
        tensor([[[3., 3.]],
        <BLANKLINE>
                [[4., 4.]]])
    """
    # One at a time: what default_collate makes in a worker holds an open file for every tensor.
    found = (dict(batch) if isinstance(batch, Mapping) else batch for batch in batches)
    first = next(found)
    stack = _Stack(first, count)
    stack.put(0, first)
    del first
    for place, batch in enumerate(found, start=1):
        stack.put(place, batch)
    return Examples.of(tree_unflatten(stack.leaves, stack.form))


@final
class _Stack:
    """Room for several batches of one form."""

    def __init__(self, batch: Any, count: int) -> None:
        leaves, self.form = tree_flatten(batch)
        self.leaves = [_room(leaf, count) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            raise UnsupportedError("a row holds no tensor once collated: make tensors in collate=.")

    def put(self, place: int, batch: Any) -> None:
        """Copy a batch to its place."""
        leaves, form = tree_flatten(batch)
        if form != self.form:
            raise UnsupportedError(
                "the rows of a batch have different structures once collated: other keys, or lists of "
                "other lengths. Return the same from every row. A list of numbers becomes one tensor per "
                "number: make one tensor of it, in the data set (Hugging Face: with_format('torch')) or "
                "in collate=."
            )
        for number, (room, leaf) in enumerate(zip(self.leaves, leaves, strict=True)):
            wrong = _difference(room, leaf)
            if wrong:
                raise UnsupportedError(_located(wrong, batch, number))
            if isinstance(room, Tensor):
                room[place].copy_(leaf.detach())


def _room(leaf: Tensor, count: int) -> Tensor:
    return torch.empty((count, *leaf.shape), dtype=leaf.dtype, device=leaf.device)


def _difference(room: Any, leaf: Any) -> str | None:
    """Why a leaf cannot be put beside those before it; None if it can."""
    if isinstance(room, Tensor) != isinstance(leaf, Tensor):
        return "is a tensor for one row and none for another. Make it a tensor for every row in collate=."
    if not isinstance(room, Tensor):
        return _difference_of_constants(room, leaf)
    if room.shape[1:] != leaf.shape:
        return _difference_of_shapes(room.shape[1:], leaf.shape)
    if (room.dtype, room.device) != (leaf.dtype, leaf.device):
        return (
            f"is of {room.dtype} on {room.device} for one row and of {leaf.dtype} on {leaf.device} for "
            "another. Rows are not converted because of others: give all of them one type and one device, "
            "in the data set or in collate=."
        )
    return None


def _difference_of_constants(one: Any, other: Any) -> str | None:
    if type(other) not in _CONSTANTS:
        return (
            f"is of type {type(other).__name__} once collated, and rows consist of tensors, numbers, texts "
            "and None in dicts, lists and tuples. Make it a tensor in collate=."
        )
    # 0.0 equals -0.0 and True equals 1, but an example could tell them apart.
    if (type(one), repr(one)) != (type(other), repr(other)):
        return (
            f"is of type {type(other).__name__} and differs between rows. Only tensors can: make it a "
            "tensor in collate=, or leave it out."
        )
    return None


def _difference_of_shapes(one: torch.Size, other: torch.Size) -> str:
    text = (
        f"has shape {tuple(one)} for one row and {tuple(other)} for another. Rows are stacked, and none "
        "is changed because of others: "
    )
    if len(one) == len(other) and one[:1] + one[2:] == other[:1] + other[2:]:
        return text + "fill them up to a public length, ap.Dataset(rows, pad_to={length})."
    return text + "give all of them one shape of public sizes, in the data set or in collate=."


def _located(wrong: str, batch: Any, number: int) -> str:
    """The text after the leaf's place, such as ``batch['words']``, and with its key in ``pad_to``."""
    path: Any = tree_flatten_with_path(batch)[0][number][0]
    key = getattr(path[0], "key", getattr(path[0], "idx", None)) if path else None
    length = "length" if key is None else f"{{{key!r}: length}}"
    return f"batch{keystr(path)} {wrong.replace('{length}', length)}"
