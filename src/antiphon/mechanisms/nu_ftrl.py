"""ν-DP-FTRL: the square root of a damped difference operator."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
from scipy.integrate import quad
from scipy.special import elliprf
from torch import Tensor

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms.abstract_mechanism import Buffers, check_steps
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.mechanisms.blt import BLT
from antiphon.mechanisms.coefficients import number
from antiphon.mechanisms.streaming import full_history
from antiphon.numerics import Vector, fit_inverse_square_root

__all__ = ["NuFTRL"]


@final
@dataclass(frozen=True)
class NuFTRL(AbstractToeplitz):
    """ν-DP-FTRL: C(z) = (1 - (1-ν)z)^(-1/2) [CorrelatedNoise24, eq. 7]; ν = 0 is Optimal CC [FHU23].

    Exact in every method, at the price of O(T) state: plans and trainers hold `buffered`.

    Attributes:
        nu: ν in [0, 1). A rule of thumb is 0.75/T for one pass; `optimize` finds the best.

    Guarantee:
        ``sensitivity`` is exact: the column of C is positive and decreasing. For endlessly many
        steps and one participation its square is (2/π) K(1-ν); for ν = 0 that is infinite and
        refused.

    Example:
        >>> NuFTRL(0.01).inverse_column(3).tolist()
        [1.0, -0.495, -0.1225125]
    """

    nu: float
    name: ClassVar[str] = "nu-ftrl"

    def __post_init__(self) -> None:
        if not 0 <= number("ν", self.nu) < 1:
            raise PlanError(
                f"ν must be in [0, 1); got {self.nu}. 0 is Optimal CC; towards 1 it becomes "
                "independent noise."
            )
        object.__setattr__(self, "nu", float(self.nu))

    def column(self, T: int) -> Vector:
        """c_t = c_{t-1} (1 - ν) (t - 1/2)/t: positive and decreasing."""
        return _binomial_series(0.5, self.nu, T)

    def inverse_column(self, T: int) -> Vector:
        """β_t = β_{t-1} (1 - ν) (t - 3/2)/t: negative after the first."""
        return _binomial_series(1.5, self.nu, T)

    def buffered(self, T: int, buffers: int = 5) -> BLT:
        """The BLT nearest to this mechanism over T steps: constant memory, the same damping.

        The fit of (1 - z)^(-1/2) is made once for each (T, buffers); ν scales it exactly. The BLT is
        certified by its own sensitivity, so the approximation costs no privacy.
        """
        check_steps(T)
        scales, decays = _square_root_fit(T, buffers)
        keep = 1 - self.nu
        return BLT(tuple(keep * a for a in scales), tuple(keep * x for x in decays))

    def _autocorrelation(self, lags: Vector) -> Vector:
        if self.nu == 0:
            raise UnsupportedError(
                "the sensitivity of ν = 0 (Optimal CC) grows like the logarithm of the number of "
                "steps, so it has no bound for endlessly many. Give a finite T, or take ν > 0."
            )
        # Lag 0 by Carlson's form, which keeps its digits as ν → 0.
        energy = 2 / math.pi * elliprf(0, self.nu * (2 - self.nu), 1)
        others = [_autocorrelation(self.nu, float(lag)) if lag else energy for lag in lags]
        return np.array(others)

    def _decreases(self) -> bool:
        return True

    def _start(self, like: Tensor, T: int) -> Buffers:
        return ()

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        return full_history(z, kept, _reversed_decoder(self, T)[T - 1 - t :], donate)


def _binomial_series(shift: float, nu: float, T: int) -> Vector:
    t = np.arange(1, T)
    return np.cumprod(np.concatenate([[1.0], (1 - nu) * (t - shift) / t]))


def _autocorrelation(nu: float, lag: float) -> float:
    """Σ_u c_u c_{u+lag} for lag >= 1: a hypergeometric function, by Euler's integral.

    With a = ν(2-ν)/(1-ν)² it is ∫ (1 - s²)^(lag - 1/2) / sqrt(a + s²) ds over [0, 1]; s = √a sinh v takes
    out the root, and with it the logarithm that (1-ν)² would lose as ν → 0.
    """
    a = nu * (2 - nu) / (1 - nu) ** 2
    # Beyond s² = 45 / (lag - 1/2) the integrand is below 1e-19.
    end = math.asinh(math.sqrt(min(1.0, 45 / (lag - 0.5)) / a))

    def integrand(v: float) -> float:
        rest = max(0.0, 1 - a * math.sinh(v) ** 2)
        return rest ** (lag - 0.5)

    value, _ = quad(integrand, 0.0, end, epsabs=0.0, epsrel=1e-12, limit=400)
    return 2 / math.pi * math.exp((lag - 1) * math.log1p(-nu)) * float(value)


@lru_cache(maxsize=8)
def _reversed_decoder(mechanism: NuFTRL, T: int) -> tuple[float, ...]:
    return tuple(mechanism.inverse_column(T)[::-1].tolist())


@lru_cache(maxsize=32)
def _square_root_fit(T: int, buffers: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    scales, decays = fit_inverse_square_root(T, buffers)
    return tuple(scales.tolist()), tuple(decays.tolist())
