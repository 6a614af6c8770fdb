"""Tensors are compared by version and place in memory, or bit by bit, and put back from clones."""

from operator import attrgetter
from typing import Any, final

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

__all__ = ["Tensors"]

_LARGE = 1 << 26  # bytes above which memory is cloned for exact comparison only
_read_mark: Any = attrgetter("_version", "requires_grad", "is_leaf")


@final
class Tensors:
    """Tensors with what they were when `take` was called last.

    Args:
        found: The tensors. Their gradients join them for exact comparison.
    """

    def __init__(self, found: list[Tensor]) -> None:
        self._found = found
        self._copies: list[_Copy] = []
        self._things, self._marks, self._aliases = list[Tensor](), list[Any](), list[Tensor]()
        self.is_exact = False

    def is_same(self, exact: bool) -> bool:
        """Whether no tensor was written to or put elsewhere; otherwise than ``exact``, by versions."""
        try:
            return (
                list(map(_read_mark, self._things)) == self._marks
                and all(map(Tensor.is_set_to, self._things, self._aliases))
                and not (exact and not all(copy.is_equal() for copy in self._copies))
            )
        except RuntimeError:
            return all(copy.is_same(exact) for copy in self._copies)

    def are_leaves_same(self) -> bool:
        """Whether the same tensors belong to no graph."""
        return all(copy.tensor.is_leaf == copy.mark[2] for copy in self._copies)

    def take(self, exact: bool) -> None:
        """Keep what tensors are; of parameters, and of large memory, clones only if ``exact``."""
        grads = [tensor.grad for tensor in self._found if exact and tensor.is_leaf]
        self._things = self._found + [grad for grad in grads if grad is not None]
        self._copies = [_Copy(tensor, exact) for tensor in self._things]
        self._marks = [copy.mark for copy in self._copies]
        self._aliases = [copy.alias for copy in self._copies]
        self.is_exact = exact

    def put_back(self, exact: bool) -> list[Tensor]:
        """Put back what has changed; return the parameters, and what cannot be put back."""
        if self.is_same(exact):
            return []
        changed = [copy for copy in self._copies if not copy.is_same(exact)]
        refused = [copy.tensor for copy in changed if not copy.put_back()]
        self._marks = [copy.mark for copy in self._copies]
        return refused


class _Copy:
    """One tensor, with what it was: version, whether it requires a gradient and is a leaf, memory."""

    def __init__(self, tensor: Tensor, exact: bool) -> None:
        self.tensor, self.mark = tensor, _mark(tensor)
        self.alias = tensor.detach()  # the same memory, should the tensor be put elsewhere
        self.bits = _bits(self.alias)
        is_large = sum(part.numel() * part.element_size() for part in self.bits) > _LARGE
        has_clones = exact or not (is_large or isinstance(tensor, nn.Parameter))
        self.clones = [part.clone() for part in self.bits] if has_clones else None

    def is_same(self, exact: bool) -> bool:
        """Whether the tensor is what it was, by its version or bit by bit."""
        is_marked = _mark(self.tensor) == self.mark and self._is_in_place()
        return is_marked and not (exact and not self.is_equal())

    def is_equal(self) -> bool:
        """Whether its memory is what it was, bit by bit."""
        return self.clones is not None and all(map(torch.equal, self.bits, self.clones))

    def put_back(self) -> bool:
        """Put the tensor back; whether nothing is left to refuse."""
        version, needs_gradient, is_leaf = self.mark
        try:
            if self.tensor.is_leaf != is_leaf:
                self.tensor.detach_()
            is_written = self.tensor._version != version or not self._is_in_place()
            if not self._is_in_place():
                self.tensor.data = self.alias
            if self.clones is not None and not self.is_equal():
                is_written = True
                for part, clone in zip(self.bits, self.clones, strict=True):
                    part.copy_(clone)
            self.tensor.requires_grad_(needs_gradient)
        except RuntimeError:
            return False
        self.mark = _mark(self.tensor)
        is_back = self.mark[0] == version if self.clones is None else self.is_equal()
        return is_back and not (is_written and isinstance(self.tensor, nn.Parameter))

    def _is_in_place(self) -> bool:
        now, before = self.tensor, self.alias
        try:
            return not is_functorch_wrapped_tensor(now) and now.is_set_to(before)
        except RuntimeError:  # no memory of its own, or another device
            return (now.device, now.layout, now.shape) == (
                before.device,
                before.layout,
                before.shape,
            )


def _mark(tensor: Tensor) -> tuple[int, bool, bool]:
    version = -1 if tensor.is_inference() else tensor._version  # nothing can write to the former
    return version, tensor.requires_grad, tensor.is_leaf


def _bits(tensor: Tensor) -> list[Tensor]:
    """The whole memory of a tensor as integers; none if it hides its memory."""
    if tensor.layout is torch.sparse_coo:
        return _bits(tensor._indices()) + _bits(tensor._values())
    if tensor.layout is torch.sparse_csr:
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        return [bits for part in parts for bits in _bits(part)]
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ or tensor.is_meta:
        return []
    try:
        memory = tensor.untyped_storage()
    except RuntimeError:
        return []
    form = torch.uint8 if memory.nbytes() % 8 else torch.int64
    return [torch.empty(0, dtype=form, device=tensor.device).set_(memory)]
