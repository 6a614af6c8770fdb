"""The tracing attack on a ReLU neuron: who was in the data, from the weights alone, knowing the truth.

The score of a record is <M - w, (y - ReLU(w·x)) 1[w·x > 0] x> for released weights M and true ones w. In
[ReLURegression25, eq. 5] the factor x is missing, and the sentence before Lemma 6 has it the wrong way
round: members score high, by σ²d/N on average if M is accurate, strangers 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from antiphon.checks import positive, whole
from antiphon.errors import PlanError

__all__ = ["Tracing", "trace", "tracing_scores"]

Array = NDArray[np.float64]
Estimate = Callable[[Array, Array], ArrayLike]


def tracing_scores(released: ArrayLike, X: ArrayLike, y: ArrayLike, truth: ArrayLike) -> Array:
    """One score for each record; members score high.

    For an audit with planted canaries, `antiphon.audits.black_box` takes them with the sign of a loss:
    ``black_box(-tracing_scores(...), planted, certificate)``.

    Args:
        released: M, the weights that were released.
        X: Records.
        y: Their labels.
        truth: w, which the attacker knows.

    Example:
        >>> tracing_scores([1.5, 0.0], [[1.0, 0.0], [2.0, 0.0]], [2.0, 2.25], truth=[1.0, 0.0]).tolist()
        [0.5, 0.25]
    """
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    moved, w = np.asarray(released, np.float64), np.asarray(truth, np.float64)
    if X.ndim != 2 or y.shape != X.shape[:1] or not moved.shape == w.shape == X.shape[1:]:
        raise PlanError(
            "records and labels need as many rows, and both weights as many numbers as a record; got "
            f"shapes {X.shape}, {y.shape}, {moved.shape} and {w.shape}."
        )
    u = X @ w
    return np.asarray((X @ (moved - w)) * (y - np.maximum(u, 0.0)) * (u > 0))


@final
@dataclass(frozen=True)
class Tracing:
    """How well members can be told from strangers, over many data sets.

    Attributes:
        runs: Data sets.
        members: Σ_i E T_i/(σ²d): 1 for unbiased weights, Σ_j ∂E[M_j]/∂w_j/d in general.
        members_se: Its standard error.
        stranger: Mean score of a record that was not there; 0 whatever the algorithm.
        stranger_se: Its standard error.
        stranger_size: Mean absolute score of strangers.
        limit: σ sqrt(MSE_Σ/2), which ``stranger_size`` cannot exceed in the mean.
        separation: Mean score of a member over the standard deviation of a stranger's.
    """

    runs: int
    members: float
    members_se: float
    stranger: float
    stranger_se: float
    stranger_size: float
    limit: float
    separation: float


def trace(
    estimate: Estimate, n: int, d: int, label_noise: float, runs: int, seed: int = 0
) -> Tracing:
    """Attack an algorithm on data of the class of the lower bound.

    x is uniform in [-1, 1]^d, y = ReLU(w·x) + N(0, σ²), and w is drawn once, of norm 1/2.

    Args:
        estimate: From records and labels to weights.
        n: Records of a data set.
        d: Inputs.
        label_noise: σ.
        runs: Data sets, each with as many strangers as members.
        seed: Of everything drawn here.

    Guarantee:
        Estimates with standard errors over independent data sets, and no bound on ε: an audit that bounds ε
        is `antiphon.audits.two_world` with `antiphon.audits.train_neuron`.
    """
    n, d, sigma = whole("n", n), whole("d", d), positive("label_noise", label_noise)
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(d)
    w *= 0.5 / np.linalg.norm(w)

    def draw() -> tuple[Array, Array]:
        X = rng.uniform(-1, 1, (n, d))
        return X, np.maximum(X @ w, 0.0) + sigma * rng.standard_normal(n)

    inside, outside, squared, sizes = [], [], [], []
    for _ in range(_several(runs)):
        X, y = draw()
        found = np.asarray(estimate(X, y), np.float64)
        strangers = tracing_scores(found, *draw(), w)
        inside.append(tracing_scores(found, X, y, w).sum() / (sigma**2 * d))
        outside.append(strangers.mean())
        sizes.append((np.abs(strangers).mean(), (strangers**2).mean()))
        squared.append(float(((found - w) ** 2).sum() / 3))
    size, spread = np.mean(sizes, axis=0)
    member = float(np.mean(inside)) * sigma**2 * d / n
    return Tracing(
        runs,
        float(np.mean(inside)),
        _error(inside),
        float(np.mean(outside)),
        _error(outside),
        float(size),
        sigma * math.sqrt(float(np.mean(squared)) / 2),
        member / math.sqrt(spread) if spread > 0 else 0.0,
    )


def _several(runs: int) -> int:
    if whole("runs", runs) < 2:
        raise PlanError("standard errors need at least 2 runs; got 1.")
    return runs


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))
