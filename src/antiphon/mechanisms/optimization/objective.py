"""The two factors of a Toeplitz mechanism's loss, with their gradients.

The squared error is a quadratic form of the decoder's column β, the squared sensitivity under one
pattern a quadratic form of the encoder's column c. Both cost O(T), so that a quasi-Newton step at
T = 10,000 takes milliseconds.
"""

from collections.abc import Callable
from typing import final

import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter

from antiphon.mechanisms.abstract_mechanism import ErrorKind
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.mechanisms.workload import Workload
from antiphon.numerics import Series, Vector, gram
from antiphon.participation import AbstractParticipation

__all__ = [
    "SquaredError",
    "against_worst_pattern",
    "from_end",
    "quasi_newton",
    "squared_sensitivity",
]


@final
class SquaredError:
    """β ↦ error² of the workload and its gradient."""

    def __init__(self, T: int, kind: ErrorKind, workload: Workload) -> None:
        self._rates = workload.rates(T)
        self._momentum = workload.momentum
        self._kind = kind
        self._is_toeplitz = workload.is_toeplitz
        # Entry t of the first column of A C⁻¹ stands in the T - t rows from t on; the last has them all.
        self._weight = np.arange(T, 0, -1) / T if kind == "rms" else np.ones(T)
        self._form = None if self._is_toeplitz else _schedule_form(self._rates)

    def __call__(self, beta: Vector) -> tuple[float, Vector]:
        """error² and its gradient in β."""
        velocity = lfilter([1.0], [1.0, -self._momentum], beta)
        if self._is_toeplitz:
            a = np.cumsum(velocity)
            square, by_velocity = float(self._weight @ a**2), from_end(2 * self._weight * a)
        elif self._kind == "rms":
            by_velocity = 2 * (self._form @ velocity)
            square = 0.5 * float(velocity @ by_velocity)
        else:
            square, by_velocity = self._largest_row(velocity)
        return square, lfilter([1.0], [1.0, -self._momentum], by_velocity[::-1])[::-1]

    def _largest_row(self, velocity: Vector) -> tuple[float, Vector]:
        """Of a schedule, whose rows' norms need not grow: the largest, and a subgradient."""
        T = len(velocity)
        squares = np.zeros(T)
        for start in range(T):
            squares[start:] += np.cumsum(self._rates[start:] * velocity[: T - start]) ** 2
        row = int(np.argmax(squares))
        rates = self._rates[: row + 1]
        # entry[s] = Σ_u rates[s + u] velocity[u]: a correlation.
        entry = np.array([rates[s:] @ velocity[: row + 1 - s] for s in range(row + 1)])
        gradient = np.zeros(T)
        for s in range(row + 1):
            gradient[: row + 1 - s] += 2 * entry[s] * rates[s:]
        return float(squares[row]), gradient


def _schedule_form(rates: Vector) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Q with mean squared error vᵀQv: Q[i, i+d] = Σ_{u >= i} rates[u] rates[u+d] (T - u - d) / T."""
    T = len(rates)
    Q = np.empty((T, T))
    for lag in range(T):
        rows = np.arange(T - lag)
        diagonal = from_end(rates[: T - lag] * rates[lag:] * (T - lag - rows) / T)
        Q[rows, rows + lag] = diagonal
        Q[rows + lag, rows] = diagonal
    return Q


def squared_sensitivity(c: Vector, pattern: tuple[int, ...]) -> tuple[float, Vector]:
    """‖Σ_{s ∈ pattern} C e_s‖² and its gradient in c."""
    T = len(c)
    total, gradient = np.zeros(T), np.zeros(T)
    for start in pattern:
        total[start:] += c[: T - start]
    for start in pattern:
        gradient[: T - start] += 2 * total[start:]
    return float(total @ total), gradient


def quasi_newton(
    objective: Callable[[Series], tuple[float, Series]],
    start: Series,
    bounds: list[tuple[float | None, float | None]] | None = None,
    most: int = 1000,
) -> Series:
    """The minimiser of a smooth function, by at most ``most`` L-BFGS steps.

    Points where the function is not finite are avoided.
    """

    def guarded(x: Series) -> tuple[float, Series]:
        with np.errstate(all="ignore"):
            value, gradient = objective(x)
        if np.isfinite(value) and np.isfinite(gradient).all():
            return value, gradient
        return 1e10, np.zeros_like(x)

    options = {"maxiter": most, "maxcor": min(30, len(start)), "ftol": 1e-13, "gtol": 1e-8}
    result = minimize(guarded, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(result.x, dtype=np.float64)


def against_worst_pattern(
    solve: Callable[[tuple[int, ...]], AbstractToeplitz],
    start: AbstractToeplitz,
    T: int,
    participation: AbstractParticipation,
    loss: Callable[[AbstractToeplitz], float],
) -> AbstractToeplitz:
    """The best mechanism against the pattern that is worst for it.

    Where the worst pattern depends on the mechanism, the two are found in turn and the mechanism of
    smallest true loss is kept.
    """
    pattern = participation.densest(T)
    if pattern is not None:
        return solve(pattern)
    best, current, seen = start, start, set[tuple[int, ...]]()
    for _ in range(4):
        pattern = participation.heaviest(np.abs(gram(current.column(T)))).pattern
        if pattern in seen:
            break
        seen.add(pattern)
        current = solve(pattern)
        best = min(best, current, key=loss)
    return best


def from_end(values: Series) -> Series:
    """Sums from each entry to the last."""
    return np.cumsum(values[::-1])[::-1]
