"""Every unit's gradient of one parameter, kept as the factors of which it is made.

A layer's gradient for one example is mostly a sum of few outer products, so its norm follows from the
factors [Goodfellow15], and the clipped sum over a batch is one matrix product [BookKeeping23]: gradients of
single examples are formed only where that is cheaper.

Squared norms are those of what `add_to` adds, to about one part in a million. Where gradients are formed,
both are made from the same numbers. Where they are not, the terms of a row (the places of a sequence) may
cancel: in float32 a gradient of norm 1 that is left over from terms of size 10000 has an error of 1/1000,
and the clip norm would not bound it. Such rows are found by comparing the norm with the size of the terms,
and are computed in float64.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from antiphon.training.units import Units

__all__ = [
    "AbstractFactor",
    "Blocks",
    "Dense",
    "Lookups",
    "Outer",
    "at_least_single",
    "exactly",
    "merged",
    "norms",
    "squares",
    "with_rounding",
]

_PIECE = 1 << 10  # norms of so many float32 numbers are right to one part in a million
_DENSE_BYTES = (
    1 << 26
)  # gradients of single examples are kept up to this size, else formed in parts
_CANCELS = 64.0  # terms that are so much larger than their sum need float64
_HUGE = (
    1e30  # beside a larger factor, the other one times its weight may leave the range of float32
)
# Norms outside of these are computed from rescaled numbers, since squares leave the range of the type.
_RANGE = {torch.float32: (1e-13, 1e18, 1e30, 1e-25), torch.float64: (1e-130, 1e150, 1e160, 1e-160)}


class AbstractFactor(ABC):
    """The gradients of one parameter, one for every row of a batch (an example, or a user)."""

    rows: int

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """The squared norm of every row's gradient, in float64."""

    @abstractmethod
    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """Add Σ_i weights[i] × (gradient of row i) to ``out``, of the parameter's shape."""

    @abstractmethod
    def dense(self) -> Tensor:
        """All gradients: (rows, *shape of the parameter)."""

    @abstractmethod
    def keep(self, alive: Tensor) -> "AbstractFactor":
        """The rows for which ``alive`` is true."""

    @abstractmethod
    def grouped(self, units: Units) -> "AbstractFactor":
        """One row per unit, with the mean of the gradients of its rows."""


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
        flat = self.gradients.reshape(self.rows, out.numel())
        out.add_((weights.to(flat.dtype) @ flat).view_as(out))

    def dense(self) -> Tensor:
        """As they are."""
        return self.gradients

    def keep(self, alive: Tensor) -> "Dense":
        """A selection."""
        return Dense(self.gradients[alive])

    def grouped(self, units: Units) -> "Dense":
        """Means over the rows of a unit."""
        return Dense(units.total(units.shares(self.gradients)))


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
        _, T, columns = self.left.shape
        height = self.right.shape[2]
        if T == 1:
            left = norms(self.left[:, 0])
            self._careful = left > _HUGE
            return (left * self.right_norms).square_()
        # Products in float64 cost about three times as much as in float32.
        if 3 * T * (columns + height) < columns * height:
            return self._checked(self._by_gram_matrices())
        if self.rows * columns * height * self.left.element_size() <= _DENSE_BYTES:
            self._formed = self._form(self.left, self.right)
            return squares(self._formed.reshape(self.rows, columns * height))
        return self._checked(self._in_parts(self.left, self.right))

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
        self._careful = (squared.sqrt() * _CANCELS < size) | (left > _HUGE)
        again = torch.nonzero(self._careful)[:, 0]
        if len(again):
            found = self._in_parts(self.left[again].double(), self.right[again].double())
            squared[again] = with_rounding(found, size[again], self.left.shape[1])
        return squared

    def _in_parts(self, left: Tensor, right: Tensor) -> Tensor:
        count = max(1, _DENSE_BYTES // (left.shape[2] * right.shape[2] * left.element_size()))
        pairs = zip(torch.split(left, count), torch.split(right, count), strict=True)
        return torch.cat([squares(self._form(a, g).flatten(1)) for a, g in pairs])

    def _form(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.bmm(right.mT, left)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """One matrix product, or one matrix-vector product if the gradients were formed."""
        if self._formed is not None:
            flat = self._formed.reshape(self.rows, out.numel())
            out.add_((weights.to(flat.dtype) @ flat).view_as(out))
            return
        left, right, careful = self.left, self.right, self._careful
        if careful is not None and bool(careful.any()):
            _add_product(out, left[careful].double(), right[careful].double(), weights[careful])
            left, right, weights = left[~careful], right[~careful], weights[~careful]
        _add_product(out, left, right, weights)

    def dense(self) -> Tensor:
        """One batched matrix product."""
        return self._form(self.left, self.right).reshape(self.rows, *self.shape)

    def keep(self, alive: Tensor) -> "Outer":
        """A selection."""
        return Outer(self.left[alive], self.right[alive], self.shape)

    def grouped(self, units: Units) -> "Outer":
        """A user's examples follow each other as if they were one longer sequence."""
        left, right = units.spread(self.left), units.spread(units.shares(self.right))
        return Outer(left.flatten(1, 2), right.flatten(1, 2), self.shape)


@final
class Lookups(AbstractFactor):
    """Row i has the gradient right[i, t] in line ``index[i, t]`` of a table, added up over t.

    Attributes:
        index: (rows, T).
        right: (rows, T, width of the table).
        lines: Number of lines of the table.
    """

    def __init__(self, index: Tensor, right: Tensor, lines: int) -> None:
        self.index, self.right, self.lines = index, at_least_single(right), lines
        self.rows = len(index)
        self._summed: tuple[Tensor, Tensor, Tensor] | None = None

    def squared_norms(self) -> Tensor:
        """Sums over equal lines first, since a word that stands twice adds to one line."""
        row, _, sums = self._summed = self._sums()
        totals = torch.zeros(self.rows, dtype=torch.float64, device=sums.device)
        return totals.index_add_(0, row, squares(sums))

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, line and gradient, for every line that a row uses."""
        row = torch.arange(self.rows, device=self.index.device)[:, None]
        places, of_place = torch.unique(self.index + row * self.lines, return_inverse=True)
        sums = self.right.new_zeros(len(places), self.right.shape[2])
        sums.index_add_(0, of_place.view(-1), self.right.flatten(0, 1))
        return places // self.lines, places % self.lines, sums

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """Scattered, from the same sums as the norms: their terms may cancel."""
        row, line, sums = self._summed or self._sums()
        scaled = sums * weights.to(sums.dtype)[row][:, None]
        out.index_add_(0, line, scaled.to(out.dtype))

    def dense(self) -> Tensor:
        """The whole table for every row."""
        table = self.right.new_zeros(self.rows, self.lines, self.right.shape[2])
        place = self.index[:, :, None].expand_as(self.right)
        return table.scatter_add_(1, place, self.right)

    def keep(self, alive: Tensor) -> "Lookups":
        """A selection."""
        return Lookups(self.index[alive], self.right[alive], self.lines)

    def grouped(self, units: Units) -> "Lookups":
        """A user's examples follow each other; what is filled up has gradient zero."""
        index, right = units.spread(self.index), units.spread(units.shares(self.right))
        return Lookups(index.flatten(1, 2), right.flatten(1, 2), self.lines)


@final
class Blocks(AbstractFactor):
    """Gradients of parts of a parameter, stacked along its first axis."""

    def __init__(self, parts: list[AbstractFactor], sizes: list[int]) -> None:
        self.parts, self.sizes = parts, sizes
        self.rows = parts[0].rows

    def squared_norms(self) -> Tensor:
        """Squares of parts add up."""
        return torch.stack([part.squared_norms() for part in self.parts]).sum(0)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """Each to its part."""
        for part, piece in zip(self.parts, torch.split(out, self.sizes), strict=True):
            part.add_to(piece, weights)

    def dense(self) -> Tensor:
        """Stacked."""
        return torch.cat([part.dense() for part in self.parts], dim=1)

    def keep(self, alive: Tensor) -> "Blocks":
        """A selection of each part."""
        return Blocks([part.keep(alive) for part in self.parts], self.sizes)

    def grouped(self, units: Units) -> "Blocks":
        """Each part by itself."""
        return Blocks([part.grouped(units) for part in self.parts], self.sizes)


def merged(factors: list[AbstractFactor]) -> AbstractFactor:
    """The gradients of a parameter that was used several times: they add up within a row."""
    if len(factors) == 1:
        return factors[0]
    if all(isinstance(factor, Outer) for factor in factors):
        outers = [factor for factor in factors if isinstance(factor, Outer)]
        left = torch.cat([factor.left for factor in outers], dim=1)
        return Outer(left, torch.cat([f.right for f in outers], dim=1), outers[0].shape)
    total = factors[0].dense()
    for factor in factors[1:]:
        total = total + factor.dense()
    return Dense(total)


@contextmanager
def exactly() -> Iterator[None]:
    """Compute in the types that tensors have, also where the caller has asked for quick products."""
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    with ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def at_least_single(tensor: Tensor) -> Tensor:
    """In float32 if it is shorter: squares of half-precision numbers leave their range."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def norms(rows: Tensor) -> Tensor:
    """Norms of the rows of a matrix, in float64, to one part in a million, whatever their size."""
    found = _norms(rows)
    low, high, up, down = _RANGE[rows.dtype]
    if len(found):
        least, most = found.aminmax()
        if low <= least.item() and most.item() <= high:
            return found
    for outside, scale in ((found < low, up), (found > high, down)):
        if bool(outside.any()):
            found[outside] = _norms(rows[outside] * scale) / scale
    return found


def _norms(rows: Tensor) -> Tensor:
    """Norms in float64 from those of short pieces: a long float32 sum of squares loses digits."""
    if rows.shape[1] <= _PIECE:
        return torch.linalg.vector_norm(rows, dim=1).double()
    whole = rows.shape[1] // _PIECE * _PIECE
    rest = torch.linalg.vector_norm(rows[:, whole:], dim=1).double()
    pieces = torch.linalg.vector_norm(
        rows[:, :whole].reshape(len(rows), whole // _PIECE, _PIECE), dim=2
    ).double()
    return torch.hypot(torch.linalg.vector_norm(pieces, dim=1), rest)


def squares(rows: Tensor) -> Tensor:
    """Squared norms of the rows of a matrix, in float64."""
    return norms(rows).square_()


def with_rounding(squared: Tensor, size: Tensor, terms: int) -> Tensor:
    """Squared norms that also cover the rounding of ``terms`` in float64, of the given total size."""
    return (squared.sqrt() + 4e-16 * math.sqrt(terms) * size).square_()


def _add_product(out: Tensor, left: Tensor, right: Tensor, weights: Tensor) -> None:
    """Add Σ_i weights[i] × Σ_t right[i, t] ⊗ left[i, t]."""
    scaled = (right * weights.to(right.dtype)[:, None, None]).flatten(0, 1)
    matrix = out.view(right.shape[2], left.shape[2])
    if out.dtype is scaled.dtype:
        matrix.addmm_(scaled.T, left.flatten(0, 1))
    else:
        matrix.add_(scaled.T @ left.flatten(0, 1))
