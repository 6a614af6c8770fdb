"""Balls in bins: the dominating pair of a record that draws one bin once, for any mechanism.

A record in bin j takes part in steps j, j + b, j + 2b, ...; its mean is m_j = |C|y_j. The pair
[NearExact24] is Q = N(0, κ²I) and P = (1/b) Σ_j N(m_j, κ²I), so with u_j = <x, m_j>/κ²

    L(x) = (1/b) Σ_j exp(u_j − ‖m_j‖²/(2κ²)).

Only u is needed: with the triangular factor R of M = [m_1 ... m_b] = (orthonormal) × R, it is Rᵀw/κ under
Q, w white, and column J of MᵀM/κ² more under P, J a uniform bin. So a path costs b²/2 multiplications and
b exponentials, however many steps there are.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from scipy.linalg import qr

from antiphon.accounting.correlated.dominating_pair import AbstractPair, AbstractProposal, Rounding
from antiphon.accounting.monte_carlo.confidence import Array
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, Tree
from antiphon.plans import Event

__all__ = ["BinsPair", "bin_energies", "bin_factor", "bin_means"]

# Beyond all errors of float64 in u, ‖m‖² and a sum of exponentials, relative to the largest exponent.
_MARGIN = 1e-12


def bin_means(mechanism: AbstractMechanism, T: int, bins: int) -> Array:
    """M = [m_1 ... m_b], of shape (T, bins); bins beyond the steps stay empty."""
    column = getattr(mechanism, "column", None)
    if column is None:
        C = np.abs(mechanism.encoder(T))
        return np.stack([C[:, j::bins].sum(axis=1) for j in range(bins)], axis=1)
    # Every bin's mean is the first one's, later.
    first, M = _first_bin(np.abs(column(T)), bins), np.zeros((T, bins))
    for j in range(min(bins, T)):
        M[j:, j] = first[: T - j]
    return M


def bin_energies(mechanism: AbstractMechanism, T: int, bins: int) -> Array:
    """‖m_j‖² of every bin that has a step; where it can be, without the matrix of shape (T, bins).

    Guarantee:
        Equal to the squared column norms of `bin_means`, up to rounding.
    """
    places, column = min(bins, T), getattr(mechanism, "column", None)
    if column is not None:
        squares = np.cumsum(_first_bin(np.abs(column(T)), bins) ** 2)
        return np.asarray(squares[T - places :][::-1])
    if isinstance(mechanism, Tree) and bins >= T:
        return mechanism.holders(T)
    return np.asarray((bin_means(mechanism, T, bins)[:, :places] ** 2).sum(axis=0))


def _first_bin(entries: Array, bins: int) -> Array:
    """The mean of the first bin of a Toeplitz encoder with this first column."""
    first = np.zeros(len(entries))
    for start in range(0, len(entries), bins):
        first[start:] += entries[: len(entries) - start]
    return first


def bin_factor(mechanism: AbstractMechanism, T: int, bins: int) -> Array:
    """R, of shape (bins, bins): see the module."""
    if not 1 <= bins <= T:
        raise PlanError(f"bins must be between 1 and the number of steps, {T}; got {bins}.")
    return np.asarray(qr(bin_means(mechanism, T, bins), mode="r")[0][:bins])


@final
@dataclass(frozen=True, eq=False)
class BinsPair(AbstractPair):
    """P and Q of the module, for one noise multiplier; paths are columns of u.

    Attributes:
        factor: R, from `bin_factor`.
        noise_multiplier: κ, positive.
        extra: Releases beside training.

    Guarantee:
        The pair dominates training with correlated noise on batches that are the bins, under add-remove
        and zero-out. L is computed from its definition; a margin covers rounding.
    """

    factor: Array
    noise_multiplier: float
    extra: tuple[Event, ...] = ()

    def check(self) -> None:
        """The noise must be positive."""
        if not 0 < self.noise_multiplier < math.inf:
            raise PlanError(
                f"the noise multiplier must be positive and finite; got {self.noise_multiplier}."
            )

    @cached_property
    def means(self) -> Array:
        """MᵀM/κ²: column j is the mean of u in bin j."""
        scaled = self.factor / self.noise_multiplier
        return np.asarray(scaled.T @ scaled)

    def log_ratio(self, x: Array, rounding: Rounding) -> Array:
        """Log of the mean of b exponentials."""
        return self.log_mixture(x, 1.0) + (1 if rounding == "up" else -1) * self._margin(x)

    def log_mixture(self, u: Array, amplitude: float) -> Array:
        """Log dP/dQ if all means were ``amplitude`` times as large."""
        exponents = amplitude * u - (amplitude**2 / 2) * np.diagonal(self.means)[:, None]
        top = exponents.max(axis=0)
        np.exp(np.subtract(exponents, top, out=exponents), out=exponents)
        return np.asarray(np.log(exponents.mean(axis=0)) + top)

    def proposal(self, side: int, strength: float, drift: float) -> "_Tilt":
        """Larger means, and a shift of the noise along their average."""
        length = math.sqrt(float(self.means.mean()))  # of the average mean, in units of noise
        shift = strength / length if length > 0 else 0.0
        if side:
            return _Tilt(self, 0.0, -shift)
        return _Tilt(self, 1 + (strength if drift == 0 else 0.0), drift * shift / 1.5)

    def excess(self, thresholds: Array, rng: np.random.Generator) -> Array:
        """From the same noise for both directions."""
        count = len(thresholds)
        noise = self.noise(rng, count)
        drawn = self.means[:, rng.integers(len(self.means), size=count)] + noise
        losses = np.stack([self.log_ratio(drawn, "up"), -self.log_ratio(noise, "down")])
        return np.asarray(losses - thresholds)

    def noise(self, rng: np.random.Generator, count: int) -> Array:
        """U under Q."""
        white = rng.standard_normal((len(self.factor), count))
        return np.asarray(self.factor.T @ white) / self.noise_multiplier

    def _margin(self, u: Array) -> Array:
        largest = np.abs(u).max(axis=0) + float(np.diagonal(self.means).max())
        return np.asarray(_MARGIN * len(self.factor) * (1 + largest))


@final
@dataclass(frozen=True, eq=False)
class _Tilt(AbstractProposal):
    """Means times ``amplitude``, plus ``shift`` times their average."""

    pair: BinsPair
    amplitude: float
    shift: float

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Columns of u."""
        means = self.pair.means
        drawn = means[:, rng.integers(len(means), size=count)]
        return (
            self.pair.noise(rng, count)
            + self.amplitude * drawn
            + self.shift * means.mean(axis=1)[:, None]
        )

    def log_density(self, x: Array) -> Array:
        """Shift by a vector d: dN(d + ·)/dQ at x is that of x − d, times exp(<x, d>/κ² − ‖d‖²/(2κ²))."""
        means = self.pair.means
        moved = x - self.shift * means.mean(axis=1)[:, None]
        shifted = self.shift * x.mean(axis=0) - self.shift**2 * float(means.mean()) / 2
        return np.asarray(self.pair.log_mixture(moved, self.amplitude) + shifted)
