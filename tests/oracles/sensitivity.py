"""The sensitivity of an encoder by trying contributions, one pattern after another."""

from itertools import product

import numpy as np
from oracles.patterns import largest, patterns

from antiphon.participation import AbstractParticipation


def brute_force(C: np.ndarray, participation: AbstractParticipation) -> float:
    """Largest ‖Cu‖ found over all patterns: a lower bound on the sensitivity, mostly attained."""
    X = C.T @ C
    family = largest(patterns(participation, len(X)))
    return max(attained(X[np.ix_(steps, steps)]) for steps in family)


def attained(X: np.ndarray) -> float:
    """Largest sqrt(Σ_st X_st ⟨u_s, u_t⟩) found for unit vectors u_t.

    All signs times one direction are tried. Where they do not reach Σ|X_st|, which nothing exceeds, so
    is an ascent that turns one vector at a time towards the sum of the others, weighted by X.
    """
    k = len(X)
    signs = np.array([(1, *tail) for tail in product((1, -1), repeat=k - 1)], dtype=float)
    squares = np.einsum("is,st,it->i", signs, X, signs)
    best = float(squares.max())
    if best < np.abs(X).sum() * (1 - 1e-12):
        start = np.eye(1, k) * signs[squares.argmax()][:, None]
        random = np.random.default_rng(0).standard_normal((k, k))
        best = max(best, ascend(X, start + 0.1 * random), ascend(X, random))
    return float(np.sqrt(best))


def ascend(X: np.ndarray, U: np.ndarray, rounds: int = 30) -> float:
    """Σ_st X_st ⟨u_s, u_t⟩ after ``rounds`` passes, each of which can only raise it."""
    U = U / np.linalg.norm(U, axis=1, keepdims=True)
    for _ in range(rounds):
        for t in range(len(X)):
            towards = X[t] @ U - X[t, t] * U[t]
            U[t] = towards / max(np.sqrt(towards @ towards), 1e-300)
    return float(np.sum(X * (U @ U.T)))
