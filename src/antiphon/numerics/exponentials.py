"""Power series whose coefficients are short sums of exponentials.

Those of (1 - z)^(-1/2) are c_t = binom(2t, t) 4^-t, slowly decaying like t^(-1/2); m exponentials
follow them over T steps with an error that falls geometrically in m [BLT24].
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from antiphon.errors import PlanError
from antiphon.numerics.arrays import Series

__all__ = ["fit_inverse_square_root", "reciprocal"]

_POINTS = 400
_ROUNDS = 25
# Fastest rate, and slowest rate times T, from which the search starts; the next if it runs astray.
_SPANS = (1.5, 0.7), (1.2, 0.9), (2.0, 0.5), (1.0, 1.2)
# No rate above 20 (e^-20 is 0 beside the others) and no scale above 1: keeps exp() in range.
_LARGEST = 20.0, 1.0
# No rate below 0.001/T (as good as constant over T steps) and no scale of 0: keeps decays below 1.
_SMALLEST = 1e-3, 1e-12


def reciprocal(scales: Series, decays: Series) -> tuple[Series, Series]:
    """Scales b and decays y with 1 - Σ_j b_j y_j^(t-1) the reciprocal series of 1 + Σ_j a_j x_j^(t-1).

    That series is the response of a state that follows diag(x) - 1aᵀ. For a > 0 this matrix is similar to
    the symmetric diag(x) - √a √aᵀ, whose eigenvalues are y: O(m³), and no cancellation for close x.
    """
    root = np.sqrt(scales)
    decays, vectors = np.linalg.eigh(np.diag(decays) - np.outer(root, root))
    return (vectors.T @ root) ** 2, decays


def fit_inverse_square_root(T: int, terms: int) -> tuple[Series, Series]:
    """Scales a and decays x with c_t ≈ Σ_j a_j x_j^(t-1) for 1 <= t < T.

    Minimises the largest relative error over log-spaced t: Levenberg-Marquardt in the logarithms of
    rates and scales, with Lawson's reweighting, which turns least squares into nearly a minimax fit;
    Remez' exchange makes it one. Up to T = 2 terms the Gauss-Chebyshev rule is exact instead.

    Guarantee:
        a > 0 and 0 < x < 1, so that the fitted series is positive and decreasing.
    """
    if terms < 1:
        raise PlanError(f"a sum of exponentials needs at least one term; got {terms}.")
    if 2 * terms >= T:
        nodes = np.cos((2 * np.arange(1, terms + 1) - 1) * np.pi / (4 * terms)) ** 2
        return nodes / terms, nodes
    steps = np.arange(1, T)
    t = np.unique(np.geomspace(1, T - 1, _POINTS).round().astype(int))
    # A short horizon has fewer whole numbers than points: take them all.
    t = steps if len(t) > T // 2 else t
    c = np.cumprod((steps - 0.5) / steps)[t - 1]

    largest = np.repeat(np.log(_LARGEST), terms)
    smallest_allowed = np.repeat(np.log([_SMALLEST[0] / T, _SMALLEST[1]]), terms)

    def unpack(p: Series) -> tuple[Series, Series]:
        q = np.exp(np.clip(p, smallest_allowed, largest))
        return q[:terms], q[terms:]

    def exponentials(p: Series) -> NDArray[np.float64]:
        rates, scales = unpack(p)
        return np.exp(-np.outer(t - 1, rates)) * (scales / c[:, None])

    def residual(p: Series, weight: Series) -> Series:
        return weight * (exponentials(p).sum(1) - 1)

    def jacobian(p: Series, weight: Series) -> NDArray[np.float64]:
        E = exponentials(p)
        by_rate = -E * np.outer(t - 1, unpack(p)[0])
        return weight[:, None] * np.concatenate([by_rate, E], axis=1)

    def largest_error(p: Series) -> float:
        return float(np.abs(residual(p, np.ones(len(t)))).max())

    best = start = _start(T, terms, *_SPANS[0])
    for span in _SPANS:
        found = _minimax(residual, jacobian, _start(T, terms, *span), len(t))
        best = min(best, found, key=largest_error)
        # From some starts the search runs astray, to terms that are as good as gone.
        if largest_error(best) < 0.5 * largest_error(start):
            break
    one = np.ones(len(t))
    best = _exchange(lambda p: residual(p, one), lambda p: jacobian(p, one), best)
    rates, scales = unpack(best)
    order = np.argsort(-rates)
    return scales[order], np.exp(-rates[order])


def _start(T: int, terms: int, fast: float, slow: float) -> Series:
    """Logarithms of rates from ``fast`` to ``slow`` / T, and of scales for them.

    c_t ≈ t^(-1/2)/√π = (1/π) ∫ √r e^(-rt) d(log r), as a sum over the rates. (Starting from a least-
    squares fit instead leaves some scales at 0, and their terms go astray.)
    """
    rates = np.geomspace(fast, slow / T, terms)
    width = math.log(fast * T / slow) / (math.pi * max(1, terms - 1))
    return np.log(np.concatenate([rates, np.sqrt(rates) * np.exp(-rates) * width]))


def _minimax(
    residual: Callable[[Series, Series], Series],
    jacobian: Callable[[Series, Series], NDArray[np.float64]],
    p: Series,
    points: int,
) -> Series:
    """Least squares again and again, with more weight where the error is large (Lawson, 1961)."""
    best, smallest, lawson = p, np.inf, np.full(points, 1 / points)
    for _ in range(_ROUNDS):
        p = least_squares(
            residual, p, jacobian, method="lm", max_nfev=200, args=(np.sqrt(lawson),)
        ).x
        error = np.abs(residual(p, np.ones(points)))
        if error.max() < smallest:
            best, smallest = p, error.max()
        if error.max() < 1e-13:
            break
        lawson = np.maximum(lawson * error / (lawson @ error), 1e-12)
    return best


def _exchange(
    residual: Callable[[Series], Series],
    jacobian: Callable[[Series], NDArray[np.float64]],
    p: Series,
) -> Series:
    """Newton steps towards the fit whose error swings between ±level, once more than it has parameters.

    Such a fit is the best possible. A step that does not make the largest error smaller ends the search.
    """
    for _ in range(_ROUNDS):
        error = residual(p)
        swings = np.split(np.arange(len(error)), np.flatnonzero(np.diff(np.sign(error))) + 1)
        peaks = np.array([swing[np.argmax(np.abs(error[swing]))] for swing in swings])
        if len(peaks) != len(p) + 1:
            break
        system = np.column_stack([jacobian(p)[peaks], -np.sign(error[peaks])])
        try:
            move = np.linalg.solve(system, -error[peaks])[:-1]
        except np.linalg.LinAlgError:
            break
        for shrink in (1.0, 0.3, 0.1, 0.03):
            if np.abs(residual(p + shrink * move)).max() < np.abs(error).max() * (1 - 1e-6):
                p = p + shrink * move
                break
        else:
            break
    return p
