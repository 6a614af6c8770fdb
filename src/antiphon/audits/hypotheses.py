"""Privacy hypotheses that an audit can refute, as curves between the probabilities of an event.

Let P and Q be the laws of the output with and without a record, in either order. A mechanism is f-DP if
Q(A) >= G(P(A)) for all events A, where G is convex, non-decreasing and G(0) = 0 [DongRothSu22]. In terms
of the trade-off function f, G is the inverse of 1 − f.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from scipy.special import ndtr, ndtri

from antiphon.errors import PlanError

__all__ = ["AbstractCurve", "GaussianCurve", "PointCurve", "ProfileCurve"]

_LARGE = 700.0  # e^ε leaves the range of floats


class AbstractCurve(ABC):
    """A hypothesis on privacy: how unlikely an event may become when one record changes."""

    @abstractmethod
    def inverse(self, probability: float) -> float:
        """G: the least probability, after one change, of an event that had this one before.

        It must be convex, non-decreasing and 0 at 0, and hold in both directions of the change.
        """


@final
@dataclass(frozen=True)
class GaussianCurve(AbstractCurve):
    """μ-GDP: no easier to attack than telling N(0, 1) from N(μ, 1).

    Example:
        >>> round(GaussianCurve(1.0).inverse(0.5), 6)
        0.158655
    """

    mu: float

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise PlanError(f"μ must be finite and non-negative; got {self.mu}.")

    def inverse(self, probability: float) -> float:
        """Φ(Φ⁻¹(p) − μ)."""
        return float(ndtr(ndtri(probability) - self.mu))


@final
@dataclass(frozen=True)
class PointCurve(AbstractCurve):
    """(ε, δ)-DP, and no more.

    Example:
        >>> round(PointCurve(epsilon=1.0, delta=0.1).inverse(0.5), 6)
        0.147152
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise PlanError(f"ε must be finite and non-negative; got {self.epsilon}.")
        if not 0 <= self.delta < 1:
            raise PlanError(
                f"δ must be at least 0 and below 1; got {self.delta}. An audit tests ε for the δ that was "
                "claimed: give that one, or 0 for pure differential privacy."
            )

    def inverse(self, probability: float) -> float:
        """(p − δ) e^−ε, and at least 0."""
        return max(0.0, probability - self.delta) * math.exp(-self.epsilon)


@final
@dataclass(frozen=True)
class ProfileCurve(AbstractCurve):
    """(ε, δ)-DP for several pairs at once, such as all that a certificate proves.

    Example:
        >>> curve = ProfileCurve(((0.0, 0.4), (1.0, 0.1)))
        >>> round(curve.inverse(0.5), 6), round(curve.inverse(0.9), 6)
        (0.147152, 0.628172)
    """

    points: tuple[tuple[float, float], ...]

    def inverse(self, probability: float) -> float:
        """The largest of (p − δ) e^−ε, 1 − δ − e^ε (1 − p) and 0, over all pairs."""
        # The second is the first of the complements, with the laws exchanged.
        found = 0.0
        for epsilon, delta in self.points:
            found = max(found, (probability - delta) * math.exp(-epsilon))
            if epsilon < _LARGE:
                found = max(found, 1 - delta - math.exp(epsilon) * (1 - probability))
        return found
