"""Correlated noise for one pass of GLMtron: which mechanism disturbs the averaged iterate least.

Where nothing is clipped the mean iterate is linear, w_{t+1} - w* = (I - ηH/2)(w_t - w*) - η ξ_t, so that in
a direction of eigenvalue λ the average of iterates is off by Σ_i a_i ξ_i, with known a_i >= 0. Noise that
later noise answers cancels in this sum. Whatever the mechanism, a record's largest share max_i a_i must
be hidden: that is a lower bound, which releasing nothing but the average would attain.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky
from scipy.signal import fftconvolve, lfilter

from antiphon.checks import positive, whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import (
    AbstractMechanism,
    AbstractToeplitz,
    Dense,
    Independent,
    NuFTRL,
    Tree,
    best_dense,
    best_lambda_cgd,
    best_nu_ftrl,
)
from antiphon.numerics import gram
from antiphon.participation import Once
from antiphon_papers.relu.theory.moments import window

__all__ = ["AverageNoise", "BestForAverage", "best_for_average"]

Array = NDArray[np.float64]

_MOST_DENSE = 1024


@final
@dataclass(frozen=True, eq=False)
class AverageNoise:
    """How the averaged iterate answers to noise in one pass of T steps.

    Args:
        spectrum: Eigenvalues of H = E[x xᵀ].
        steps: T.
        step_size: η; η λ_max at most 2.
        average: "full" or "tail".

    Attributes:
        responses: sqrt(λ) a_i, a row for each different eigenvalue.
        counts: How often each eigenvalue occurs.

    Example:
        >>> noise = AverageNoise([1.0] * 10, steps=1000, step_size=0.01, average="full")
        >>> round(noise.loss(Tree()) / noise.bound, 1), round(noise.loss(NuFTRL(0.0)) / noise.bound, 1)
        (4.1, 1.9)
    """

    spectrum: Array
    steps: int
    step_size: float
    average: str
    responses: Array
    counts: Array

    def __init__(
        self, spectrum: ArrayLike, steps: int, step_size: float, average: str = "full"
    ) -> None:
        values = np.asarray(spectrum, np.float64)
        eta, T = positive("step_size", step_size), whole("steps", steps)
        if values.ndim != 1 or not values.size or not (values > 0).all():
            raise PlanError("spectrum must be positive eigenvalues, at least one.")
        if eta * values.max() > 2:
            raise PlanError(
                f"η λ_max must be at most 2, or iterates move away; got {eta * values.max():.4g}."
            )
        if average == "last" or T < 2:
            raise PlanError(
                "there is an average of 'full' or 'tail' iterates, and two steps at least."
            )
        different, counts = np.unique(values, return_counts=True)
        rows = [math.sqrt(lam) * _response(T, eta, float(lam), average) for lam in different]
        found = (different, T, eta, average, np.array(rows), counts.astype(np.float64))
        names = ("spectrum", "steps", "step_size", "average", "responses", "counts")
        for name, value in zip(names, found, strict=True):
            object.__setattr__(self, name, value)

    @property
    def bound(self) -> float:
        """What no mechanism's loss can be below: max_i sqrt(Σ_λ λ a_i²).

        Since |a_i| = |(C⁻ᵀa)·(Ce_i)| <= ‖C⁻ᵀa‖ ‖Ce_i‖ for every C and i.
        """
        return float(np.sqrt((self.counts @ self.responses**2).max()))

    def error(self, mechanism: AbstractMechanism) -> float:
        """Root of E‖w̄ - w*‖_H² by noise made of white noise of unit size on the mean direction."""
        squares = [float((_answer(mechanism, row) ** 2).sum()) for row in self.responses]
        return float(np.sqrt(self.counts @ squares))

    def iterates_error(self, mechanism: AbstractMechanism) -> float:
        """The same for single iterates, root mean square over the steps: what clipping and ReLU see."""
        T, eta = self.steps, self.step_size
        squares = []
        for lam in self.spectrum:
            q = 1 - eta * lam / 2
            if isinstance(mechanism, AbstractToeplitz):
                h = lfilter([eta], [1.0, -q], mechanism.inverse_column(T))
                squares.append(lam * np.cumsum(h**2).mean())
            elif isinstance(mechanism, Tree):
                powers = eta * q ** np.arange(T)[::-1]
                rows = (_answer(mechanism, powers[T - t :]) for t in range(1, T + 1))
                squares.append(lam * np.mean([(row**2).sum() for row in rows]))
            else:
                moved = lfilter([eta], [1.0, -q], mechanism.decoder(T), axis=0)
                squares.append(lam * (moved**2).sum(1).mean())
        return float(np.sqrt(self.counts @ np.array(squares)))

    def loss(self, mechanism: AbstractMechanism) -> float:
        """Sensitivity, each record used once, times `error`: so mechanisms compare at equal privacy."""
        return float(mechanism.sensitivity(self.steps, Once())) * self.error(mechanism)

    def risk(self, mechanism: AbstractMechanism, noise: float) -> float:
        """The part of the excess risk that is privacy's, to leading order.

        Args:
            mechanism: C.
            noise: Standard deviation of *independent* noise on the mean direction at the same privacy.
        """
        return (noise * self.loss(mechanism)) ** 2 / 4


@final
@dataclass(frozen=True)
class BestForAverage:
    """A mechanism found for the averaged iterate.

    Attributes:
        mechanism: The mechanism.
        loss: Sensitivity times error of the average.
        bound: What no mechanism can beat.
        iterates: Sensitivity times error of single iterates: the price.
    """

    mechanism: AbstractMechanism
    loss: float
    bound: float
    iterates: float

    @property
    def gap(self) -> float:
        """Loss over bound, minus 1."""
        return self.loss / self.bound - 1


def best_for_average(family: str, noise: AverageNoise, *, guard: float = 0.0) -> BestForAverage:
    """The member of a family with the least loss² of the average plus guard times that of single iterates.

    Args:
        family: "independent", "tree", "nu-ftrl", "lambda-cgd" or "dense" (up to 1024 steps).
        noise: What is averaged, and how.
        guard: Weight on the mean square of the iterates' errors. Without one, a dense mechanism drowns the
            iterates in noise that the average does not see, and linear response ends where clipping
            begins; "dense" needs one.

    Guarantee:
        ``loss`` is the mechanism's proved sensitivity times its exact error in linear response; how it was
        found does not matter. ``bound`` holds for every mechanism.

    Example:
        >>> noise = AverageNoise([1.0], steps=500, step_size=0.03)
        >>> best_for_average("lambda-cgd", noise).gap < best_for_average("tree", noise).gap / 3
        True
    """
    T = noise.steps
    if not 0 <= guard < math.inf:
        raise PlanError(f"guard is a weight of at least 0; got {guard}.")

    def loss(mechanism: AbstractMechanism) -> float:
        square = noise.error(mechanism) ** 2
        if guard:
            square += guard * noise.iterates_error(mechanism) ** 2
        return float(mechanism.sensitivity(T, Once())) * math.sqrt(square)

    mechanism: AbstractMechanism
    match family:
        case "independent":
            mechanism = Independent()
        case "tree":
            mechanism = Tree()
        case "nu-ftrl":
            mechanism = best_nu_ftrl(T, loss)
        case "lambda-cgd":
            mechanism = best_lambda_cgd(T, loss)
        case "dense":
            mechanism = _dense(noise, guard)
        case _:
            raise PlanError(
                f"family is one of independent, tree, nu-ftrl, lambda-cgd, dense; got {family!r}."
            )
    sensitivity = float(mechanism.sensitivity(T, Once()))
    return BestForAverage(
        mechanism, noise.loss(mechanism), noise.bound, sensitivity * noise.iterates_error(mechanism)
    )


def _dense(noise: AverageNoise, guard: float) -> Dense:
    T = noise.steps
    if T > _MOST_DENSE:
        raise UnsupportedError(f"dense mechanisms are found up to {_MOST_DENSE} steps; got {T}.")
    if guard == 0:
        raise PlanError(
            "without a guard the best dense mechanism does not exist: the average's noise falls towards "
            "the bound while that of the iterates grows without end. Give guard > 0, such as 0.01."
        )
    form = (noise.responses * noise.counts[:, None]).T @ noise.responses
    for lam, count in zip(noise.spectrum, noise.counts, strict=True):
        q = 1 - noise.step_size * lam / 2
        moved = lfilter([noise.step_size], [1.0, -q], np.eye(T), axis=0)
        form += guard * lam * count / T * moved.T @ moved
    A = np.asarray(
        cholesky(form * T, lower=False), np.float64
    )  # so that the rows' mean square is the form
    start = gram(NuFTRL(0.0).column(T))
    return best_dense(A, [(step,) for step in range(T)], "rms", start).mechanism


def _response(T: int, eta: float, lam: float, average: str) -> Array:
    """η/K times the sum of q^(t-1-i) over the iterates t of the window that follow step i."""
    first, end = window(average, T)
    q, step = 1 - eta * lam / 2, np.arange(T)
    begin = np.maximum(first, step + 1)
    count = np.maximum(0, end - begin)
    return np.asarray(eta / (end - first) * q ** (begin - 1 - step) * (1 - q**count) / (1 - q))


def _answer(mechanism: AbstractMechanism, row: Array) -> Array:
    """C⁻ᵀ a, without a T x T matrix where that is possible."""
    T = len(row)
    if isinstance(mechanism, AbstractToeplitz):
        return np.asarray(fftconvolve(row[::-1], mechanism.inverse_column(T))[:T][::-1])
    if isinstance(mechanism, Tree):
        # The node made at step k holds its size in steps, and stands in as many prefix sums from then on.
        node = np.arange(1, T + 1)
        after = np.concatenate([row, np.zeros(T + 1)])
        return np.asarray(row - after[np.minimum(node + (node & -node) - 1, 2 * T)])
    return np.asarray(mechanism.decoder(T).T @ row)
