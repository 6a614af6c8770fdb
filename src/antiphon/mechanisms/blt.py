"""Buffered linear Toeplitz mechanisms: the encoder's column is a sum of exponentials."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms.abstract_mechanism import Buffers
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.mechanisms.coefficients import finite
from antiphon.mechanisms.streaming import buffered_step
from antiphon.numerics import Series, Vector, invert, reciprocal

__all__ = ["BLT"]

_LARGEST_SCALES = 1e4


@final
@dataclass(frozen=True, repr=False)
class BLT(AbstractToeplitz):
    """c_0 = 1 and c_t = Σ_j scales[j] decays[j]^(t-1): one buffer per exponential [BLT24].

    Attributes:
        scales: Weights of the exponentials; positive ones give a positive encoder.
        decays: Their rates, each in [0, 1].

    Guarantee:
        ``sensitivity`` is exact for one participation, and for any number if the scales are
        non-negative with a sum of at most 1, which makes c non-increasing.

    Example:
        >>> BLT(scales=(0.5,), decays=(0.5,)).column(4).tolist()
        [1.0, 0.5, 0.25, 0.125]
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]
    name: ClassVar[str] = "blt"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", finite("scales", self.scales))
        object.__setattr__(self, "decays", finite("decays", self.decays))
        if len(self.scales) != len(self.decays):
            raise PlanError(
                f"each buffer has one scale and one decay; got {len(self.scales)} scales and "
                f"{len(self.decays)} decays."
            )
        if sum(map(abs, self.scales)) > _LARGEST_SCALES:
            raise PlanError(
                f"the scales add up to more than {_LARGEST_SCALES:g} in size, where opposite ones cancel "
                f"beyond the digits of float64; got {self.scales}."
            )
        if not all(0 <= x <= 1 for x in self.decays):
            raise PlanError(
                f"decays must be in [0, 1], so that C does not grow; got {self.decays}."
            )

    def column(self, T: int) -> Vector:
        """1, then the sum of exponentials."""
        return _series(1, np.array(self.scales), np.array(self.decays), T)

    def inverse_column(self, T: int) -> Vector:
        """The reciprocal power series of `column`."""
        a, x = np.array(self.scales), np.array(self.decays)
        return _series(-1, *reciprocal(a, x), T) if (a > 0).all() else invert(self.column(T), T)

    def _autocorrelation(self, lags: Vector) -> Vector:
        a, x = np.array(self.scales), np.array(self.decays)
        a, x = a[a != 0], x[a != 0]
        if (x.astype(np.float32) == 1).any():
            raise UnsupportedError(
                "a decay of 1 (in float32, in which noise runs) never fades, so the sensitivity has no "
                "bound for endlessly many steps. Give a finite T."
            )
        if (a < 0).any():
            raise UnsupportedError(
                "with scales of both signs the sum over endlessly many steps cancels; no bound is "
                "computed. Give a finite T."
            )
        # Σ_{u >= 1} c_u c_{u+lag} is a double sum of geometric series; u = 0 adds c_0 c_lag.
        # 1 - x_i x_j = (1 - x_i) + x_i (1 - x_j) keeps its digits for decays near 1.
        pairs = np.outer(a, a) / ((1 - x)[:, None] + np.outer(x, 1 - x))
        later = np.array([float(pairs.sum(0) @ x**lag) for lag in lags])
        first = np.array([float(a @ x ** (lag - 1)) if lag else 1.0 for lag in lags])
        return first + later

    def _decreases(self) -> bool:
        return min(self.scales, default=0.0) >= 0 and sum(self.scales) <= 1

    def _start(self, like: Tensor, T: int) -> Buffers:
        return tuple(
            torch.zeros_like(like, memory_format=torch.contiguous_format) for _ in self.scales
        )

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        return buffered_step(z, kept, self.scales, self.decays, donate)


def _series(sign: int, scales: Series, decays: Series, T: int) -> Vector:
    """1, then sign · Σ_j scales[j] decays[j]^(t-1)."""
    powers = np.power(decays[:, None], np.arange(T - 1))
    return np.concatenate([[1.0], sign * (scales @ powers)])
