"""Filling rows up to a declared length, so that no row's shape depends on those beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from antiphon.checks import whole
from antiphon.errors import PlanError, RunError

__all__ = ["Padding"]


@final
@dataclass(frozen=True)
class Padding:
    """Public lengths of the first axis after that of the batch.

    Attributes:
        lengths: One length for every tensor that has such an axis, or lengths by the key or position of
            the batch's entries; entries that are not named stay as they are.
        fill: What is filled in, or numbers by key or position; 0 for those that are not named.

    Guarantee:
        The shape of what `filled` returns has the declared length, whatever the row holds. Nothing is
        cut: a longer row is refused.

    Example:
        >>> padding = Padding({"words": 4, "labels": 4}, {"labels": -100})
        >>> words, labels = torch.tensor([[7, 8]]), torch.tensor([[1, 1]])
        >>> padding.filled({"words": words, "labels": labels})
        {'words': tensor([[7, 8, 0, 0]]), 'labels': tensor([[   1,    1, -100, -100]])}
    """

    lengths: int | Mapping[Any, int]
    fill: float | Mapping[Any, float] = 0

    def __post_init__(self) -> None:
        if not isinstance(self.lengths, Mapping):
            whole("pad_to", self.lengths)
            return
        for key, length in self.lengths.items():
            whole(f"pad_to[{key!r}]", length)
        _check_known("pad_with", self.fill, list(self.lengths), "pad_to")

    def filled(self, batch: Any) -> Any:
        """The batch of one with its tensors filled up to the declared lengths."""
        if isinstance(batch, Mapping):
            self._check_keys(list(batch))
            return {key: self._entry(key, entry) for key, entry in batch.items()}
        if isinstance(batch, tuple | list):
            self._check_keys(list(range(len(batch))))
            return tuple(self._entry(key, entry) for key, entry in enumerate(batch))
        self._check_keys([])
        return self._entry(None, batch)

    def _check_keys(self, keys: list[Any]) -> None:
        _check_known("pad_to", self.lengths, keys, "the collated batch")
        _check_known("pad_with", self.fill, keys, "the collated batch")

    def _entry(self, key: Any, entry: Any) -> Any:
        """One entry of the batch, with all tensors in it filled up if it is to be."""
        fill = self.fill.get(key, 0) if isinstance(self.fill, Mapping) else self.fill
        name = "batch" if key is None else f"batch[{key!r}]"
        if not isinstance(self.lengths, Mapping):
            return _mapped(partial(_lengthened_if_any, self.lengths, fill, name), entry)
        if key not in self.lengths:
            return entry
        return _mapped(partial(_lengthened, self.lengths[key], fill, name), entry)


def _mapped(change: Any, entry: Any) -> Any:
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, entry)


def _lengthened_if_any(length: int, fill: float, name: str, leaf: Tensor) -> Tensor:
    """As `_lengthened`, but for tensors that have no axis after that of the batch."""
    return leaf if leaf.ndim < 2 else _lengthened(length, fill, name, leaf)


def _lengthened(length: int, fill: float, name: str, leaf: Tensor) -> Tensor:
    if leaf.ndim < 2:
        raise PlanError(
            f"pad_to names {name}, a tensor of shape {tuple(leaf.shape)}: it has no axis after that of the "
            "batch. Leave it out of pad_to."
        )
    if leaf.shape[1] > length:
        raise RunError(
            f"a row is longer than declared: {name} has shape {tuple(leaf.shape)}, and pad_to declares "
            f"{length}. Nothing is cut: declare a larger length, cut rows to it in collate=, or name in "
            "pad_to only the entries that vary in length."
        )
    _check_fill(leaf, fill, name)
    filled = leaf.new_full((leaf.shape[0], length, *leaf.shape[2:]), fill)
    filled[:, : leaf.shape[1]] = leaf
    return filled


def _check_fill(leaf: Tensor, fill: float, name: str) -> None:
    """Raise if the tensor's type cannot hold the number: torch would round it."""
    if leaf.is_floating_point() or leaf.is_complex():
        return
    low, high = (0, 1) if leaf.dtype is torch.bool else _limits(leaf.dtype)
    if fill % 1 or not low <= fill <= high:
        raise PlanError(
            f"pad_with is {fill} for {name}, and {leaf.dtype} has no such number. Give one for each entry: "
            "pad_with={key: number}."
        )


def _limits(dtype: torch.dtype) -> tuple[int, int]:
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def _check_known(name: str, given: Any, keys: list[Any], where: str) -> None:
    """Raise if something is given for an entry that is not there."""
    unknown = [key for key in given if key not in keys] if isinstance(given, Mapping) else []
    if unknown:
        raise PlanError(f"{name} names {unknown}, and {where} has {keys or 'no keys'}.")
