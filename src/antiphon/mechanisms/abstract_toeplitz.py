"""What Toeplitz mechanisms share: everything follows from the first columns of C and C⁻¹."""

import math
from abc import abstractmethod
from typing import final

import numpy as np
from scipy.signal import lfilter

from antiphon.errors import UnsupportedError
from antiphon.mechanisms.abstract_mechanism import (
    AbstractMechanism,
    Sensitivity,
    check_dense_steps,
    check_steps,
    gram_sensitivity,
)
from antiphon.mechanisms.workload import PREFIX_SUMS, Workload
from antiphon.numerics import Matrix, Vector, gram, lower
from antiphon.participation import AbstractParticipation

__all__ = ["AbstractToeplitz"]

# Up to here the T x T bound is computed beside the O(T) one where neither is exact.
_DENSE_STEPS = 2048


class AbstractToeplitz(AbstractMechanism):
    """A mechanism whose encoder is constant along its diagonals: C[i, j] = c[i - j].

    Guarantee:
        ``sensitivity`` is exact for one participation, for participations farther apart than c is
        long, and for c non-negative and non-increasing [BandedSqrt24, Thm. 2]. Otherwise it is the
        bound of the smallest non-increasing column above |c| or, up to 2048 steps, the Gram bound of
        `gram_sensitivity` if that is smaller.
    """

    @abstractmethod
    def column(self, T: int) -> Vector:
        """First column of C."""

    @abstractmethod
    def inverse_column(self, T: int) -> Vector:
        """First column of C⁻¹."""

    @abstractmethod
    def _autocorrelation(self, lags: Vector) -> Vector:
        """Σ_u c_u c_{u + lag} over all u >= 0, or `UnsupportedError` if it is infinite."""

    @abstractmethod
    def _decreases(self) -> bool:
        """Whether c is known to be non-negative and non-increasing for every T."""

    @final
    def encoder(self, T: int) -> Matrix:
        """C, dense, for tests and plots."""
        check_dense_steps(T)
        return lower(self.column(T))

    @final
    def decoder(self, T: int) -> Matrix:
        """C⁻¹, dense, for tests and plots."""
        check_dense_steps(T)
        return lower(self.inverse_column(T))

    @final
    def sensitivity(self, T: float, participation: AbstractParticipation) -> Sensitivity:
        """Largest change of Cg under ``participation``; ``T = math.inf`` where that is finite."""
        if math.inf == T:
            return self._anytime_sensitivity(participation)
        check_steps(T)
        steps = int(T)
        participation.check(steps)
        c = self.column(steps)
        with np.errstate(over="ignore", invalid="ignore"):
            energy = np.dot(c, c)
        if not np.isfinite(energy):
            raise UnsupportedError(
                f"the sensitivity of {self} for {steps} steps is beyond the range of float64: its "
                "decoder is not minimum phase, so C grows geometrically. Use fewer steps."
            )
        densest = participation.densest(steps)
        if densest is None:
            return gram_sensitivity(gram(c), participation)
        apart = densest[1] if len(densest) > 1 else steps
        if self._decreases() or _is_decreasing(c) or not c[apart:].any():
            return Sensitivity(_norm_of_sum(c, densest), is_exact=True)
        above = np.maximum.accumulate(np.abs(c)[::-1])[::-1]
        bound = Sensitivity(_norm_of_sum(above, densest), is_exact=False)
        if T > _DENSE_STEPS:
            return bound
        other = gram_sensitivity(gram(c), participation)
        return other if other.is_exact else min(bound, other)

    @final
    def errors(self, T: int, workload: Workload = PREFIX_SUMS) -> Vector:
        """Row norms of A C⁻¹."""
        check_steps(T)
        beta = self.inverse_column(T)
        if not np.isfinite(beta).all():
            raise UnsupportedError(
                f"the error of {self} for {T} steps is beyond the range of float64: its encoder is not "
                "minimum phase, so C⁻¹ grows geometrically. Use fewer steps."
            )
        if workload.is_toeplitz:
            a = workload.apply(beta[:, None])[:, 0]
            return np.sqrt(np.cumsum(a**2))
        # Column by column of C⁻¹, so that no T x T matrix is held.
        velocity = lfilter([1.0], [1.0, -workload.momentum], beta)
        rates, squares = workload.rates(T), np.zeros(T)
        for start in range(T):
            squares[start:] += np.cumsum(rates[start:] * velocity[: T - start]) ** 2
        return np.sqrt(squares)

    @final
    def _anytime_sensitivity(self, participation: AbstractParticipation) -> Sensitivity:
        densest = participation.densest(2**62)
        if densest is None:
            raise UnsupportedError(f"{participation} has no sensitivity for endlessly many steps.")
        if len(densest) > 1 and not self._decreases():
            raise UnsupportedError(
                f"no bound for endlessly many steps is known for {self} under {participation}: its "
                "encoder is not non-negative and non-increasing. Give a finite T."
            )
        # The pattern is 0, b, 2b, ...: each of its lags m b occurs k - m times in either order.
        k = len(densest)
        lags = np.array(densest, dtype=np.float64)
        counts = np.array([k, *(2.0 * (k - m) for m in range(1, k))])
        return Sensitivity(math.sqrt(float(counts @ self._autocorrelation(lags))), is_exact=True)


def _is_decreasing(c: Vector) -> bool:
    return bool((c >= 0).all() and (np.diff(c) <= 0).all())


def _norm_of_sum(c: Vector, steps: tuple[int, ...]) -> float:
    """‖Σ_i C e_{steps[i]}‖ for the Toeplitz encoder with first column c."""
    total = np.zeros_like(c)
    for start in steps:
        total[start:] += c[: len(c) - start]
    return float(np.linalg.norm(total))
