"""Splines of contiguous NumPy arrays in one pass over the result.

Work goes in blocks that stay in the fastest cache: places first, then one polynomial after the other for
the whole block. A chain of torch operations reads and writes the large result many times instead:
``benchmarks/splines.py`` measures both.
"""

from functools import lru_cache
from typing import Any, no_type_check

import numpy as np
from numba import njit
from numpy.typing import NDArray

from antiphon.numerics import UniformSplines, spline_pieces

__all__ = ["basis", "contraction"]

_BLOCK = 256


def basis(x: NDArray[Any], splines: UniformSplines, order: int) -> NDArray[Any]:
    """Derivatives of the given order of all basis functions: shape (*x.shape, p), in x's precision."""
    out = np.empty((*x.shape, splines.size), x.dtype)
    _basis(x.reshape(-1), out.reshape(-1), *_numbers(splines, order, x.dtype))
    return out


def contraction(
    x: NDArray[Any], weights: NDArray[Any], splines: UniformSplines, order: int
) -> NDArray[Any]:
    """Inner products of ``weights`` (*x.shape, p) with what `basis` gives, which is not built."""
    out = np.zeros(x.shape, x.dtype)
    numbers = _numbers(splines, order, x.dtype)
    _contraction(x.reshape(-1), weights.reshape(-1), out.reshape(-1), *numbers)
    return out


@lru_cache(maxsize=64)
def _numbers(splines: UniformSplines, order: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """The table, the ends, intervals per unit length; the chain rule's factor within and outside."""
    real, density = dtype.type, 1 / splines.spacing
    ends = real(splines.low), real(splines.high)
    factors = real(density**order), real(order == 0)
    table = spline_pieces(splines.degree, order).astype(dtype)
    return table, splines.intervals, *ends, real(density), *factors


# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def _locate(x, functions, intervals, low, high, density, inside, outside, starts, t, factors):
    """Where each x's functions start in the block, its place in its interval, its factor."""
    size = intervals + functions - 1
    for i in range(len(x)):
        v = x[i]
        factors[i] = inside if low <= v <= high else outside
        v = low if v < low else v  # not min and max, which may lose a NaN
        v = high if v > high else v
        z = (v - low) * density
        # A NaN has no place: it takes the first interval and stays a NaN in t.
        q = min(np.int32(z if z > 0 else x.dtype.type(0)), np.int32(intervals - 1))
        starts[i] = i * size + q
        t[i] = z - x.dtype.type(q)


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def _polynomial(coefficients, t, factors, out):
    """Horner's scheme for a whole block, times the factors."""
    top = len(coefficients) - 1
    out[:] = coefficients[top]
    for e in range(top - 1, -1, -1):
        c = coefficients[e]
        for i in range(len(t)):
            out[i] = out[i] * t[i] + c
    for i in range(len(t)):
        out[i] *= factors[i]


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def _basis(x, out, table, intervals, low, high, density, inside, outside):
    functions = table.shape[0]
    size = intervals + functions - 1
    starts = np.empty(_BLOCK, np.int32)
    t = np.empty(_BLOCK, x.dtype)
    factors, values = np.empty_like(t), np.empty_like(t)  # rows of one array are not vectorised
    for begin in range(0, len(x), _BLOCK):
        n = min(_BLOCK, len(x) - begin)
        some = x[begin : begin + n]
        block = out[begin * size : (begin + n) * size]
        block[:] = 0
        _locate(some, functions, intervals, low, high, density, inside, outside, starts, t, factors)
        for j in range(functions):
            _polynomial(table[j], t[:n], factors[:n], values[:n])
            for i in range(n):
                block[starts[i] + j] = values[i]


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def _contraction(x, weights, out, table, intervals, low, high, density, inside, outside):
    functions = table.shape[0]
    size = intervals + functions - 1
    starts = np.empty(_BLOCK, np.int32)
    t = np.empty(_BLOCK, x.dtype)
    factors, values = np.empty_like(t), np.empty_like(t)  # rows of one array are not vectorised
    for begin in range(0, len(x), _BLOCK):
        n = min(_BLOCK, len(x) - begin)
        some = x[begin : begin + n]
        block = weights[begin * size : (begin + n) * size]
        sums = out[begin : begin + n]
        _locate(some, functions, intervals, low, high, density, inside, outside, starts, t, factors)
        for j in range(functions):
            _polynomial(table[j], t[:n], factors[:n], values[:n])
            for i in range(n):
                sums[i] += block[starts[i] + j] * values[i]
