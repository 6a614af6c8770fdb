"""A table that is looked up and is a matrix too: tied weights."""

import math
from typing import final

import torch
from torch import Tensor

from antiphon.training.gradients.abstract_factor import AbstractFactor, Selection
from antiphon.training.gradients.lookups import Lookups
from antiphon.training.gradients.norms import as_wide, norms, squares, with_rounding
from antiphon.training.gradients.outer import DENSE_BYTES, HUGE, Outer
from antiphon.training.gradients.units import Units

__all__ = ["Sum"]

_CANCELS = 4.0  # terms that are so much larger than their sum need float64: their squares cancel


@final
class Sum(AbstractFactor):
    """Row i has the sum of the gradients of lookups and of linear maps: ‖A + B‖² = ‖A‖² + ‖B‖² + 2 ⟨A, B⟩.

    Args:
        table: Gradients of what was looked up.
        matrix: Gradients of the linear maps, of the same shape.
    """

    def __init__(self, table: Lookups, matrix: Outer) -> None:
        self.table, self.matrix = table, matrix
        self.rows = table.rows
        self._formed: Tensor | None = None
        self._careful: Tensor | None = None  # rows that need float64

    def squared_norms(self) -> Tensor:
        """Of formed gradients if the matrix's are formed; else by the inner product of both parts."""
        if self.matrix.is_formed():
            self._formed = self.dense()
            return squares(self._formed.flatten(1))
        table, matrix = self.table, self.matrix
        squared = table.squared_norms() + matrix.squared_norms() + 2 * self._inner_products()
        squared.clamp_(min=0.0)
        # By Cauchy-Schwarz not less than the sum of the norms of all terms.
        left = norms(matrix.left.flatten(1))
        size = left * norms(matrix.right.flatten(1))
        size += math.sqrt(table.index.shape[1]) * norms(table.right.flatten(1))
        self._careful = (squared.sqrt() * _CANCELS < size) | (left > HUGE)
        terms = table.index.shape[1] + matrix.left.shape[1]
        for i in torch.split(torch.nonzero(self._careful)[:, 0], self._part()):
            squared[i] = with_rounding(squares(self._double(i).flatten(1)), size[i], terms)
        return squared

    def _inner_products(self) -> Tensor:
        """The sum of (looked up at t · left_s) × (right_s at the line of t) over all s and t."""
        table, matrix = self.table, self.matrix
        products = torch.bmm(matrix.left.double(), table.right.double().mT)
        places = table.index[:, None].expand(products.shape)
        return (products * matrix.right.gather(2, places)).sum((1, 2))

    def _part(self) -> int:
        """How many gradients are formed at a time."""
        return max(1, DENSE_BYTES // (8 * self.matrix.shape.numel()))

    def _double(self, rows: Tensor) -> Tensor:
        """Gradients of some rows in float64."""
        table, matrix = self.table, self.matrix
        total = torch.bmm(matrix.right[rows].double().mT, matrix.left[rows].double())
        return _added(total, table.index[rows], table.right[rows])

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """Both parts; rows whose parts cancel are added up in float64 first."""
        if self._formed is not None:
            flat = as_wide(self._formed.flatten(1), out)
            out.add_((weights.to(flat.dtype) @ flat).view_as(out))
            return
        table, matrix, careful = self.table, self.matrix, self._careful
        if careful is not None and bool(careful.any()):
            total = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
            for i in torch.split(torch.nonzero(careful)[:, 0], self._part()):
                total += torch.tensordot(weights[i].double(), self._double(i), dims=1)
            out.add_(total)
            table, matrix, weights = table.keep(~careful), matrix.keep(~careful), weights[~careful]
        table.add_to(out, weights)
        matrix.add_to(out, weights)

    def dense(self) -> Tensor:
        """The matrix's gradients, with the lookups added."""
        return _added(self.matrix.dense().contiguous(), self.table.index, self.table.right)

    def keep(self, alive: Selection) -> "Sum":
        """A selection of both, with what is known of it."""
        kept = Sum(self.table.keep(alive), self.matrix.keep(alive))
        kept._formed = None if self._formed is None else self._formed[alive]
        kept._careful = None if self._careful is None else self._careful[alive]
        return kept

    def grouped(self, units: Units) -> "Sum":
        """Both by themselves."""
        return Sum(self.table.grouped(units), self.matrix.grouped(units))


def _added(total: Tensor, index: Tensor, right: Tensor) -> Tensor:
    """Gradients of tables with those of lookups added in place."""
    rows = torch.arange(len(index), device=index.device)[:, None].expand_as(index)
    return total.index_put_((rows, index), right.to(total.dtype), accumulate=True)
