"""The best banded encoder without Toeplitz structure: for participations only known to be apart."""

import numpy as np
from scipy.linalg import solve_triangular

from antiphon.mechanisms.abstract_mechanism import ErrorKind
from antiphon.mechanisms.dense import Dense
from antiphon.mechanisms.optimization.objective import quasi_newton
from antiphon.numerics import Matrix, Series, Vector

__all__ = ["best_min_separation"]

_STEPS = 80  # from the best Toeplitz encoder, the rest gains less than 0.1 %


def best_min_separation(A: Matrix, bands: int, kind: ErrorKind, start: Matrix) -> Dense:
    """Quasi-Newton on the entries of C within ``bands`` diagonals, its columns scaled to norm 1.

    Participations at least ``bands`` steps apart then meet orthogonal columns, so that the sensitivity
    is exactly sqrt(times) [Banded23].
    """
    T = len(A)
    rows, columns = np.nonzero(np.tri(T, T) - np.tri(T, T, -bands))

    def encoder(entries: Series) -> tuple[Matrix, Vector]:
        C = np.zeros((T, T))
        C[rows, columns] = entries
        norms = np.linalg.norm(C, axis=0)
        return C / norms, norms

    def objective(entries: Series) -> tuple[float, Series]:
        C, norms = encoder(entries)
        if not np.diagonal(C).all():
            return np.inf, np.zeros_like(entries)
        B = solve_triangular(C, A.T, lower=True, trans="T").T  # A C⁻¹
        squares = np.sum(B**2, axis=1)
        weight = np.full(T, 1 / T) if kind == "rms" else np.eye(1, T, int(np.argmax(squares)))[0]
        value = float(weight @ squares)
        by_C = -2 * solve_triangular(C, (weight[:, None] * B).T @ B, lower=True).T
        # Through the scaling of the columns only the part orthogonal to a column counts.
        by_C = (by_C - C * np.sum(by_C * C, axis=0)) / norms
        return np.log(value), by_C[rows, columns] / value

    C, _ = encoder(quasi_newton(objective, start[rows, columns], most=_STEPS))
    return Dense(C)
