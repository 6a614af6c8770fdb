"""Lower-triangular Toeplitz matrices, each held as its first column.

Their products and inverses are those of power series cut after T terms: with C[i, j] = c[i - j],
the column of C @ D is the product of c and d, and the column of C⁻¹ is the reciprocal of c.
"""

from fractions import Fraction

import numpy as np
from scipy.linalg import toeplitz as scipy_toeplitz
from scipy.signal import fftconvolve, lfilter

from antiphon.errors import UnsupportedError
from antiphon.numerics.arrays import Matrix, Series, Vector

__all__ = ["all_pole_energy", "gram", "invert", "lower", "multiply"]

# Below this length the direct product is as fast as the FFT, and exact to the last digit.
_DIRECT = 512


def lower(column: Vector) -> Matrix:
    """The dense matrix C with C[i, j] = column[i - j] for i >= j and 0 above the diagonal."""
    return np.tril(scipy_toeplitz(column))


def multiply(a: Vector, b: Vector) -> Vector:
    """First column of the product: the power series a * b cut to their length."""
    convolve = np.convolve if len(a) <= _DIRECT else fftconvolve
    return convolve(a, b)[: len(a)]


def invert(column: Series, T: int) -> Series:
    """First T entries of the first column of C⁻¹, where ``column`` may be shorter than T.

    The recursion is exact for any non-zero leading entry: no condition on the zeros of the series is
    needed, and where the reciprocal grows, the growth is returned [CorrelatedNoise24, eq. 5 needs
    more: see `all_pole_energy`].
    """
    impulse = np.zeros(T)
    impulse[0] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        return lfilter([1.0], column[:T], impulse)


def gram(column: Vector) -> Matrix:
    """X = CᵀC in O(T²): X[s, t] = Σ_u c[u - s] c[u - t], summed along each diagonal from its end."""
    T = len(column)
    if T > 20_000:
        raise UnsupportedError(
            f"this sensitivity needs a dense {T} x {T} matrix ({8e-9 * T * T:.0f} GB). Use a mechanism "
            "whose first column is non-negative and non-increasing with Once, MinSeparation or "
            "FixedEpochs, for which a closed form is known."
        )
    X = np.empty((T, T))
    for lag in range(T):
        # Reversed, the diagonal's partial sums are those of c[i] c[i + lag].
        diagonal = np.cumsum(column[: T - lag] * column[lag:])[::-1]
        rows = np.arange(T - lag)
        X[rows, rows + lag] = diagonal
        X[rows + lag, rows] = diagonal
    return X


def all_pole_energy(beta: Series) -> float | None:
    """Σ_t c_t² over all t for c = 1/beta, or None if that sum is infinite.

    The step-down recursion gives beta's reflection coefficients k; the sum is finite exactly if beta
    has no zero in the closed unit disk, that is if every |k| < 1 (Schur and Cohn), and is then
    beta_0⁻² Π 1/(1 - k²) [Kay88]. Without that condition the familiar integral of |B|⁻²
    is not this sum: for beta = (1, -2) it is 1/3, while c_t = 2^t.

    In fractions: every float is one, so the condition is decided and the sum is right even for zeros
    that float64 could not tell from the unit circle, where it loses all digits.

    Example:
        >>> all_pole_energy(np.array([1.0, -0.5]))
        1.3333333333333333
        >>> all_pole_energy(np.array([1.0, -2.0])) is None
        True
    """
    polynomial = [Fraction(b) for b in np.trim_zeros(beta, "b").tolist()]
    energy = 1 / polynomial[0] ** 2
    a = [b / polynomial[0] for b in polynomial]
    while len(a) > 1:
        k = a[-1]
        if abs(k) >= 1:
            return None
        energy /= 1 - k * k
        a = [(x - k * y) / (1 - k * k) for x, y in zip(a, reversed(a), strict=True)][:-1]
    return float(energy)
