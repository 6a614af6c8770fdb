"""What every bound and calibration of DP-GD on a two-layer KAN is about."""

import math
from dataclasses import dataclass, field
from typing import Literal, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon_papers.kan_gd.theory.constants import KANConstants, SecondLayer, kan_constants

__all__ = ["LOGISTIC", "Loss", "Problem", "sensitivities"]


@final
@dataclass(frozen=True)
class Loss:
    """Bounds of Assumption 4.2 on a convex loss l(y f) >= 0. The paper sets all three to 1.

    Attributes:
        slope: Largest |l'|.
        bend: Largest l''.
        self_bound: Smallest α with |l'| <= α l.
    """

    slope: float = 1.0
    bend: float = 1.0
    self_bound: float = 1.0


LOGISTIC = Loss(bend=0.25)
"""log(1 + exp(-y f)): its second derivative is at most 1/4."""


@final
@dataclass(frozen=True)
class Problem:
    """A full-batch run on a two-layer KAN whose both layers learn.

    Attributes:
        n: Number of examples; public, since neighbours differ by replacing one.
        d: Number of inputs.
        m: Width.
        steps: T, the number of noisy steps.
        constants: Of the grid and the activation.
        loss: Bounds on the loss.

    Example:
        >>> Problem(n=20_000, d=10, m=32, steps=100).sizes
        (2560, 256)
    """

    n: int
    d: int
    m: int
    steps: int
    constants: KANConstants = field(default_factory=kan_constants)
    loss: Loss = LOGISTIC

    def __post_init__(self) -> None:
        for name in ("n", "d", "m", "steps"):
            whole(name, getattr(self, name))

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of parameters of the first layer, m d p, and of the second, m p."""
        second = self.m * self.constants.p
        return second * self.d, second


def sensitivities(
    problem: Problem,
    layer: SecondLayer,
    radius: float = 0.0,
    bound: Literal["coordinates", "vectors", "slopes"] = "slopes",
) -> tuple[float, float]:
    """Largest changes of the two layers' mean gradients when one example is replaced (L2 norms).

    Args:
        problem: n, m and the constants.
        layer: Of c(0) if c stays within ``radius`` of it; of c(k), with radius 0, for step k alone.
        radius: R₂, how far c may be from where ``layer`` was taken.
        bound: "coordinates" is the paper's, √p times the bound on one spline [KANGradientDescent26,
            eq. 8 and 10]; "vectors" takes the splines' norms; "slopes" each unit's own slope besides.

    Guarantee:
        Upper bounds for all data, each at most the one before it, on the event that ``layer`` holds.

    Example:
        >>> problem, c = Problem(20_000, 10, 32, 100), SecondLayer.a_priori(32, 5e-5)
        >>> [round(problem.n * s, 3) for s in sensitivities(problem, c, 1.0, "coordinates")]
        [224.736, 3.771]
    """
    if not 0 <= radius < math.inf:
        raise PlanError(f"radius must be finite, or the sensitivity is not; got {radius}.")
    c = problem.constants
    unit = 2 * problem.loss.slope / problem.n
    match bound:
        case "coordinates":
            value = c.coordinate[0] * math.sqrt(c.p)
            reach = c.sigma[1] * c.coordinate[1] * math.sqrt(c.p) * (layer.norm + radius)
        case "vectors":
            value, reach = c.vector[0], c.sigma[1] * c.vector[1] * (layer.norm + radius)
        case "slopes":
            value, reach = c.vector[0], layer.slope_norm + c.slope * radius
        case _:
            raise PlanError(f"bound is 'coordinates', 'vectors' or 'slopes'; got {bound!r}.")
    return unit * value * reach / math.sqrt(problem.m), unit * value
