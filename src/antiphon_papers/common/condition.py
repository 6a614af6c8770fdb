"""One inequality that a theorem needs, and by how much it holds or fails."""

import math
from dataclasses import dataclass
from typing import final

__all__ = ["Condition"]


@final
@dataclass(frozen=True)
class Condition:
    """An inequality between two numbers.

    Attributes:
        name: What is asked for, in words.
        value: What there is.
        limit: What is allowed.
        holds: Whether it does.
        factor: Value over limit where the limit is from above, limit over value where it is from below:
            at most 1 where the condition holds, and otherwise the factor by which it fails.

    Example:
        >>> print(Condition.at_most("step size", 0.5, 0.1))
        step size: 0.5 against 0.1, fails by a factor of 5
    """

    name: str
    value: float
    limit: float
    holds: bool
    factor: float

    @classmethod
    def at_most(
        cls, name: str, value: float, limit: float, *, strictly: bool = False
    ) -> "Condition":
        """The condition value <= limit, or value < limit."""
        holds = bool(value < limit if strictly else value <= limit)
        return cls(name, float(value), float(limit), holds, _over(value, limit))

    @classmethod
    def at_least(cls, name: str, value: float, limit: float) -> "Condition":
        """The condition value >= limit."""
        return cls(name, float(value), float(limit), bool(value >= limit), _over(limit, value))

    def __str__(self) -> str:
        verdict = "holds" if self.holds else f"fails by a factor of {self.factor:.3g}"
        return f"{self.name}: {self.value:.4g} against {self.limit:.4g}, {verdict}"


def _over(larger: float, smaller: float) -> float:
    """The quotient of two non-negative numbers; infinite where nothing is allowed, or nothing known."""
    if math.isnan(larger) or math.isnan(smaller):
        return math.inf
    if larger <= smaller and (smaller <= 0 or math.isinf(smaller)):
        return 1.0 if larger == smaller else 0.0
    return float(larger / smaller) if smaller > 0 else math.inf
