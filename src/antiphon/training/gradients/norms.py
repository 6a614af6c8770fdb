"""Norms of rows in float64 to one part in a million, whatever the size of their numbers."""

import math

import torch
from torch import Tensor

__all__ = ["as_wide", "at_least_single", "norms", "squares", "with_rounding"]

_PIECE = 1 << 10  # norms of so many float32 numbers are right to one part in a million
# Norms outside of these are computed from rescaled numbers, since squares leave the range of the type.
_RANGE = {torch.float32: (1e-13, 1e18, 1e30, 1e-25), torch.float64: (1e-130, 1e150, 1e160, 1e-160)}


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


def as_wide(tensor: Tensor, out: Tensor) -> Tensor:
    """In the type of ``out`` if that is the longer one: sums are made in it."""
    return tensor.to(torch.promote_types(tensor.dtype, out.dtype))
