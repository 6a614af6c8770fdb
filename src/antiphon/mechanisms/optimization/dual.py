"""The dual of the best mechanism: certified lower bounds, and the optimal encoder itself.

For any distribution p over patterns and any correlation matrices U_π (positive semidefinite, unit
diagonal), let W be the sum of p_π U_π. A unit with pattern π whose contributions have the Gram matrix
U_π changes Cg by tr(CᵀC U_π)^(1/2), so tr(CᵀC W) <= sensitivity². With row weights q that sum to 1,
Cauchy and Schwarz give

    sensitivity · error  >=  ‖diag(q)^(1/2) A W^(1/2)‖_*        (nuclear norm)

for *every* mechanism: q = 1/T for the root mean square error, any q for the largest one. The right side
is jointly concave in (q, W) (it is a root fidelity), and where it is largest there is equality: the best
encoder has CᵀC = AᵀQ^(1/2) S^(-1/2) Q^(1/2)A with S = Q^(1/2) A W Aᵀ Q^(1/2). For one participation this
is the optimal factorisation of [Denisov22]; for fixed epochs it is the multi-epoch mechanism of
[MultiEpoch23], for vector-valued contributions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from antiphon.mechanisms.abstract_mechanism import ErrorKind
from antiphon.numerics import Matrix, Series, Vector

__all__ = ["Dual", "Point", "prefix_bound"]


class Point(NamedTuple):
    """The dual at one point.

    Attributes:
        bound: No mechanism's loss is smaller.
        gradient: Of log bound, in the point's coordinates.
        X: The Gram matrix of the encoder that answers this point.
    """

    bound: float
    gradient: Series
    X: Matrix


@final
@dataclass(frozen=True)
class Dual:
    """The concave function (q, W) ↦ ‖diag(q)^(1/2) A W^(1/2)‖_*, in coordinates without constraints.

    A point is (log p, a square matrix N_π per pattern, and for the largest error log q): U_π is the Gram
    matrix of N_π's rows scaled to norm 1.

    Attributes:
        A: The workload.
        groups: Disjoint patterns, each allowed by the participation. Steps in none of them have no
            weight.
        kind: Which error.
    """

    A: Matrix
    groups: Sequence[Sequence[int]]
    kind: ErrorKind

    def start(self, X: Matrix) -> Series:
        """The point that X would answer if it were optimal: W is X⁻¹AᵀAX⁻¹ within the patterns."""
        root = self.A @ np.linalg.inv(X)
        logs, corners = [], []
        for steps in self.groups:
            part = root[:, steps]
            block = part.T @ part
            logs.append(np.log(np.diagonal(block).max()))
            # A little of the identity keeps the corner away from the boundary, where it would stay.
            block = block + 1e-9 * np.trace(block) * np.eye(len(block))
            corners.append(np.linalg.cholesky(block).ravel())
        rows = [np.zeros(len(self.A))] if self.kind == "max" else []
        return np.concatenate([logs, *corners, *rows])

    def at(self, point: Series) -> Point:
        """Bound, gradient and answer at ``point``."""
        T = len(self.A)
        p = _softmax(point[: len(self.groups)])
        q = _softmax(point[-T:]) if self.kind == "max" else np.full(T, 1 / T)
        raw = self._corners(point)
        lengths = [np.linalg.norm(N, axis=1, keepdims=True) for N in raw]
        corners = [N / length for N, length in zip(raw, lengths, strict=True)]
        W = np.zeros((T, T))
        for weight, steps, N in zip(p, self.groups, corners, strict=True):
            W[np.ix_(steps, steps)] = weight * (N @ N.T)
        A = np.sqrt(q)[:, None] * self.A
        values, vectors = eigh(A @ W @ A.T, overwrite_a=True, check_finite=False)
        # Rounding moves an eigenvalue by up to T·ε of the largest: smaller ones may really be 0. Leaving
        # them out of the bound only lowers it; the answer X needs them, if only as something positive.
        noise = 4 * T * np.finfo(np.float64).eps
        roots = np.sqrt(np.maximum(values, 1e-30 * values[-1]))
        bound = float(roots[values > noise * values[-1]].sum()) * (1 - noise)
        half = (A.T @ vectors) / np.sqrt(roots)
        X = half @ half.T
        # d bound = tr(X dW) / 2, and for the row weights d bound = Σ (S^(1/2))_tt d log q_t / 2.
        by_p, by_corner = np.empty(len(p)), []
        for i, (steps, N) in enumerate(zip(self.groups, corners, strict=True)):
            XN = X[np.ix_(steps, steps)] @ N
            by_p[i] = 0.5 * np.sum(XN * N)
            by_corner.append(p[i] * (XN - np.sum(XN * N, axis=1, keepdims=True) * N))
        gradient = [p * (by_p - p @ by_p)]
        gradient += [(G / length).ravel() for G, length in zip(by_corner, lengths, strict=True)]
        if self.kind == "max":
            by_row = 0.5 * np.sum(vectors**2 * roots, axis=1)
            gradient.append(by_row - q * by_row.sum())
        return Point(bound, np.concatenate(gradient) / bound, X)

    def _corners(self, point: Series) -> list[NDArray[np.float64]]:
        """The square matrices N_π of ``point``, as they stand."""
        sizes = [len(steps) for steps in self.groups]
        cuts = len(sizes) + np.cumsum([0, *np.square(sizes)])
        return [
            point[a:b].reshape(n, n) for a, b, n in zip(cuts[:-1], cuts[1:], sizes, strict=True)
        ]


def prefix_bound(T: int, patterns: int) -> float:
    """The dual of prefix sums at U_π = I and equal p, in closed form.

    The singular values of the T x T prefix sums are 1 / (2 sin((2j - 1)π / (4T + 2))); with W = I/patterns
    their sum over sqrt(patterns · T) bounds the loss of every mechanism from below.
    """
    angles = (2 * np.arange(1, T + 1) - 1) * np.pi / (4 * T + 2)
    # Less than the rounding of a sum of T terms is given away.
    safe = 1 - 4 * T * np.finfo(np.float64).eps
    return float(np.sum(0.5 / np.sin(angles)) / np.sqrt(patterns * T)) * safe


def _softmax(x: Vector) -> Vector:
    weights = np.exp(x - x.max())
    return weights / weights.sum()
