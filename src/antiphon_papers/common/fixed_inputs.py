"""Spline features of inputs that never change: computed once, multiplied many times."""

from collections.abc import Iterator
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from antiphon.errors import PlanError
from antiphon.models import spline_kernels as kernels
from antiphon.numerics import UniformSplines, spline_pieces
from antiphon_papers.common import fixed_kernels

__all__ = ["FixedInputs", "Products"]

_Array = NDArray[Any]
_Rows = NDArray[np.intp]

_TILE = 2**18  # bytes of coefficients that stay in the second cache
# Rows whose sums are taken in the inputs' precision; sums of those, in double. So one record can change the
# rounding of few others, and by little: in single precision a running sum of very many would swallow them.
_PART = 1024


@final
class FixedInputs:
    """The products Φ Wᵀ and Sᵀ Φ of n rows of inputs, where Φ[i] holds all spline values of row i.

    A column with a background, a value that most rows share, as images do, is kept sparse: that value's
    features are multiplied once for all rows, and only other values are visited, degree + 1 of whose p
    features are not zero. The features of all other columns are kept dense, for BLAS.

    Args:
        x: Inputs, one row per example, float32 or float64.
        splines: The grid.
        outputs: m, the number of rows of W and of columns of S.
        background: Of all columns, or of each, where NaN is none. It changes speed, and the rounding of
            every row: so it is declared, and not looked for in the data.
        largest: Bytes of dense features that are kept; larger ones are computed again for each product.

    Attributes:
        void: Which rows hold a NaN; their products mean nothing.
        squares: ‖Φ[i]‖² of each row.

    Example:
        >>> x = np.array([[-1.0], [0.25]])
        >>> fixed = FixedInputs(x, UniformSplines(intervals=2, degree=1), outputs=1)
        >>> fixed.select().times(np.array([[1.0, 2.0, 4.0]])).tolist()
        [[1.0], [2.5]]
    """

    def __init__(
        self,
        x: _Array,
        splines: UniformSplines,
        outputs: int,
        *,
        background: ArrayLike | None = None,
        largest: float = 4e9,
    ) -> None:
        if x.ndim != 2 or not x.size or x.dtype not in (np.float32, np.float64):
            raise PlanError(
                "fixed inputs are a matrix of float32 or float64 with at least one row and column; got "
                f"shape {x.shape} of {x.dtype}."
            )
        x = np.ascontiguousarray(x)
        self.splines, self.outputs = splines, outputs
        self.n, self.d = x.shape
        self.void: NDArray[np.bool_] = np.asarray(np.isnan(x).any(1))
        values = _backgrounds(background, x)
        self.sparse, self.full = (
            np.flatnonzero(some) for some in (~np.isnan(values), np.isnan(values))
        )
        self.common = kernels.basis(values[self.sparse], splines, 0)  # features of the backgrounds
        self._others = np.nan_to_num(x[:, self.full], nan=0.0)  # void rows have no weight
        self.entries = self._encode(x, values[self.sparse])
        self.dense: torch.Tensor | None = None
        if self._others.nbytes * splines.size <= largest:
            self.dense = self.features(None)
        self.squares = self._squares()

    def select(self, rows: _Rows | None = None, out: torch.Tensor | None = None) -> "Products":
        """The products of all rows, or of those given.

        Args:
            rows: Indices.
            out: Memory for their dense features, such as an empty tensor, which grows as needed; what was
                selected into it before is lost.
        """
        chosen = np.arange(self.n) if rows is None else rows
        if rows is None or self.dense is None:
            return Products(self, chosen, self.dense)
        memory = self.dense.new_empty(0) if out is None else out
        memory.resize_(len(rows), self.dense.shape[1])
        torch.index_select(self.dense, 0, torch.from_numpy(rows), out=memory)
        return Products(self, chosen, memory)

    def features(self, rows: _Rows | None) -> torch.Tensor:
        """Features of the columns that are not sparse, computed again."""
        some = self._others if rows is None else self._others[rows]
        values = kernels.basis(np.ascontiguousarray(some), self.splines, 0)
        return torch.from_numpy(values.reshape(len(some), -1))

    @property
    def height(self) -> int:
        """Tile rows of one block of sparse columns."""
        return self._width * (self.splines.size + 1)

    def _encode(self, x: _Array, background: _Array) -> tuple[_Array, ...]:
        grid, real = self.splines, x.dtype.type
        column = (grid.size + 1) * self.outputs * x.itemsize
        self._width = max(1, min(_TILE // column, 2**16 // (grid.size + 1)))
        blocks = -(-len(self.sparse) // self._width)
        starts = np.empty((blocks, self.n + 1), np.int64)
        where = (x, self.sparse, background, self._width)
        count = fixed_kernels.count_entries(*where, starts) if blocks else 0
        table = np.ascontiguousarray(spline_pieces(grid.degree).astype(x.dtype))
        out = starts, *np.empty((2, count), np.uint16), np.empty((count, len(table)), x.dtype)
        numbers = real(grid.low), real(grid.high), real(1 / grid.spacing), grid.intervals, table
        fixed_kernels.fill_entries(*where, *numbers, out)
        return out

    def _squares(self) -> _Array:
        starts, _, ends, values = self.entries
        common = np.square(self.common).sum(1)
        parts = [torch.linalg.vector_norm(part, dim=1) for _, part in self.select().parts()]
        out: _Array = torch.cat(parts).square().numpy() + common.sum()
        for b, (first, last) in enumerate(zip(starts[:, :-1], starts[:, 1:], strict=True)):
            # What an entry's own features add to those of its column's background.
            part = slice(starts[b, 0], starts[b, -1])
            column = b * self._width + ends[part] // (self.splines.size + 1)
            gain = np.square(values[part]).sum(1) - common[column]
            sums = np.concatenate([[0.0], np.cumsum(gain, dtype=np.float64)])
            out += (sums[last - starts[b, 0]] - sums[first - starts[b, 0]]).astype(out.dtype)
        return out


@final
class Products:
    """Both products of the chosen rows of `FixedInputs`."""

    def __init__(self, inputs: FixedInputs, rows: _Rows, dense: torch.Tensor | None) -> None:
        self._of, self._rows, self._dense = inputs, rows, dense

    def parts(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Dense features of slices of the rows: of all at once, if they are kept."""
        if self._dense is not None:
            yield slice(None), self._dense
            return
        for begin in range(0, len(self._rows), _PART):
            some = slice(begin, begin + _PART)
            yield some, self._features(some)

    def times(self, coef: _Array) -> _Array:
        """Φ coefᵀ: shape (rows, outputs)."""
        of, p = self._of, self._of.splines.size
        out = np.zeros((len(self._rows), of.outputs), coef.dtype)
        if len(of.full):
            some = coef if len(of.full) == of.d else self._cut(coef)[:, of.full]
            weight, whole = torch.from_numpy(some.reshape(of.outputs, -1)), torch.from_numpy(out)
            for where, part in self.parts():
                torch.mm(part, weight.T, out=whole[where])
        if len(of.sparse):
            tiles = np.empty((len(of.sparse), p + 1, of.outputs), coef.dtype)
            fixed_kernels.pack(coef, of.sparse, of.common, tiles)
            out += tiles[:, -1].sum(0, dtype=np.float64).astype(coef.dtype)
            flat = tiles.reshape(-1, of.outputs)
            fixed_kernels.gather(self._rows, *of.entries, of.height, flat, out)
        return out

    def weighted(self, weights: _Array) -> _Array:
        """weightsᵀ Φ, summed over the rows: shape (outputs, d · p)."""
        parts = [slice(k, k + _PART) for k in range(0, len(self._rows), _PART)]
        if len(parts) == 1:
            return self._weighted(weights, parts[0])
        total = np.zeros((self._of.outputs, self._of.d * self._of.splines.size))
        for part in parts:
            total += self._weighted(weights, part)
        return total.astype(weights.dtype)

    def _weighted(self, weights: _Array, part: slice) -> _Array:
        of, p, some = self._of, self._of.splines.size, weights[part]
        full: _Array = torch.mm(torch.from_numpy(some).T, self._features(part)).numpy()
        if not len(of.sparse):
            return full
        tiles = np.zeros((len(of.sparse), p + 1, of.outputs), weights.dtype)
        flat = tiles.reshape(-1, of.outputs)
        fixed_kernels.scatter(self._rows[part], *of.entries, of.height, some, flat)
        total = some.sum(0, dtype=np.float64).astype(weights.dtype)
        out = np.empty((of.outputs, of.d * p), weights.dtype)
        self._cut(out)[:, of.full] = self._cut(full)
        fixed_kernels.unpack(tiles, of.sparse, of.common, total, out)
        return out

    def _features(self, part: slice) -> torch.Tensor:
        """Dense features of some of the rows."""
        if self._dense is not None:
            return self._dense[part]
        return self._of.features(self._rows[part])

    def _cut(self, values: _Array) -> _Array:
        """Rows of coefficients, column by column: a view of shape (outputs, columns, p)."""
        return values.reshape(self._of.outputs, -1, self._of.splines.size)


def _backgrounds(background: ArrayLike | None, x: _Array) -> _Array:
    """One for each column, in the inputs' precision; NaN where there is none."""
    values = np.asarray(np.nan if background is None else background, x.dtype)
    if values.shape not in ((), (x.shape[1],)):
        raise PlanError(
            f"background is one number, or one for each of the {x.shape[1]} columns; got shape "
            f"{values.shape}."
        )
    return np.broadcast_to(values, x.shape[1:])
