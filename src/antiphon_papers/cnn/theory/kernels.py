"""The activation of all filters on all noise patches, in one compiled pass there and one back."""

from typing import no_type_check

import numpy as np
from numba import njit

__all__ = ["back", "there"]

_FAST = {"contract", "reassoc", "nsz", "arcp"}  # not nnan: a NaN must stay one

# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _huberized(z, knee, q, slopes, values):
    """Slopes and values of one row of pre-activations; whole powers by multiplication."""
    over, share = z.dtype.type(1 / knee), z.dtype.type(knee / q)
    low, high, at = z.dtype.type(0), z.dtype.type(1), z.dtype.type(knee)
    if q == 3.0:
        for i in range(len(z)):
            c = min(max(z[i] * over, low), high)
            slopes[i] = c * c
            values[i] = share * c * c * c + max(z[i] - at, low)
    else:
        power = z.dtype.type(q - 1)
        for i in range(len(z)):
            c = min(max(z[i] * over, low), high)
            slopes[i] = c**power
            values[i] = share * c * slopes[i] + max(z[i] - at, low)


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def there(z, y, knee, q, outputs, squares, tops):
    """From pre-activations z, one row per filter, to their slopes, in place.

    ``outputs`` takes Σ_k J_k σ(z_ki), ``squares`` Σ_k σ'(z_ki)², and ``tops`` the largest pre-activation
    among the filters of an example's own label.
    """
    outputs[:], squares[:], tops[:] = 0, 0, -np.inf
    half, values, slopes = len(z) // 2, np.empty_like(z[0]), np.empty_like(z[0])
    for k in range(len(z)):
        sign = z.dtype.type(1 if k < half else -1)
        row = z[k]
        _huberized(row, knee, q, slopes, values)
        for i in range(len(row)):
            outputs[i] += sign * values[i]
            squares[i] += slopes[i] * slopes[i]
            tops[i] = max(tops[i], row[i]) if y[i] == sign else tops[i]
            row[i] = slopes[i]


@no_type_check
@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def back(slopes, weights, energies, step_size, rho):
    """From slopes to weighted slopes J_k w_i σ'(z_ki), in place; ``rho`` moves by -η ‖ξ_i‖² times them."""
    half, eta = len(slopes) // 2, slopes.dtype.type(step_size)
    for k in range(len(slopes)):
        sign = slopes.dtype.type(1 if k < half else -1)
        row, moved = slopes[k], rho[k]
        for i in range(len(row)):
            row[i] *= sign * weights[i]
            moved[i] -= eta * energies[i] * row[i]
