"""The second-order cone program of the strongly convex bound, by an interior point method of its own.

For frequencies ω_i with weights w_i, and a multiplier with u, v linear in its weights λ: minimise Σ w_i y_i
over λ and y >= 0, subject to X_i (y_i + 2u_i) >= |Q_i|² and X_i > 0. Each y_i is in one cone only, so
that a Newton step eliminates all of them and solves a system of the size of λ. A general solver needs the
scaling of its rows by hand where κ >= 1000; Newton's method does not see it.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from antiphon.errors import UnsupportedError
from antiphon.linalg import Series
from antiphon.theory.dp_ftrl.multipliers import Descent, Multiplier

__all__ = ["ConeSolution", "cone_rows", "solve_cone"]

_GAP = 1e-5
_NEWTON = 60


@final
@dataclass(frozen=True)
class ConeSolution:
    """A multiplier, and how good it is on the frequencies it was sought on.

    Attributes:
        multiplier: The multiplier found.
        value: Σ w_i y_i of it.
        gap: A bound on how far the value is from the smallest possible on these frequencies.
        steps: Newton steps taken.
    """

    multiplier: Multiplier
    value: float
    gap: float
    steps: int


def cone_rows(
    descent: Descent, u: Series, v: Series, frequencies: Series
) -> tuple[Series, Series, Series]:
    """X, Re Q and Im Q of the linear matrix inequality, all divided by η² [CorrelatedNoise24, eq. 93]."""
    eta, mu = descent.learning_rate, descent.mu
    sine, chord = np.sin(frequencies), 2 * np.sin(frequencies / 2) ** 2
    X = -1 + 2 * u * descent.curvature(chord) + 2 * (1 - mu) / eta * v * sine
    real = u * ((1 + mu) - 2 * chord / eta)
    return X, real, -(1 - mu) * v - 2 / eta * u * sine


def solve_cone(
    descent: Descent, frequencies: Series, weights: Series, lags: tuple[int, ...]
) -> ConeSolution:
    """The multiplier with the smallest Σ w_i y_i, to a relative gap of 1e-5.

    Args:
        descent: Learning rate and curvature.
        frequencies: In (0, π).
        weights: Positive, one for each frequency.
        lags: The lags at which the multiplier may have weights.

    Guarantee:
        The multiplier is valid, whatever the accuracy of the search. The gap is that of a point on the
        central path: number of barriers over their weight.
    """
    program = _Program(descent, frequencies, weights, lags)
    x, y = program.start()
    weight = program.barriers / max(1e-300, float(weights @ y))
    steps = 0
    while True:
        x, y, taken = program.centre(x, y, weight)
        steps += taken
        value, gap = float(weights @ y), program.barriers / weight
        if gap <= _GAP * value:
            break
        weight *= 12.0
    forward, backward = x[1 : 1 + len(lags)], x[1 + len(lags) :]
    multiplier = Multiplier(
        float(x[0]), tuple(lags), tuple(forward.tolist()), tuple(backward.tolist())
    )
    return ConeSolution(multiplier, value, gap, steps)


class _Program:
    """Barrier, gradient and Newton steps of the program in x = (λ_0, λ_+, λ_-) and y."""

    def __init__(
        self, descent: Descent, frequencies: Series, weights: Series, lags: tuple[int, ...]
    ) -> None:
        self._descent, self._lags, self._weights = descent, lags, weights
        t = np.outer(frequencies, lags)
        cos, sin = np.cos(t), np.sin(t)
        ones, zeros = np.ones((len(frequencies), 1)), np.zeros((len(frequencies), 1))
        self._u = np.hstack([ones, -cos, -cos])
        v = np.hstack([zeros, -sin, sin])
        columns = [
            cone_rows(descent, a, b, frequencies) for a, b in zip(self._u.T, v.T, strict=True)
        ]
        self._X = np.array([X + 1 for X, _, _ in columns]).T
        self._real = np.array([real for _, real, _ in columns]).T
        self._imag = np.array([imag for _, _, imag in columns]).T
        # One barrier for each weight, one for their sum, one for each y, and two for each cone.
        self.barriers = 2 * len(lags) + 1 + 3 * len(frequencies)

    def start(self) -> tuple[Series, Series]:
        """A point inside: a constant of twice what is needed, and a tenth of it spread over the lags."""
        ends = self._descent.curvature(np.array([0.0, 2.0]))
        constant = 2 / float(ends.min())
        x = np.full(self._u.shape[1], 0.1 * constant / max(1, self._u.shape[1] - 1))
        x[0] = constant
        X, Y, Q = self._cone(x, 0.0)
        return x, np.maximum(Q / X - Y, 0.0) + np.median(Q / X)

    def centre(self, x: Series, y: Series, weight: float) -> tuple[Series, Series, int]:
        """Newton's method with backtracking, to the point of the central path at this weight."""
        for taken in range(1, _NEWTON + 1):
            step_x, step_y, decrement = self._newton(x, y, weight)
            before, size = self._barrier(x, y, weight), 1.0
            while self._barrier(x + size * step_x, y + size * step_y, weight) > (
                before - 0.01 * size * decrement + 1e-9 * abs(before)
            ):
                size /= 2
                if size < 1e-12:
                    return x, y, taken
            x, y = x + size * step_x, y + size * step_y
            if decrement < 1e-6:
                return x, y, taken
        raise UnsupportedError(
            "the search for a multiplier did not settle. Take fewer lags, or a larger strong convexity."
        )

    def _cone(self, x: Series, y: Series | float) -> tuple[Series, Series, Series]:
        return (
            self._X @ x - 1,
            y + 2 * (self._u @ x),
            (self._real @ x) ** 2 + (self._imag @ x) ** 2,
        )

    def _barrier(self, x: Series, y: Series, weight: float) -> float:
        X, Y, Q = self._cone(x, y)
        D, room = X * Y - Q, 2 * x[0] - x.sum()
        if min(X.min(), D.min(), y.min(), x[1:].min(initial=1.0), x[0], room) <= 0:
            return float("inf")
        logs = np.log(D).sum() + np.log(y).sum() + np.log(x[1:]).sum() + np.log(room)
        return float(weight * (self._weights @ y) - logs)

    def _newton(self, x: Series, y: Series, weight: float) -> tuple[Series, Series, float]:
        X, Y, Q = self._cone(x, y)
        D, room = X * Y - Q, 2 * x[0] - x.sum()
        real, imag = self._real @ x, self._imag @ x
        by_x = (
            Y[:, None] * self._X
            + 2 * X[:, None] * self._u
            - 2 * (real[:, None] * self._real + imag[:, None] * self._imag)
        )
        A = by_x / D[:, None]
        cross = self._X.T @ (self._u * (2 / D)[:, None])
        quadratic = self._real.T @ (self._real * (2 / D)[:, None])
        quadratic += self._imag.T @ (self._imag * (2 / D)[:, None])
        hessian = A.T @ A - (cross + cross.T - quadratic)
        signs = np.ones_like(x)
        signs[0] = -1
        hessian += np.outer(signs, signs) / room**2
        hessian[np.arange(1, len(x)), np.arange(1, len(x))] += 1 / x[1:] ** 2
        gradient = -A.sum(axis=0) + signs / room
        gradient[1:] -= 1 / x[1:]
        # Each y: its own curvature, and what it shares with x.
        gradient_y = weight * self._weights - X / D - 1 / y
        own = (X / D) ** 2 + 1 / y**2
        shared = A * (X / D)[:, None] - self._X / D[:, None]
        reduced = hessian - shared.T @ (shared / own[:, None])
        right = -(gradient - shared.T @ (gradient_y / own))
        step_x = _solve(reduced, right)
        step_y = -(gradient_y + shared @ step_x) / own
        return step_x, step_y, -float(gradient @ step_x + gradient_y @ step_y)


def _solve(matrix: NDArray[np.float64], right: Series) -> Series:
    """The solution of a positive definite system, each unknown in its own scale."""
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix * np.outer(scale, scale)
    for ridge in (0.0, 1e-14, 1e-12, 1e-10, 1e-8):
        try:
            factor = cho_factor(scaled + ridge * np.eye(len(scaled)))
        except np.linalg.LinAlgError:
            continue
        return scale * cho_solve(factor, scale * right)
    raise UnsupportedError("the search for a multiplier lost all digits. Take fewer lags.")
