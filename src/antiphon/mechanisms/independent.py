"""Independent noise: DP-SGD."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from torch import Tensor

from antiphon.mechanisms.abstract_mechanism import Buffers
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.numerics import Vector

__all__ = ["Independent"]


@final
@dataclass(frozen=True)
class Independent(AbstractToeplitz):
    """No correlation: C = I, the noise of DP-SGD.

    Example:
        >>> from antiphon.participation import FixedEpochs
        >>> Independent().sensitivity(2000, FixedEpochs(times=25, apart=80))
        5.0
    """

    name: ClassVar[str] = "independent"

    def column(self, T: int) -> Vector:
        """1, 0, 0, ..."""
        return np.eye(1, T)[0]

    def inverse_column(self, T: int) -> Vector:
        """1, 0, 0, ..."""
        return np.eye(1, T)[0]

    def _autocorrelation(self, lags: Vector) -> Vector:
        return (lags == 0).astype(np.float64)

    def _decreases(self) -> bool:
        return True

    def _start(self, like: Tensor, T: int) -> Buffers:
        return ()

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        return (z if donate else z.clone()), ()
