"""The compiled loop of `antiphon.numerics.grid`: one number's sum and noise, rounded once."""

from collections.abc import Callable
from functools import lru_cache
from typing import no_type_check

import numpy as np
from numba import njit

from antiphon.numerics.compiled import compiled

__all__ = ["fill_rounded", "rounded"]

# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@njit(nogil=True, error_model="numpy")
def rounded(total, noise, ratio, inverse, step):
    """The point of the grid next to ``total`` + scale × ``noise``.

    ``ratio`` is the scale over the grid's ``step``, and ``inverse`` 1 / ``step``.
    """
    a, added = total * inverse, noise * ratio
    m = np.rint(a)
    near = (m + np.rint((a - m) + added) + 0.0) * step  # + 0.0 makes 0 of −0
    far = total + np.rint(added) * step  # here the total is on the grid
    return near if abs(a) < 2.0**52 else far


@no_type_check
def _rounded(sums, noise, ratio, inverse, step, out):
    for i in range(len(out)):
        out[i] = rounded(np.float64(sums[i]), noise[i], ratio, inverse, step)


@lru_cache(maxsize=1)
def fill_rounded() -> Callable[..., None]:
    """The compiled loop over sums in float32 or float64, noise in float64 and results of either type.

    One pass over memory, in the calling thread; it lets others run.
    """
    types = [("float32", "float32"), ("float64", "float64"), ("float64", "float32")]
    return compiled(
        _rounded,
        *(f"void({a}[::1], float64[::1], float64, float64, float64, {b}[::1])" for a, b in types),
    )
