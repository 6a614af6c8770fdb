"""Conditioned on participations, for any mechanism: energies yᵀ|CᵀC|y of sampled participations.

The profile at the energy lies in [0, 1] and y is drawn as the run draws it, so its mean, which bounds δ(ε)
(see `antiphon.accounting.correlated.energy`), has an exact confidence limit.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from numba import njit
from numpy.typing import NDArray

from antiphon.accounting.independent.gaussian import gaussian_delta
from antiphon.accounting.monte_carlo.confidence import Array, chunks
from antiphon.accounting.monte_carlo.sampled import AbstractSampled, Weighted
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import AbstractMechanism
from antiphon.numerics import Matrix

__all__ = [
    "AbstractCoins",
    "Bernoulli",
    "OncePerEpoch",
    "SampledEnergy",
    "energies",
    "interactions",
    "is_non_negative",
]

Steps = NDArray[np.int64]

_SLACK = 1e-9  # above all errors of float64 in an energy, relative
_STREAM = 8
_PILOTS = 20  # participations are cheap: so many for each path that a search asks for
_MOST_STEPS = 4096  # of a dense matrix of interactions


class AbstractCoins(ABC):
    """How one record's participations are drawn. Subclasses are frozen values."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> tuple[Steps, Steps]:
        """Steps of all records, one record after the other, and where each begins (count + 1 places)."""


@final
@dataclass(frozen=True)
class Bernoulli(AbstractCoins):
    """Each of ``steps`` steps with probability ``rate``: Poisson sampling, and batches of a fixed size."""

    rate: float
    steps: int

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Steps, Steps]:
        """A binomial number of distinct cells is the same as one coin for each cell."""
        cells = self.steps * count
        hits = np.sort(rng.choice(cells, rng.binomial(cells, self.rate), replace=False))
        begins = np.searchsorted(hits, np.arange(count + 1) * self.steps)
        return hits % self.steps, begins


@final
@dataclass(frozen=True)
class OncePerEpoch(AbstractCoins):
    """A new place in every epoch of ``batches`` steps, the last of which may be smaller.

    Attributes:
        batches: Steps per epoch.
        last: Size of the last batch relative to the others, in (0, 1].
        steps: Steps in all; places beyond them are not used.
    """

    batches: int
    last: float
    steps: int

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Steps, Steps]:
        """A uniform place in each epoch."""
        epochs = -(-self.steps // self.batches)
        places = rng.random((count, epochs)) * (self.batches - 1 + self.last)
        steps = places.astype(np.int64) + self.batches * np.arange(epochs)
        used = steps < self.steps
        return steps[used], np.append(0, np.cumsum(used.sum(axis=1)))


def interactions(mechanism: AbstractMechanism, T: int) -> Matrix:
    """|CᵀC|, dense."""
    if T > _MOST_STEPS:
        raise UnsupportedError(
            f"sampled energies need a matrix of {T} × {T}; at most {_MOST_STEPS} steps are supported."
        )
    C = mechanism.encoder(T)
    return np.abs(C.T @ C)


def is_non_negative(mechanism: AbstractMechanism, T: int) -> bool:
    """Whether the encoder is Toeplitz without negative entries, so that energies are ‖Cy‖²."""
    column = getattr(mechanism, "column", None)
    return column is not None and bool(np.all(column(T) >= 0))


def energies(matrix: Matrix, steps: Steps, begins: Steps) -> Array:
    """Σ of the matrix over all pairs of steps of each record."""
    out = np.empty(len(begins) - 1)
    _sum_pairs(np.ascontiguousarray(matrix), steps, begins, out)
    return out


@final
@dataclass(frozen=True, eq=False)
class SampledEnergy(AbstractSampled):
    """Gaussian profiles at the energies of sampled participations.

    Attributes:
        matrix: |CᵀC|, from `interactions`.
        coins: How participations are drawn.
        noise_multiplier: κ, positive.
        amplitude: Change of a record's gradient in units of the clip norm: see `energy`.
        mu: Gaussian parameter of all releases beside training.
    """

    matrix: Matrix
    coins: AbstractCoins
    noise_multiplier: float
    amplitude: float = 1.0
    mu: float = 0.0

    def check(self) -> None:
        """Noise and amplitude must be positive."""
        for name, value in (
            ("the noise multiplier", self.noise_multiplier),
            ("the amplitude", self.amplitude),
        ):
            if not 0 < value < math.inf:
                raise PlanError(f"{name} must be positive and finite; got {value}.")

    def contributions(self, epsilon: float, rng: np.random.Generator, count: int) -> Array:
        """Profiles at ε, rounded up; both directions have the same."""
        return self.spread(np.array([epsilon]), rng, count)[0]

    def spread(self, epsilons: Array, rng: np.random.Generator, count: int) -> Array:
        """The same for several ε."""
        found = energies(self.matrix, *self.coins.draw(rng, count))
        scale = (self.amplitude / self.noise_multiplier) ** 2 * (1 + _SLACK)
        mu = np.sqrt(found * scale + self.mu**2)
        return np.minimum([[gaussian_delta(mu, float(e)) for e in epsilons]], 1.0)

    def expected(self, epsilon: float, *, seed: int, paths: int) -> tuple[Weighted, ...]:
        """From plain draws: what is rare in them hardly counts."""
        draws = _PILOTS * paths
        values = np.hstack(
            list(chunks(lambda r, n: self.contributions(epsilon, r, n), draws, seed, _STREAM))
        )[0]
        return (Weighted(values, np.full(draws, 1 / draws)),)


@no_type_check
@njit(cache=True, nogil=True)
def _sum_pairs(matrix, steps, begins, out):
    for i in range(len(out)):
        total = 0.0
        for a in range(begins[i], begins[i + 1]):
            row = steps[a]
            total += matrix[row, row]
            for b in range(begins[i], a):
                total += 2 * matrix[row, steps[b]]
        out[i] = total
