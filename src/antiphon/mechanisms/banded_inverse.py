"""Banded inverse Toeplitz mechanisms: the decoder C⁻¹ is fixed by its first column."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from torch import Tensor

from antiphon.errors import UnsupportedError
from antiphon.mechanisms.abstract_mechanism import Buffers
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.mechanisms.coefficients import first_column
from antiphon.mechanisms.streaming import moving_sum
from antiphon.numerics import Vector, all_pole_energy, invert

__all__ = ["BandedInverse"]

_MOST_TAPS = 80


@final
@dataclass(frozen=True, repr=False)
class BandedInverse(AbstractToeplitz):
    """Noise that is a moving sum of white noise: x_t = Σ_i beta[i] z_{t-i}.

    Attributes:
        beta: First column of C⁻¹; any finite numbers, the first not zero.

    Guarantee:
        The column of C is the reciprocal power series of beta, cut at T: right for every beta. The
        sensitivity for endlessly many steps is refused unless beta has no zero in the closed unit
        disk (minimum phase). [CorrelatedNoise24, eq. 5] drops that condition and gives sqrt(1/3)
        for beta = (1, -2), whose sensitivity doubles at every step.

    Example:
        >>> from antiphon.participation import Once
        >>> round(BandedInverse((1.0, -2.0)).sensitivity(12, Once()) ** 2)
        5592405
    """

    beta: tuple[float, ...]
    name: ClassVar[str] = "banded-inverse"

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", first_column("beta", self.beta))

    @property
    def taps(self) -> tuple[float, ...]:
        """The non-zero entries of the first column of C⁻¹."""
        return self.beta

    def column(self, T: int) -> Vector:
        """The reciprocal power series of ``beta``."""
        return invert(np.array(self.beta), T)

    def inverse_column(self, T: int) -> Vector:
        """``beta``, then zeros."""
        column = np.zeros(T)
        column[: len(self.beta)] = self.beta[:T]
        return column

    def _autocorrelation(self, lags: Vector) -> Vector:
        if len(self.beta) > _MOST_TAPS:
            raise UnsupportedError(
                f"whether {self} is minimum phase is decided exactly, for at most {_MOST_TAPS} "
                "coefficients. Give a finite T."
            )
        energy = all_pole_energy(np.array(self.beta))
        if energy is None:
            raise UnsupportedError(
                f"the sensitivity of {self} has no bound for endlessly many steps: beta has a zero "
                "in the closed unit disk, so C does not decay. Give a finite T."
            )
        # Only lag 0 is ever asked for: see _decreases.
        return np.full_like(lags, energy)

    def _decreases(self) -> bool:
        return False

    def _start(self, like: Tensor, T: int) -> Buffers:
        return ()

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        return moving_sum(z, kept, self.beta[:T], recursive=False, donate=donate)
