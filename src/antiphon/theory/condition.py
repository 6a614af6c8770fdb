"""One hypothesis of a theorem, checked at given numbers."""

import math
from dataclasses import dataclass
from typing import final

__all__ = ["Condition"]


@final
@dataclass(frozen=True)
class Condition:
    """A number and the limit that a theorem puts on it.

    Attributes:
        name: What is limited, and how.
        value: The number.
        limit: Its limit, in the same unit.
        holds: Whether the limit is kept.
        factor: How many times the number is beyond its limit; at most 1 if the condition holds.

    Example:
        >>> Condition.at_most("step size", 1.0, 0.25).factor
        4.0
    """

    name: str
    value: float
    limit: float
    holds: bool
    factor: float

    @classmethod
    def at_most(cls, name: str, value: float, limit: float) -> "Condition":
        """The condition value <= limit, for non-negative numbers."""
        return cls(name, value, limit, value <= limit, _ratio(value, limit))

    @classmethod
    def at_least(cls, name: str, value: float, limit: float) -> "Condition":
        """The condition value >= limit, for non-negative numbers."""
        return cls(name, value, limit, value >= limit, _ratio(limit, value))


def _ratio(large: float, small: float) -> float:
    if small > 0:
        return large / small
    return math.inf if large > 0 else 1.0
