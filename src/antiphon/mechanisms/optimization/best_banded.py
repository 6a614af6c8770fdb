"""The best banded Toeplitz encoder, by quasi-Newton on its coefficients."""

from collections.abc import Callable

import numpy as np
from scipy.signal import fftconvolve, lfilter

from antiphon.mechanisms.abstract_mechanism import AbstractMechanism
from antiphon.mechanisms.banded import Banded
from antiphon.mechanisms.optimization.objective import (
    SquaredError,
    against_worst_pattern,
    from_end,
    quasi_newton,
    squared_sensitivity,
)
from antiphon.numerics import Series, Vector
from antiphon.participation import AbstractParticipation

__all__ = ["best_banded"]


def best_banded(
    T: int,
    bands: int,
    participation: AbstractParticipation,
    error: SquaredError,
    loss: Callable[[AbstractMechanism], float],
) -> Banded:
    """Minimise log error² + log sensitivity² from the square root of prefix sums.

    If two participations can be closer than ``bands`` steps, the coefficients are kept non-negative
    and non-increasing, so that the closed form of the sensitivity is exact for them.
    """
    start = Banded.square_root(bands)

    def solve(pattern: tuple[int, ...]) -> Banded:
        overlap = len(pattern) > 1 and min(np.diff(pattern)) < bands
        objective = _log_loss(T, bands, error, pattern)
        if not overlap:
            tail = quasi_newton(
                lambda x: _drop_first(objective(np.concatenate([[1.0], x]))),
                np.array(start.coef[1:]),
            )
            return Banded((1.0, *tail.tolist()))
        drops = quasi_newton(
            lambda u: _by_drops(objective(from_end(u))),
            -np.diff([*start.coef, 0.0]),
            bounds=[(0.0, None)] * bands,
        )
        column = from_end(drops)
        return Banded(tuple((column / column[0]).tolist()))

    best = against_worst_pattern(solve, start, T, participation, loss)
    assert isinstance(best, Banded)
    return best


def _log_loss(
    T: int, bands: int, error: SquaredError, pattern: tuple[int, ...]
) -> Callable[[Series], tuple[float, Series]]:
    impulse = np.eye(1, T)[0]

    def objective(coef: Series) -> tuple[float, Series]:
        if not coef[0] > 0:
            return np.inf, np.zeros_like(coef)
        beta = lfilter([1.0], coef, impulse)
        square, by_beta = error(beta)
        # δβ = -C⁻¹ δC β, so the gradient is the correlation of C⁻ᵀ(by_beta) with β.
        adjoint = lfilter([1.0], coef, by_beta[::-1])[::-1]
        by_coef = -fftconvolve(adjoint, beta[::-1])[T - 1 : T - 1 + bands]
        column: Vector = np.concatenate([coef, np.zeros(T - bands)])
        sensitivity, by_column = squared_sensitivity(column, pattern)
        value = np.log(square) + np.log(sensitivity)
        return float(value), by_coef / square + by_column[:bands] / sensitivity

    return objective


def _drop_first(pair: tuple[float, Series]) -> tuple[float, Series]:
    return pair[0], pair[1][1:]


def _by_drops(pair: tuple[float, Series]) -> tuple[float, Series]:
    return pair[0], np.cumsum(pair[1])
