"""One-step anti-correlation: ξ_t = z_t - λ z_{t-1}."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from torch import Tensor

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms.abstract_mechanism import Buffers
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.mechanisms.coefficients import number
from antiphon.mechanisms.streaming import moving_sum
from antiphon.numerics import Vector

__all__ = ["LambdaCGD"]


@final
@dataclass(frozen=True)
class LambdaCGD(AbstractToeplitz):
    """DP-λCGD: each step cancels λ times the noise of the step before [KANCorrelated26, Alg. 1].

    C[i, j] = λ^(i-j). λ = 0 is independent noise, λ = 1 anti-PGD, λ = 1 - ν anti-PGD with damping ν.

    Attributes:
        lam: λ in [0, 1].

    Guarantee:
        ``sensitivity`` is exact: powers of λ are non-negative and non-increasing. For endlessly many
        steps it is finite for λ < 1, 1/sqrt(1 - λ²) for one participation, and refused for λ = 1.

    Example:
        >>> from antiphon.participation import Once
        >>> round(LambdaCGD(0.8).sensitivity(float("inf"), Once()), 6)
        1.666667
    """

    lam: float
    name: ClassVar[str] = "lambda-cgd"

    def __post_init__(self) -> None:
        if not 0 <= number("λ", self.lam) <= 1:
            raise PlanError(
                f"λ must be in [0, 1]; got {self.lam}. 0 is independent noise, 1 is anti-PGD."
            )
        object.__setattr__(self, "lam", float(self.lam))

    @property
    def taps(self) -> tuple[float, ...]:
        """The non-zero entries of the first column of C⁻¹."""
        return (1.0, -float(self.lam)) if self.lam else (1.0,)

    def column(self, T: int) -> Vector:
        """1, λ, λ², ..."""
        return np.power(float(self.lam), np.arange(T))

    def inverse_column(self, T: int) -> Vector:
        """1, -λ, 0, 0, ..."""
        column = np.zeros(T)
        column[: len(self.taps)] = self.taps[:T]
        return column

    def _autocorrelation(self, lags: Vector) -> Vector:
        if np.float32(self.lam) == 1:
            raise UnsupportedError(
                "the sensitivity of λ = 1 (anti-PGD; also what float32 cannot tell from it) grows like "
                "the square root of the number of steps, so it has no bound for endlessly many. Give a "
                "finite T, or take λ < 1."
            )
        # Not 1 - λ², which loses digits as λ nears 1.
        return np.power(float(self.lam), lags) / ((1 - self.lam) * (1 + self.lam))

    def _decreases(self) -> bool:
        return True

    def _start(self, like: Tensor, T: int) -> Buffers:
        return ()

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        # λ = 0 keeps nothing and passes z on, so that it equals Independent to the last bit.
        if self.lam == 0:
            return (z if donate else z.clone()), ()
        return moving_sum(z, kept, self.taps, recursive=False, donate=donate)
