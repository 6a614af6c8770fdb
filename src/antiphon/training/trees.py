"""The tensors within nested tuples, lists, dictionaries and data classes."""

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["mapped", "tensors"]


def tensors(tree: Any) -> list[Tensor]:
    """All tensors, in order. Much quicker than a general traversal for the common cases."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, tuple | list):
        return [tensor for branch in tree for tensor in tensors(branch)]
    if isinstance(tree, dict):
        return [tensor for branch in tree.values() for tensor in tensors(branch)]
    if is_dataclass(tree) and not isinstance(tree, type):
        return [tensor for f in fields(tree) for tensor in tensors(getattr(tree, f.name))]
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``change`` of every leaf."""

    def at(leaf: Any) -> Any:
        if not is_dataclass(leaf) or isinstance(leaf, type):
            return change(leaf)
        other = copy(leaf)
        for f in fields(leaf):
            object.__setattr__(other, f.name, mapped(change, getattr(leaf, f.name)))
        return other

    return tree_map(at, tree)
