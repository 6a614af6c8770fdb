"""The compiled loops of `antiphon.training.gradients.lookups`: gradients of equal lines added up."""

from collections.abc import Callable
from functools import lru_cache
from typing import no_type_check

import numpy as np
import torch
from torch import Tensor

from antiphon.numerics.compiled import compiled

__all__ = ["add_lines", "line_sums"]

_TYPES = [
    (torch.float32, torch.float32),
    (torch.float32, torch.float64),
    (torch.float64, torch.float64),
]
# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


def line_sums(index: Tensor, right: Tensor, lines: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row, line and sum, for every line that a row uses.

    Args:
        index: Lines, each from 0 to ``lines`` - 1: (rows, T).
        right: What is added up, in float32 or float64: (rows, T, width).
        lines: Of the table.
    """
    if index.device.type != "cpu":
        return _by_torch(index, right, lines)
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < lines:
        raise IndexError(f"a line is not among the {lines} of the table.")
    used = np.ascontiguousarray(index.numpy(), dtype=np.int64)
    row, line, place = np.empty((3, used.size), np.int64)
    count = _grouping()(used, lines, row, line, place)
    sums = right.new_zeros(count, right.shape[2])
    _adding()(place, right.reshape(used.size, right.shape[2]).contiguous().numpy(), sums.numpy())
    return torch.from_numpy(row[:count]), torch.from_numpy(line[:count]), sums


def add_lines(out: Tensor, weights: Tensor, row: Tensor, line: Tensor, sums: Tensor) -> None:
    """Add ``weights[row[n]] * sums[n]`` to ``out[line[n]]``, for every n.

    Args:
        out: Changed in place.
        weights: In float64, one for every row.
        row: Of each sum, as `line_sums` gives it; then line and sums, too.
        line: Of each sum.
        sums: What is added.
    """
    if out.device.type == "cpu" and out.is_contiguous() and (sums.dtype, out.dtype) in _TYPES:
        parts = (row, line, sums, weights.double().contiguous(), out)
        _scattering()(*(part.detach().numpy() for part in parts))
        return
    scaled = sums * weights.to(sums.dtype)[row][:, None]
    out.index_add_(0, line, scaled.to(out.dtype))


def _by_torch(index: Tensor, right: Tensor, lines: int) -> tuple[Tensor, Tensor, Tensor]:
    row = torch.arange(len(index), device=index.device)[:, None]
    places, of_place = torch.unique(index + row * lines, return_inverse=True)
    sums = right.new_zeros(len(places), right.shape[2])
    sums.index_add_(0, of_place.view(-1), right.flatten(0, 1))
    return places // lines, places % lines, sums


@no_type_check
def _group(index, lines, row, line, place):
    """Number the lines that each row uses; tell the number of every entry, and how many there are."""
    number = np.full(lines, -1, np.int64)  # of a line, if it is not below the row's first
    count = 0
    for i in range(index.shape[0]):
        first = count
        for t in range(index.shape[1]):
            used = index[i, t]
            if number[used] < first:
                number[used] = count
                row[count] = i
                line[count] = used
                count += 1
            place[i * index.shape[1] + t] = number[used]
    return count


@no_type_check
def _add(place, right, sums):
    for i in range(len(place)):
        n = place[i]
        for c in range(right.shape[1]):
            sums[n, c] += right[i, c]


@no_type_check
def _scatter(row, line, sums, weights, out):
    for n in range(len(row)):
        weight, target = weights[row[n]], line[n]
        for c in range(sums.shape[1]):
            out[target, c] += weight * sums[n, c]


@lru_cache(maxsize=1)
def _grouping() -> Callable[..., int]:
    return compiled(_group, "int64(int64[:, ::1], int64, int64[::1], int64[::1], int64[::1])")


@lru_cache(maxsize=1)
def _adding() -> Callable[..., None]:
    types = ("float32", "float64")
    return compiled(_add, *(f"void(int64[::1], {t}[:, ::1], {t}[:, ::1])" for t in types))


@lru_cache(maxsize=1)
def _scattering() -> Callable[..., None]:
    names = [(str(one)[6:], str(other)[6:]) for one, other in _TYPES]
    return compiled(
        _scatter,
        *(
            f"void(int64[::1], int64[::1], {a}[:, ::1], float64[::1], {b}[:, ::1])"
            for a, b in names
        ),
    )
