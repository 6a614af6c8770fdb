"""Noise as it must not be made: normals of one word per radius, added to a sum in floating point.

What attacks on rounding succeed on. `generator` is NumPy's.
"""

import numpy as np


def pairs(generator, count, bits, beyond=0.0):
    """Both normals of ``count`` pairs, shape (2, count); of radii above ``beyond`` only, if given.

    A word w stands for u = (w + 1/2) / 2^bits, and the radius is sqrt(−2 log u).
    """
    real = np.float32 if bits == 32 else np.float64
    words = generator.integers(0, int(2.0**bits * np.exp(-(beyond**2) / 2)), count, np.uint64)
    r = np.sqrt(-2 * (np.log(words.astype(float) + 0.5) - bits * np.log(2)))
    t = generator.uniform(0, 2 * np.pi, count)
    return (r * np.array([np.cos(t), np.sin(t)])).astype(real)


def added(total, z, scale):
    """Sum and noise in the type of z, rounded wherever the result lies."""
    return z.dtype.type(total) + z.dtype.type(scale) * z
