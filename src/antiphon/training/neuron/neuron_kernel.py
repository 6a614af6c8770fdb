"""The compiled loop of one neuron: steps of clipped directions and noise, one row after another.

A record's direction is (ReLU(x·w) - y) x, so its norm is |ReLU(x·w) - y| ‖x‖: clipping needs one number,
and a batch is read once. Batches of one record, which no vectorised code can speed up, cost as much per
record as full batches.
"""

from typing import no_type_check

import numpy as np
from numba import njit

from antiphon.numerics.rounding import rounded

__all__ = ["buffered_rows", "moving_rows", "run_steps", "tree_rows"]

_FAST = {"contract", "reassoc", "nsz", "arcp"}  # not nnan: a NaN must stay one
# Norms and divisions round: a factor this much smaller keeps the computed norm within the bound.
_INSIDE = 1 - 1e-14
_SMALL, _LARGE = 1e-200, 1e200  # squares within are exact enough; norms of others are scaled first
_TINY = 2.3e-308  # factors below lose digits: directions that need one count as zero

# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def _scaled_norm(x):
    """The norm of a row whose squares leave the range of float64."""
    largest = np.max(np.abs(x))
    if not (0 < largest < np.inf):
        return largest
    total = 0.0
    for value in x:
        total += (value / largest) ** 2
    return largest * np.sqrt(total)


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _add_directions(X, y, rows, w, clip_norm, is_gradient, out):
    """Adds the clipped direction of every row; what is not finite counts as zero."""
    d = X.shape[1]
    for i in rows:
        x = X[i]
        u, square = 0.0, 0.0
        for j in range(d):
            u += x[j] * w[j]
            square += x[j] * x[j]
        if is_gradient and not u > 0:
            continue
        residual = max(u, 0.0) - y[i]
        norm = np.sqrt(square) if _SMALL < square < _LARGE else _scaled_norm(x)
        if not 0 < norm < np.inf or not abs(residual) < np.inf:
            continue
        factor = residual
        if not abs(residual) * norm <= clip_norm:
            factor = np.copysign(clip_norm * _INSIDE / norm, residual)
            if not abs(factor) > _TINY:
                continue
        for j in range(d):
            out[j] += factor * x[j]


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def run_steps(X, y, rows, offsets, noise, w, total, scalars, is_gradient, is_after, step, first):
    """Several steps in a row; ``w`` and ``total``, the sum of the averaged iterates, are changed.

    Step k takes the rows between two offsets: w ← w - rate × (Σ clipped + scale × noise[k]) / divisor, with
    the sum in brackets rounded onto the grid; then back into the ball. Iterates count in ``total`` from
    step ``first`` on: those before each step, or those after it.
    """
    clip_norm, scale, divisor, rate, radius, step_of_grid = scalars
    ratio, inverse = scale / step_of_grid, 1 / step_of_grid
    moved = np.empty(len(w))
    for k in range(len(offsets) - 1):
        is_counted = step + k >= first
        if is_counted and not is_after:
            total += w
        moved[:] = 0.0
        _add_directions(X, y, rows[offsets[k] : offsets[k + 1]], w, clip_norm, is_gradient, moved)
        for j in range(len(w)):
            moved[j] = rounded(moved[j], noise[k, j], ratio, inverse, step_of_grid)
        w -= rate / divisor * moved
        if radius < np.inf:
            length = np.sqrt(np.sum(w * w))
            if length > radius:
                w *= radius / length
        if is_counted and is_after:
            total += w


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def tree_rows(z, step, levels):
    """White noise of steps from ``step`` on becomes rows of C⁻¹z of `Tree`, in place.

    A node's noise less that of its children, the newest nodes of each lower level, which ``levels`` holds.
    """
    newest = np.empty(z.shape[1])
    for k in range(len(z)):
        level, number = 0, step + k + 1
        while number & 1 == 0:
            level, number = level + 1, number >> 1
        newest[:] = z[k]
        for lower in range(level):
            z[k] -= levels[lower]
        levels[level] = newest


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def moving_rows(z, step, kept, weights, is_recursive):
    """White noise becomes weights[0] z_t + Σ_i weights[i] kept_{t-i}, in place.

    ``kept`` holds the last outputs if that is recursive, else the last inputs; that of step t in row t mod
    its length.
    """
    length = len(kept)
    x = np.empty(z.shape[1])
    for k in range(len(z)):
        t = step + k
        x[:] = weights[0] * z[k]
        for i in range(1, length + 1):
            x += weights[i] * kept[(t - i) % length]
        kept[t % length] = x if is_recursive else z[k]
        z[k] = x


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def buffered_rows(z, kept, scales, decays):
    """White noise becomes x = z - Σ_j scales[j] s_j, in place; then s_j ← decays[j] s_j + x [BLT24]."""
    for k in range(len(z)):
        for j in range(len(kept)):
            z[k] -= scales[j] * kept[j]
        for j in range(len(kept)):
            kept[j] = decays[j] * kept[j] + z[k]
