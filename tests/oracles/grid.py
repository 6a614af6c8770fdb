"""A sum and its noise on the public grid, from the text of `numerics.grid` alone, in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np


def spacing_of(deviation):
    """The largest power of two that is at most 2^−12 of the standard deviation."""
    return Fraction(2) ** (math.floor(math.log2(deviation)) - 12)


def on_grid(sums, z, scale, unit=1.0):
    """The points of the grid next to sums + scale × z, as float64; ``unit`` is the first row's."""
    h = spacing_of(scale * unit)
    flat = zip(np.ravel(sums).tolist(), np.ravel(z).tolist(), strict=True)
    points = [round((Fraction(s) + Fraction(scale) * Fraction(x)) / h) * h for s, x in flat]
    return np.array([float(point) for point in points]).reshape(np.shape(sums))
