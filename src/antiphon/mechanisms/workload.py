"""What the learner needs from the noisy gradients: the workload A whose error counts."""

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.signal import lfilter

from antiphon.errors import PlanError
from antiphon.numerics import Matrix, Rows, Vector

__all__ = ["PREFIX_SUMS", "Workload", "brief"]


@final
@dataclass(frozen=True, repr=False)
class Workload:
    """The iterates of (momentum) SGD as linear functions of the gradients.

    v_t = momentum · v_{t-1} + g_t and θ_{t+1} = θ_t - rate_t · v_t, so that row t of A gives
    θ_0 - θ_{t+1}. The default is plain prefix sums.

    Attributes:
        momentum: In [0, 1).
        learning_rates: One per step, or None for a constant rate of 1 (the scale does not matter).
    """

    momentum: float = 0.0
    learning_rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise PlanError(f"momentum must be in [0, 1); got {self.momentum}.")
        if self.learning_rates is not None:
            rates = tuple(float(rate) for rate in self.learning_rates)
            if not rates or not all(np.isfinite(rates)) or min(rates) < 0 or max(rates) == 0:
                raise PlanError("learning rates must be finite, non-negative and not all zero.")
            object.__setattr__(self, "learning_rates", rates)

    def __repr__(self) -> str:
        return f"Workload(momentum={self.momentum}, learning_rates={brief(self.learning_rates)})"

    @property
    def is_toeplitz(self) -> bool:
        """Whether A is constant along its diagonals."""
        return self.learning_rates is None

    def rates(self, T: int) -> Vector:
        """The learning rates of T steps."""
        if self.learning_rates is None:
            return np.ones(T)
        if len(self.learning_rates) != T:
            raise PlanError(f"there are {len(self.learning_rates)} learning rates for {T} steps.")
        return np.array(self.learning_rates)

    def column(self, T: int) -> Vector:
        """First column of A."""
        impulse = np.zeros((T, 1))
        impulse[0] = 1.0
        return self.apply(impulse)[:, 0]

    def matrix(self, T: int) -> Matrix:
        """A, dense."""
        return self.apply(np.eye(T))

    def apply(self, B: Rows) -> Rows:
        """A @ B without A."""
        velocity = lfilter([1.0], [1.0, -self.momentum], B, axis=0)
        return np.cumsum(self.rates(len(B))[:, None] * velocity, axis=0)


def brief(value: object) -> str:
    """A value for messages: the ends of a long tuple and its length."""
    if isinstance(value, tuple) and len(value) > 8:
        return f"({value[0]!r}, {value[1]!r}, ..., {value[-1]!r}: {len(value)} numbers)"
    return repr(value)


PREFIX_SUMS = Workload()
