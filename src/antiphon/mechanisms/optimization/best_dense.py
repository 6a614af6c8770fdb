"""The best encoder without any structure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from antiphon.errors import UnsupportedError
from antiphon.mechanisms.abstract_mechanism import ErrorKind
from antiphon.mechanisms.dense import Dense
from antiphon.mechanisms.optimization.dual import Dual
from antiphon.numerics import Matrix, Series, lower_root

__all__ = ["Solution", "best_dense"]

# Stop when the encoder is within this of the best possible: far below any effect on learning.
_GAP = 2e-4
_STEPS = 200


class Solution(NamedTuple):
    """The best encoder found and what no mechanism can beat."""

    mechanism: Dense
    bound: float


class _Done(StopIteration):
    """The gap is small enough."""


def best_dense(
    A: Matrix, groups: Sequence[Sequence[int]], kind: ErrorKind, start: Matrix
) -> Solution:
    """Climb the dual until the encoder that answers it is within 0.02 % of the bound.

    At the optimum X = CᵀC vanishes between different steps of one pattern. The answer to a nearby point
    is made feasible by setting those entries to 0, so that its sensitivity is exact.

    Args:
        A: The workload, invertible.
        groups: Disjoint patterns that together hold every step.
        kind: Which error.
        start: Gram matrix of a good mechanism.
    """
    dual = Dual(A, groups, kind)
    apart = np.ones_like(A, dtype=bool)
    for steps in groups:
        apart[np.ix_(steps, steps)] = np.eye(len(steps), dtype=bool)
    best: tuple[float, Matrix | None] = np.inf, None
    highest = 0.0

    def climb(point: Series) -> tuple[float, Series]:
        nonlocal best, highest
        bound, gradient, X = dual.at(point)
        highest = max(highest, bound)
        feasible = np.where(apart, X, 0.0)
        loss = _loss(A, feasible, groups, kind)
        if loss < best[0]:
            best = loss, feasible
        return -np.log(bound), -gradient

    def stop(_: Series) -> None:
        if best[0] <= highest * (1 + _GAP):
            raise _Done

    minimize(
        climb,
        dual.start(start),
        jac=True,
        method="L-BFGS-B",
        callback=stop,
        options={"maxiter": _STEPS, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-9},
    )
    if best[1] is None:
        raise UnsupportedError(
            "no encoder was found: the workload is too close to singular. A learning-rate schedule "
            "must stay positive."
        )
    return Solution(Dense(lower_root(best[1])), highest)


def _loss(A: Matrix, X: Matrix, groups: Sequence[Sequence[int]], kind: ErrorKind) -> float:
    try:
        C = lower_root(X)
    except ValueError:
        return np.inf
    rows = np.sum(solve_triangular(C, A.T, lower=True, trans="T") ** 2, axis=0)
    sensitivity = max(float(np.diagonal(X)[list(steps)].sum()) for steps in groups)
    return float(np.sqrt(sensitivity * (rows.mean() if kind == "rms" else rows.max())))
