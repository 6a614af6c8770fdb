"""Compiled loops over fixed inputs: sparse products, and the hidden layer of a two-layer KAN in one pass.

An entry is a value that differs from its column's background. Columns are cut into blocks whose
coefficients fit the second cache; a column has p + 1 rows in its block's tile, of which the last belongs to
the background. ``places`` holds an entry's first tile row, ``ends`` its column's last one.
"""

from typing import no_type_check

import numpy as np
from numba import njit

__all__ = ["count_entries", "fill_entries", "gather", "hidden", "pack", "scatter", "unpack"]

_FAST = {"contract", "reassoc", "nsz", "arcp"}  # not nnan: a NaN must stay one

# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@njit(cache=True, nogil=True)
def count_entries(x, columns, background, width, starts):
    """Cumulated number of entries, blocks first, then rows: ``starts`` has one row per block."""
    total = 0
    for b in range(starts.shape[0]):
        for i in range(x.shape[0]):
            starts[b, i] = total
            for place in range(b * width, min((b + 1) * width, len(columns))):
                total += x[i, columns[place]] != background[place]
        starts[b, x.shape[0]] = total
    return total


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def fill_entries(x, columns, background, width, low, high, density, intervals, table, out):
    """Tile rows and spline values of every entry."""
    starts, places, ends, values = out
    functions, powers = table.shape
    size = intervals + functions - 1
    for b in range(starts.shape[0]):
        for i in range(x.shape[0]):
            e = starts[b, i]
            for place in range(b * width, min((b + 1) * width, len(columns))):
                v = x[i, columns[place]]
                if v == background[place]:
                    continue
                v = low if not v > low else v  # a NaN, too: its row is void
                v = high if v > high else v
                z = (v - low) * density
                q = min(int(z), intervals - 1)
                t = z - q
                local = place - b * width
                places[e] = local * (size + 1) + q
                ends[e] = local * (size + 1) + size
                for k in range(functions):
                    value = table[k, powers - 1]
                    for power in range(powers - 2, -1, -1):
                        value = value * t + table[k, power]
                    values[e, k] = value
                e += 1


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def pack(coef, columns, common, tiles):
    """Coefficients (m, d p) of some columns as tiles (columns, p + 1, m), the background's product last."""
    m, size = coef.shape[0], common.shape[1]
    for i in range(len(columns)):
        tile, begin = tiles[i], columns[i] * size
        for j in range(m):
            for k in range(size):
                tile[k, j] = coef[j, begin + k]
        tile[size] = 0
        for k in range(size):
            for j in range(m):
                tile[size, j] += common[i, k] * tile[k, j]


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def unpack(tiles, columns, common, total, out):
    """The transposed way, into ``out`` (m, d p).

    A tile's last row holds the weights of rows that differ from the background; the rest of ``total``, the
    weights of all rows, is the background's.
    """
    m, size = out.shape[0], common.shape[1]
    for i in range(len(columns)):
        tile, begin = tiles[i], columns[i] * size
        for k in range(size):
            for j in range(m):
                tile[k, j] += common[i, k] * (total[j] - tile[size, j])
        for j in range(m):
            for k in range(size):
                out[j, begin + k] = tile[k, j]


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def gather(chosen, starts, places, ends, values, height, tiles, out):
    """Adds to each row of ``out`` the tile rows of its entries, less those of the background."""
    m, functions = out.shape[1], values.shape[1]
    for b in range(starts.shape[0]):
        tile = tiles[b * height : (b + 1) * height]
        for row in range(len(chosen)):
            i = chosen[row]
            for e in range(starts[b, i], starts[b, i + 1]):
                r, end = places[e], ends[e]
                if functions == 4:
                    v0, v1, v2, v3 = values[e, 0], values[e, 1], values[e, 2], values[e, 3]
                    for j in range(m):
                        out[row, j] += (
                            v0 * tile[r, j]
                            + v1 * tile[r + 1, j]
                            + v2 * tile[r + 2, j]
                            + v3 * tile[r + 3, j]
                            - tile[end, j]
                        )
                    continue
                for j in range(m):
                    out[row, j] -= tile[end, j]
                for k in range(functions):
                    v = values[e, k]
                    for j in range(m):
                        out[row, j] += v * tile[r + k, j]


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def scatter(chosen, starts, places, ends, values, height, weights, tiles):
    """The transposed product: adds each row of ``weights``, times spline values, to the tile rows."""
    m, functions = weights.shape[1], values.shape[1]
    for b in range(starts.shape[0]):
        tile = tiles[b * height : (b + 1) * height]
        for row in range(len(chosen)):
            i = chosen[row]
            for e in range(starts[b, i], starts[b, i + 1]):
                r, end = places[e], ends[e]
                for j in range(m):
                    tile[end, j] += weights[row, j]
                for k in range(functions):
                    v = values[e, k]
                    for j in range(m):
                        tile[r + k, j] += v * weights[row, j]


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def hidden(
    u, signs, void, first_squares, is_tanh, low, density, pieces, squares, sizes, moments, out
):
    """From hidden values to weighted slopes, in one pass; see `antiphon_papers.common.closed_form`.

    ``u`` becomes σ'(a_j) <c_j, h'(u_j)> times the example's weight; ``moments`` gets the weights times the
    powers of the places, for each unit and interval; ``out`` the margins y f and the norms before clipping.
    """
    clip_norm, root, first_factor, trains_second = sizes
    m, intervals, powers = pieces.shape
    t, n2 = np.empty(m, u.dtype), np.empty(m, u.dtype)
    q = np.empty(m, np.int32)
    steep = np.empty(m, u.dtype)
    one = u.dtype.type(1)
    for i in range(u.shape[0]):
        row = u[i]
        for j in range(m):
            z = (row[j] - low) * density
            z = z if z > 0 else u.dtype.type(0)
            k = min(np.int32(z), np.int32(intervals - 1))
            q[j] = k
            t[j] = z - u.dtype.type(k)
            steep[j] = (one - row[j] * row[j] if is_tanh else row[j] * (one - row[j])) * density
        values = u.dtype.type(0)
        slopes = 0.0  # norms in double: in single precision wide layers pass the clip norm, tiny ones any
        for j in range(m):
            k = q[j]
            value, slope = pieces[j, k, powers - 1], u.dtype.type(0)
            if powers == 4:  # the loop below, unrolled
                v1 = value * t[j] + pieces[j, k, 2]
                v2 = v1 * t[j] + pieces[j, k, 1]
                slope = (value * t[j] + v1) * t[j] + v2
                value = v2 * t[j] + pieces[j, k, 0]
            else:
                for e in range(powers - 2, -1, -1):
                    slope = slope * t[j] + value
                    value = value * t[j] + pieces[j, k, e]
            s = slope * steep[j]
            row[j] = s
            values += value
            slopes += np.float64(s) * np.float64(s)  # float() would leave it as it is
        norms = 0.0
        if trains_second:
            top = len(squares) - 1
            for j in range(m):
                n2[j] = squares[top]
            for e in range(top - 1, -1, -1):
                for j in range(m):
                    n2[j] = n2[j] * t[j] + squares[e]
            for j in range(m):
                norms += np.float64(n2[j])
        margin = np.float64(signs[i]) * np.float64(values) / root
        pull = -1.0 / (1.0 + np.exp(margin))
        total = first_factor * np.float64(first_squares[i]) * slopes + norms
        norm = -pull * np.sqrt(total) / root
        weight = pull * signs[i] / root
        if norm > clip_norm:
            weight *= clip_norm / norm
        out[i, 0] = margin
        out[i, 1] = norm
        if void[i] or not np.isfinite(weight) or not np.isfinite(norm):
            weight = 0.0
            for j in range(m):
                row[j] = 0
            continue
        r = u.dtype.type(weight)
        for j in range(m):
            # In double: the weight of a steep example may be too small for single precision.
            row[j] = u.dtype.type(np.float64(row[j]) * weight)
        if trains_second:
            for j in range(m):
                k, power = q[j], r
                if powers == 4:
                    moments[j, k, 0] += r
                    moments[j, k, 1] += r * t[j]
                    moments[j, k, 2] += r * t[j] * t[j]
                    moments[j, k, 3] += r * t[j] * t[j] * t[j]
                    continue
                for e in range(powers):
                    moments[j, k, e] += power
                    power *= t[j]
