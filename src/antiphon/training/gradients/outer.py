"""Matrices that were applied to vectors: gradients as sums of outer products."""

from functools import cached_property
from typing import final

import torch
from torch import Tensor

from antiphon.training.gradients.abstract_factor import AbstractFactor, Selection
from antiphon.training.gradients.norms import (
    as_wide,
    at_least_single,
    norms,
    squares,
    with_rounding,
)
from antiphon.training.gradients.units import Units

__all__ = ["DENSE_BYTES", "HUGE", "Outer", "add_product"]

DENSE_BYTES = 1 << 26  # gradients of single examples are kept up to this size, else formed in parts
_CANCELS = 64.0  # terms that are so much larger than their sum need float64
HUGE = 1e30  # beside a larger factor, the other one times its weight may leave the range of float32


@final
class Outer(AbstractFactor):
    """Row i has the gradient Σ_t right[i, t] ⊗ left[i, t]: a matrix applied to T vectors of a row.

    Attributes:
        left: What the matrix was applied to: (rows, T, columns of the matrix).
        right: Gradient of what came out: (rows, T, rows of the matrix).
        shape: Of the parameter; the matrix, reshaped.
    """

    def __init__(self, left: Tensor, right: Tensor, shape: torch.Size) -> None:
        self.left, self.right, self.shape = at_least_single(left), at_least_single(right), shape
        self.rows = len(left)
        self._formed: Tensor | None = None
        self._careful: Tensor | None = None  # rows that need float64

    def squared_norms(self) -> Tensor:
        """By ‖left‖² ‖right‖² for one vector; else by Gram matrices or formed gradients, as is cheaper."""
        if self.left.shape[1] == 1:
            left = norms(self.left[:, 0])
            self._careful = left > HUGE
            return (left * self.right_norms).square_()
        if self._has_small_gram():
            return self._checked(self._by_gram_matrices())
        if self.is_formed():
            self._formed = self._form(self.left, self.right)
            return squares(self._formed.flatten(1))
        return self._checked(self._in_parts(self.left, self.right))

    def is_formed(self) -> bool:
        """Whether it is best to form all gradients and to keep them."""
        size = self.left.shape[2] * self.right.shape[2] * self.left.element_size()
        has_many = self.left.shape[1] > 1 and not self._has_small_gram()
        return has_many and self.rows * size <= DENSE_BYTES

    def _has_small_gram(self) -> bool:
        """Whether Gram matrices are cheaper; in float64 products cost about three times as much."""
        columns, height = self.left.shape[2], self.right.shape[2]
        return 3 * self.left.shape[1] * (columns + height) < columns * height

    @cached_property
    def right_norms(self) -> Tensor:
        """Norms of ``right``, of one term per row."""
        return norms(self.right[:, 0])

    def _by_gram_matrices(self) -> Tensor:
        """The sum of (left_s · left_t)(right_s · right_t) over all s and t."""
        left, right = self.left.double(), self.right.double()
        grams = torch.bmm(left, left.mT), torch.bmm(right, right.mT)
        return (grams[0] * grams[1]).sum((1, 2)).clamp_(min=0.0)

    def _checked(self, squared: Tensor) -> Tensor:
        """The same, but computed again where terms cancel."""
        # By Cauchy-Schwarz not less than the sum of the norms of all terms.
        left = norms(self.left.flatten(1))
        size = left * norms(self.right.flatten(1))
        self._careful = (squared.sqrt() * _CANCELS < size) | (left > HUGE)
        again = torch.nonzero(self._careful)[:, 0]
        if len(again):
            found = self._in_parts(self.left[again].double(), self.right[again].double())
            squared[again] = with_rounding(found, size[again], self.left.shape[1])
        return squared

    def _in_parts(self, left: Tensor, right: Tensor) -> Tensor:
        count = max(1, DENSE_BYTES // (left.shape[2] * right.shape[2] * left.element_size()))
        pairs = zip(torch.split(left, count), torch.split(right, count), strict=True)
        return torch.cat([squares(self._form(a, g).flatten(1)) for a, g in pairs])

    def _form(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.bmm(right.mT, left)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """One matrix product, or one matrix-vector product if the gradients were formed."""
        if self._formed is not None:
            flat = as_wide(self._formed.reshape(self.rows, out.numel()), out)
            out.add_((weights.to(flat.dtype) @ flat).view_as(out))
            return
        left, right, careful = self.left, self.right, self._careful
        if careful is not None and bool(careful.any()):
            add_product(out, left[careful].double(), right[careful].double(), weights[careful])
            left, right, weights = left[~careful], right[~careful], weights[~careful]
        add_product(out, left, right, weights)

    def dense(self) -> Tensor:
        """One batched matrix product."""
        return self._form(self.left, self.right).reshape(self.rows, *self.shape)

    def keep(self, alive: Selection) -> "Outer":
        """A selection, with what is known of it."""
        kept = Outer(self.left[alive], self.right[alive], self.shape)
        kept._formed = None if self._formed is None else self._formed[alive]
        kept._careful = None if self._careful is None else self._careful[alive]
        return kept

    def grouped(self, units: Units) -> "Outer":
        """A user's examples follow each other as if they were one longer sequence."""
        left, right = units.spread(self.left), units.spread(units.shares(self.right))
        return Outer(left.flatten(1, 2), right.flatten(1, 2), self.shape)


def add_product(out: Tensor, left: Tensor, right: Tensor, weights: Tensor) -> None:
    """Add Σ_i weights[i] × Σ_t right[i, t] ⊗ left[i, t]."""
    left, right = as_wide(left, out), as_wide(right, out)
    scaled = (right * weights.to(right.dtype)[:, None, None]).flatten(0, 1)
    matrix = out.view(right.shape[2], left.shape[2])
    if out.dtype is scaled.dtype:
        matrix.addmm_(scaled.T, left.flatten(0, 1))
    else:
        matrix.add_(scaled.T @ left.flatten(0, 1))
