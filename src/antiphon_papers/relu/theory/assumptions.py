"""Whether data look as the theorems assume: moments, symmetry and tails of a sample.

This looks at the data, and what it reports is not private: use it on public or synthetic data, or keep
what it says to yourself.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.special import ndtri

from antiphon.checks import positive, whole
from antiphon.errors import DataError, PlanError
from antiphon_papers.common.condition import Condition
from antiphon_papers.relu.theory.problem import vector_of

__all__ = ["Assumptions", "Tail", "check_assumptions"]

Array = NDArray[np.float64]

_TAILS = (0.25, 0.1, 0.01, 0.001)
_ASCENTS = 20  # of α from each start: the value never falls
_ALARM = 1e-3  # probability with which symmetric data are called asymmetric
_GAUSSIAN_TAIL = math.sqrt(8 / 3)  # C₂ of a Gaussian, for a = 1/2 and the bound 2


@final
@dataclass(frozen=True)
class Tail:
    """A quantile of the sample beside the curve of Definition 3.

    Attributes:
        of: "norm" (‖x‖²), "direction" (the worst of several <x, v>²) or "labels" (z²).
        probability: b, beyond the quantile.
        quantile: Of the sample.
        curve: What the definition allows.
    """

    of: str
    probability: float
    quantile: float
    curve: float

    @property
    def condition(self) -> Condition:
        """Whether the quantile is within the curve."""
        return Condition.at_most(
            f"tail of {self.of} at {self.probability:g}", self.quantile, self.curve
        )


@final
@dataclass(frozen=True, eq=False)
class Assumptions:
    """What a sample says of the assumptions; print it to read it. Not private.

    Attributes:
        eigenvalues: Of H = E[x xᵀ], ascending (Assumption 1).
        alpha: The largest E<x, v>⁴/E²<x, v>² that was found: α of Assumption 2 is at least this; 3 for
            Gaussians.
        symmetry_z: The largest |z| of the differences between opposite wedges (Assumption 3), by bootstrap.
        symmetry_limit: What |z| exceeds on symmetric data with probability 0.001, for so many differences.
        tails: Quantiles beside the curves of Definition 3.
        bias: ‖E[g(w)] - H(w - w*)/2‖ at w = 0 over ‖Hw*/2‖, if the target is known: how far the key
            identity is off, at least by the sample's own noise.
    """

    eigenvalues: Array
    alpha: float
    symmetry_z: float
    symmetry_limit: float
    tails: tuple[Tail, ...]
    bias: float | None = None

    @property
    def trace(self) -> float:
        """tr(H)."""
        return float(self.eigenvalues.sum())

    @property
    def condition_number(self) -> float:
        """κ; infinite if inputs do not vary in some direction."""
        low, high = float(self.eigenvalues[0]), float(self.eigenvalues[-1])
        return high / low if low > 0 else math.inf

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One for each assumption that a sample can speak against."""
        return (
            Condition.at_most("condition number is finite", self.condition_number, 1e12),
            Condition.at_most(
                "symmetry, |z| of opposite wedges", self.symmetry_z, self.symmetry_limit
            ),
            *(tail.condition for tail in self.tails),
        )

    @property
    def failed(self) -> tuple[Condition, ...]:
        """Those that the sample speaks against."""
        return tuple(c for c in self.conditions if not c.holds)

    def __str__(self) -> str:
        lines = [
            "computed from the data: not private",
            f"H: trace {self.trace:.4g}, condition number {self.condition_number:.4g}",
            f"fourth moments: α at least {self.alpha:.4g} (3 for Gaussians)",
            *map(str, self.conditions),
        ]
        if self.bias is not None:
            lines.append(f"mean direction at w = 0 is off by {self.bias:.3g} of its length")
        return "\n".join(lines)


def check_assumptions(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    target: ArrayLike | None = None,
    tail: float = _GAUSSIAN_TAIL,
    power: float = 0.5,
    pairs: int = 25,
    bootstraps: int = 200,
    seed: int = 0,
) -> Assumptions:
    """Compare a sample with Assumptions 1 to 3 and Definition 3 of [ReLURegression25].

    Args:
        X: Inputs, a row for each record.
        y: Labels; needed with ``target``.
        target: w* or a public estimate of it, for the noise of labels and the mean direction.
        tail: C₂, by default that of a Gaussian for the exponential moment 2: the printed bound of 1 cannot
            hold.
        power: a.
        pairs: Of half-spaces whose wedges are compared.
        bootstraps: Samples drawn again from the sample.
        seed: Of directions and bootstraps.

    Guarantee:
        None of privacy. A condition that fails is evidence against an assumption; one that holds proves
        nothing. Symmetric data are called asymmetric with probability of about 0.001.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((20_000, 3))
        >>> found = check_assumptions(X)
        >>> bool(2.8 < found.alpha < 3.5), found.failed
        (True, ())
    """
    X = np.asarray(X, np.float64)
    if X.ndim != 2 or X.shape[0] < 2 or not X.shape[1] or not np.isfinite(X).all():
        raise DataError(f"X must be a table of at least two finite rows; got shape {X.shape}.")
    positive("tail", tail), positive("power", power), whole("pairs", pairs)
    rng = np.random.default_rng(seed)
    H = X.T @ X / len(X)
    values, vectors = np.linalg.eigh(H)
    worst, limit = _asymmetry(X, whole("pairs", pairs), whole("bootstraps", bootstraps), rng)
    directions = np.column_stack([vectors, _units(rng, X.shape[1], 50)])
    tails = [Tail("norm", b, q, float(np.trace(H)) * math.log(1 / b) ** (2 * power))
             for b, q in _quantiles((X**2).sum(1))]  # fmt: skip
    along = np.max([[q for _, q in _quantiles((X @ v) ** 2)] for v in directions.T], axis=0)
    tails += [
        Tail("direction", b, float(q), tail**2 * float(values[-1]) * math.log(2 / b) ** (2 * power))
        for b, q in zip(_TAILS, along, strict=True)
    ]
    bias = None
    if target is not None:
        w, z = _residuals(X, y, target)
        sigma2 = float(np.mean(z**2))
        tails += [
            Tail("labels", b, q, tail**2 * sigma2 * math.log(2 / b) ** (2 * power))
            for b, q in _quantiles(z**2)
        ]
        half = H @ w / 2
        found = -X.T @ np.asarray(y, np.float64) / len(X)
        bias = float(np.linalg.norm(found + half) / np.linalg.norm(half))
    return Assumptions(values, _alpha(X, H, rng), worst, limit, tuple(tails), bias)


def _alpha(X: Array, H: Array, rng: np.random.Generator) -> float:
    """The largest generalised eigenvalue of (M∘A, tr(HA) H) that is found over A = a aᵀ.

    By Cauchy and Schwarz the best a is the eigenvector itself, so each one is the next a.
    """
    values, vectors = np.linalg.eigh(H)
    kept = values > 1e-12 * values[-1]
    Z = X @ vectors[:, kept] / np.sqrt(values[kept])  # whitened: H is I
    starts = np.column_stack([np.eye(Z.shape[1]), _units(rng, Z.shape[1], 10)])
    best = 0.0
    for a in starts.T:
        for _ in range(_ASCENTS):
            M = (Z * ((Z @ a) ** 2)[:, None]).T @ Z / len(Z)
            top, vector = eigh(M, subset_by_index=[len(M) - 1, len(M) - 1])
            a, before, best = vector[:, 0], best, max(best, float(top[0]))
            if best == before:
                break
    return best


def _asymmetry(
    X: Array, pairs: int, bootstraps: int, rng: np.random.Generator
) -> tuple[float, float]:
    """The largest |z| over wedges and both moments, and its limit for symmetric data."""
    d, contributions = X.shape[1], []
    for _ in range(pairs):
        u, v, p = _units(rng, d, 3).T
        above, below = (X @ u > 0) & (X @ v > 0), (X @ u < 0) & (X @ v < 0)
        second = (above.astype(float) - below) * (X @ p) ** 2
        contributions += [second, second * (X @ v) ** 2]
    values = np.column_stack(contributions)
    means = values.mean(0)
    shares = rng.multinomial(len(X), np.full(len(X), 1 / len(X)), size=bootstraps) / len(X)
    spread = (shares @ values).std(0, ddof=1)
    z = np.divide(np.abs(means), spread, out=np.zeros_like(means), where=spread > 0)
    return float(z.max()), float(-ndtri(_ALARM / (2 * len(means))))


def _quantiles(values: Array) -> list[tuple[float, float]]:
    return [(b, float(np.quantile(values, 1 - b))) for b in _TAILS]


def _units(rng: np.random.Generator, d: int, count: int) -> Array:
    found = rng.standard_normal((d, count))
    return np.asarray(found / np.linalg.norm(found, axis=0))


def _residuals(X: Array, y: ArrayLike | None, target: ArrayLike) -> tuple[Array, Array]:
    w = vector_of("target", target)
    if y is None or np.shape(y) != (len(X),) or len(w) != X.shape[1]:
        raise PlanError(
            f"with a target, y needs a label for each of the {len(X)} rows, and the target {X.shape[1]} "
            f"weights; got y of shape {np.shape(y) if y is not None else None} and {len(w)} weights."
        )
    z = np.asarray(y, np.float64) - np.maximum(X @ w, 0.0)
    if not np.isfinite(z).all():
        raise DataError("labels must be finite.")
    if not w.any():
        raise PlanError("the target must not be 0: its mean direction has no length.")
    return w, z
