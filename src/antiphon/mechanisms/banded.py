"""Banded Toeplitz mechanisms: the encoder C is fixed by its first column."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from torch import Tensor

from antiphon.checks import whole
from antiphon.mechanisms.abstract_mechanism import Buffers
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.mechanisms.coefficients import first_column
from antiphon.mechanisms.nu_ftrl import NuFTRL
from antiphon.mechanisms.streaming import moving_sum
from antiphon.numerics import Vector, invert

__all__ = ["Banded"]


@final
@dataclass(frozen=True, repr=False)
class Banded(AbstractToeplitz):
    """Correlated noise with a lower-triangular banded Toeplitz encoder.

    Attributes:
        coef: First column of C, the first not zero. A single 1 is independent noise (DP-SGD).

    Guarantee:
        ``sensitivity`` is exact if ``coef`` is non-negative and non-increasing
        [BandedSqrt24, Thm. 2] or if participations are at least ``len(coef)`` steps apart, where it
        is sqrt(times) ‖coef‖ [Banded23]; else an upper bound, and ``is_exact`` says so.

    Example:
        >>> Banded.square_root(bands=4).coef
        (1.0, 0.5, 0.375, 0.3125)
    """

    coef: tuple[float, ...]
    name: ClassVar[str] = "banded"

    def __post_init__(self) -> None:
        object.__setattr__(self, "coef", first_column("coef", self.coef))

    @classmethod
    def square_root(cls, bands: int) -> "Banded":
        """First bands of the square root of the prefix-sum workload: C @ C = A [FHU23]."""
        whole("bands", bands)
        return cls(tuple(NuFTRL(0.0).column(bands).tolist()))

    def column(self, T: int) -> Vector:
        """``coef``, then zeros."""
        column = np.zeros(T)
        column[: len(self.coef)] = self.coef[:T]
        return column

    def inverse_column(self, T: int) -> Vector:
        """The reciprocal power series of ``coef``."""
        return invert(np.array(self.coef), T)

    def _autocorrelation(self, lags: Vector) -> Vector:
        c = np.array(self.coef)
        near = [int(lag) if lag < len(c) else len(c) for lag in lags]
        return np.array([float(c[: len(c) - lag] @ c[lag:]) for lag in near])

    def _decreases(self) -> bool:
        c = np.array(self.coef)
        return bool((c >= 0).all() and (np.diff(c) <= 0).all())

    def _start(self, like: Tensor, T: int) -> Buffers:
        return ()

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        """Forward substitution [Banded23, Alg. 9]."""
        first, *rest = self.coef[:T]
        weights = (1 / first, *(-c / first for c in rest))
        return moving_sum(z, kept, weights, recursive=True, donate=donate)
