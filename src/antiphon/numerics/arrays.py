"""Shapes as types: within one call every ``T`` is the same number (checked at run time in tests)."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Series = NDArray[np.float64]
    Rows = NDArray[np.float64]
else:
    Vector = Float64[np.ndarray, " T"]
    Matrix = Float64[np.ndarray, "T T"]
    Series = Float64[np.ndarray, " _"]
    Rows = Float64[np.ndarray, "rows T"]

__all__ = ["Matrix", "Rows", "Series", "Vector"]
