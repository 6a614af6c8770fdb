"""The numbers of one task and run, under the names that conditions, times and bounds share."""

import dataclasses
import math
from dataclasses import dataclass
from typing import final

from antiphon.checks import positive, whole
from antiphon.errors import PlanError

__all__ = ["Setting"]

_COUNTS = ("d", "n", "m", "steps")
_POSITIVE = ("signal", "spread", "knee", "scale", "step_size")


@final
@dataclass(frozen=True)
class Setting:
    """A task and a run; the defaults are those of the figure's hardest curve.

    The paper gives neither q, κ nor σ₀ of its figure: these are the values for which its numbers appear.

    Attributes:
        d: Numbers in a patch.
        n: Records.
        m: Filters of each sign.
        signal: ‖μ‖.
        spread: σ_p.
        q: Power of the activation below its knee.
        knee: κ.
        scale: σ₀, of the weights at the start.
        step_size: η.
        noise: σ_b; 0 for gradient descent.
        steps: T.

    Example:
        >>> round(Setting().inverse_snr, 2), Setting().energy
        (22.36, 500.0)
    """

    d: int = 2000
    n: int = 1000
    m: int = 100
    signal: float = 1.0
    spread: float = 0.5
    q: float = 3.0
    knee: float = 0.1
    scale: float = 0.007
    step_size: float = 0.1
    noise: float = 0.01
    steps: int = 20_000

    def __post_init__(self) -> None:
        for name in _COUNTS:
            whole(name, getattr(self, name))
        for name in _POSITIVE:
            positive(name, getattr(self, name))
        if not self.q > 1:
            raise PlanError(f"q must be above 1; got {self.q}.")
        if not 0 <= self.noise < math.inf:
            raise PlanError(f"noise must be non-negative and finite; got {self.noise}.")

    @property
    def patch_energy(self) -> float:
        """σ_p² d."""
        return self.spread**2 * self.d

    @property
    def energy(self) -> float:
        """M = max(‖μ‖², σ_p² d)."""
        return max(self.signal**2, self.patch_energy)

    @property
    def least_energy(self) -> float:
        """min(‖μ‖², σ_p² d)."""
        return min(self.signal**2, self.patch_energy)

    @property
    def weighted_energy(self) -> float:
        """max(n ‖μ‖², σ_p² d)."""
        return max(self.n * self.signal**2, self.patch_energy)

    @property
    def inverse_snr(self) -> float:
        """σ_p sqrt(d)/‖μ‖."""
        return math.sqrt(self.patch_energy) / self.signal

    def coarsened(self, factor: int) -> "Setting":
        """Steps of f η with noise σ_b/sqrt(f), T/f of them: the same flow and displacement by noise.

        μ of Gaussian DP, sqrt(T) Δ/σ_b, stays the same, too.

        Example:
            >>> coarse = Setting().coarsened(4)
            >>> coarse.step_size, coarse.noise, coarse.steps
            (0.4, 0.005, 5000)
        """
        if self.steps % whole("factor", factor):
            raise PlanError(f"the factor must divide the {self.steps} steps; got {factor}.")
        return dataclasses.replace(
            self,
            step_size=factor * self.step_size,
            noise=self.noise / math.sqrt(factor),
            steps=self.steps // factor,
        )
