"""The kinds of factors, and what becomes of several of one parameter."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, TypeVar, final

import torch
from torch import Tensor

from antiphon.training.gradients.abstract_factor import AbstractFactor, Selection
from antiphon.training.gradients.lookups import Lookups
from antiphon.training.gradients.norms import as_wide, at_least_single, squares
from antiphon.training.gradients.outer import Outer
from antiphon.training.gradients.sum_of_factors import Sum
from antiphon.training.gradients.units import Units

__all__ = ["AbstractFactor", "Dense", "Lookups", "Outer", "Rows", "Sum", "exactly", "merged"]

Factor = TypeVar("Factor", bound=AbstractFactor)
Stretch = tuple[int, int]

# Settings of torch for products of float32 that may be computed in shorter types.
_backends: Any = torch.backends
_PRODUCTS = (_backends.cuda.matmul, _backends.mkldnn.matmul)


@final
class Dense(AbstractFactor):
    """Gradients that were formed.

    Args:
        gradients: One for every row.
        twin: A factor with one term per row whose ``right`` they are: its norms are theirs.
    """

    def __init__(self, gradients: Tensor, twin: "Outer | None" = None) -> None:
        self.gradients = at_least_single(gradients)
        self.rows = len(gradients)
        self._twin = twin

    def squared_norms(self) -> Tensor:
        """Of the flattened gradients."""
        if self._twin is not None:
            return self._twin.right_norms.square()
        return squares(self.gradients.reshape(self.rows, math.prod(self.gradients.shape[1:])))

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """One matrix-vector product."""
        flat = as_wide(self.gradients.reshape(self.rows, out.numel()), out)
        out.add_((weights.to(flat.dtype) @ flat).view_as(out))

    def dense(self) -> Tensor:
        """As they are."""
        return self.gradients

    def keep(self, alive: Selection) -> "Dense":
        """A selection."""
        return Dense(self.gradients[alive])

    def grouped(self, units: Units) -> "Dense":
        """Means over the rows of a unit."""
        return Dense(units.total(units.shares(self.gradients)))


@final
class Rows(AbstractFactor):
    """Gradients of separate stretches of a parameter's first axis; they are zero elsewhere.

    Args:
        parts: By stretch, its start and its stop, of which no two overlap.
        shape: Of the parameter.
    """

    def __init__(self, parts: Mapping[Stretch, AbstractFactor], shape: torch.Size) -> None:
        self.parts, self.shape = dict(parts), shape
        self.rows = next(iter(self.parts.values())).rows

    def squared_norms(self) -> Tensor:
        """Squares of parts add up."""
        return torch.stack([part.squared_norms() for part in self.parts.values()]).sum(0)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """Each to its stretch."""
        for stretch, part in self.parts.items():
            part.add_to(out[slice(*stretch)], weights)

    def dense(self) -> Tensor:
        """With zeros between them."""
        parts = {stretch: part.dense() for stretch, part in self.parts.items()}
        total = next(iter(parts.values())).new_zeros(self.rows, *self.shape)
        for stretch, part in parts.items():
            total[:, slice(*stretch)] = part
        return total

    def keep(self, alive: Selection) -> "Rows":
        """A selection of each part."""
        return Rows({s: part.keep(alive) for s, part in self.parts.items()}, self.shape)

    def grouped(self, units: Units) -> "Rows":
        """Each part by itself."""
        return Rows({s: part.grouped(units) for s, part in self.parts.items()}, self.shape)


def merged(factors: list[AbstractFactor]) -> AbstractFactor:
    """The gradients of a parameter that was used several times: they add up within a row."""
    if len(factors) == 1:
        return factors[0]
    outers, tables = _all(Outer, factors), _all(Lookups, factors)
    shapes = {f.shape for f in outers} | {_shape(f) for f in tables}
    if len(outers) + len(tables) == len(factors) and len(shapes) == 1:
        if not tables:
            return _joined_outers(outers)
        if not outers:
            return _joined_tables(tables)
        return Sum(_joined_tables(tables), _joined_outers(outers))
    if len(pieces := _all(Rows, factors)) == len(factors):
        by_stretch: dict[Stretch, list[AbstractFactor]] = {}
        for piece in pieces:
            for stretch, part in piece.parts.items():
                by_stretch.setdefault(stretch, []).append(part)
        if _are_apart(list(by_stretch)):
            return Rows({s: merged(parts) for s, parts in by_stretch.items()}, pieces[0].shape)
    total = factors[0].dense()
    for factor in factors[1:]:
        total = total + factor.dense()
    return Dense(total)


def _all(kind: type[Factor], factors: list[AbstractFactor]) -> list[Factor]:
    """The factors of one kind."""
    return [factor for factor in factors if isinstance(factor, kind)]


def _shape(table: Lookups) -> torch.Size:
    return torch.Size((table.lines, table.right.shape[2]))


def _joined_outers(factors: list[Outer]) -> Outer:
    left = torch.cat([factor.left for factor in factors], dim=1)
    return Outer(left, torch.cat([f.right for f in factors], dim=1), factors[0].shape)


def _joined_tables(factors: list[Lookups]) -> Lookups:
    index = torch.cat([factor.index for factor in factors], dim=1)
    return Lookups(index, torch.cat([f.right for f in factors], dim=1), factors[0].lines)


def _are_apart(stretches: list[Stretch]) -> bool:
    return all(one[1] <= other[0] for one, other in pairwise(sorted(stretches)))


@contextmanager
def exactly() -> Iterator[None]:
    """Compute in the types that tensors have, also where the caller has asked for quick products."""
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    kept = [(backend, backend.fp32_precision) for backend in _PRODUCTS]
    with ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            for backend, precision in kept:
                if precision != "ieee":
                    backend.fp32_precision = "ieee"
            yield
        finally:
            for backend, precision in kept:
                if backend.fp32_precision != precision:
                    backend.fp32_precision = precision
