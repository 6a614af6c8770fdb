"""The best buffered linear Toeplitz encoder, by quasi-Newton on its scales and decays."""

from collections.abc import Callable

import numpy as np
from scipy.signal import fftconvolve

from antiphon.mechanisms.abstract_mechanism import AbstractMechanism
from antiphon.mechanisms.blt import BLT
from antiphon.mechanisms.optimization.best_scalar import best_nu_ftrl
from antiphon.mechanisms.optimization.objective import (
    SquaredError,
    against_worst_pattern,
    quasi_newton,
    squared_sensitivity,
)
from antiphon.numerics import Series, Vector, reciprocal
from antiphon.participation import AbstractParticipation

__all__ = ["best_blt"]

_MOST = 6
_WORTH_A_BUFFER = 1e-3


def best_blt(
    T: int,
    buffers: int | None,
    participation: AbstractParticipation,
    error: SquaredError,
    loss: Callable[[AbstractMechanism], float],
) -> BLT:
    """Add one buffer after another, each time from the best starts known.

    One start is the fit of the best ν-FTRL; the other adds a quickly decaying buffer to the optimum
    with one buffer less, because from the fit alone buffers may merge. Without a number of buffers,
    they are added until one more gains less than 0.1 %.
    """
    nu = best_nu_ftrl(T, loss)
    best: BLT | None = None
    for count in range(1, (buffers or _MOST) + 1):
        starts = [nu.buffered(T, count)] + ([_one_faster(best)] if best else [])
        found = [_descend(T, start, participation, error, loss) for start in starts]
        candidate = min(found, key=loss)
        if best and buffers is None and loss(candidate) > loss(best) * (1 - _WORTH_A_BUFFER):
            break
        best = candidate
    assert best is not None
    return best


def _one_faster(mechanism: BLT) -> BLT:
    fastest = min(mechanism.decays)
    return BLT((0.2, *mechanism.scales), (fastest**4, *mechanism.decays))


def _descend(
    T: int,
    start: BLT,
    participation: AbstractParticipation,
    error: SquaredError,
    loss: Callable[[AbstractMechanism], float],
) -> BLT:
    m = len(start.scales)
    decays = np.clip(start.decays, 1e-6, 1 - 1e-9)
    p0 = np.log(np.concatenate([np.maximum(start.scales, 1e-6), -np.log(decays)]))

    def solve(pattern: tuple[int, ...]) -> BLT:
        p = quasi_newton(lambda x: _log_loss(x, m, T, error, pattern), p0)
        scales, decays = np.exp(p[:m]), np.exp(-np.exp(p[m:]))
        return BLT(tuple(scales.tolist()), tuple(decays.tolist()))

    best = against_worst_pattern(solve, start, T, participation, loss)
    assert isinstance(best, BLT)
    return best


def _log_loss(
    p: Series, m: int, T: int, error: SquaredError, pattern: tuple[int, ...]
) -> tuple[float, Series]:
    """Log error² + log sensitivity² and its gradient in the logarithms of scales and rates."""
    scales, rates = np.exp(p[:m]), np.exp(p[m:])
    t = np.arange(T - 1)
    powers = np.exp(-rates[:, None] * t)
    c = np.concatenate([[1.0], scales @ powers])
    weights, decays = reciprocal(scales, np.exp(-rates))
    # exp of a product is several times quicker than a power, and the decays are hardly ever negative.
    falls = (
        np.exp(np.log(decays)[:, None] * t) if decays.min() > 0 else np.power(decays[:, None], t)
    )
    beta = np.concatenate([[1.0], -(weights @ falls)])
    square, by_beta = error(beta)
    sensitivity, by_c = squared_sensitivity(c, pattern)
    # δβ = -C⁻¹ δC β: two correlations with β carry the gradient from β back to c.
    by_c = by_c / sensitivity - _correlate(_correlate(by_beta, beta), beta) / square
    by_scales = powers @ by_c[1:]
    by_rates = -scales * (powers @ (t * by_c[1:]))
    gradient = np.concatenate([by_scales * scales, by_rates * rates])
    return float(np.log(square) + np.log(sensitivity)), gradient


def _correlate(a: Vector, b: Vector) -> Vector:
    """Σ_t a[s + t] b[t] for every s: the transpose of the Toeplitz matrix with column b, times a."""
    return fftconvolve(a, b[::-1])[len(a) - 1 :]
