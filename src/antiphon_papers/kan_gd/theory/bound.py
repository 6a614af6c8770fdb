"""What a theorem says at given numbers, and what that is worth."""

from dataclasses import dataclass
from typing import final

from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_gd.theory.curvature import Curvature
from antiphon_papers.kan_gd.theory.problem import Problem

__all__ = ["INDEPENDENT", "Bound", "step_conditions", "width_condition"]

INDEPENDENT = (
    "Θ* must not depend on the sample, which no sample can show: the separating direction of "
    "Assumption 4.8 does; what is needed is a margin of the distribution"
)
"""What is missing wherever a risk is bounded."""


@final
@dataclass(frozen=True)
class Bound:
    """A theorem at given numbers.

    Attributes:
        theorem: Where it stands.
        value: The bound, in units of the loss.
        trivial: What is known without it: the loss at the start, or log 2 of the function 0.
        conditions: Its hypotheses, one by one.
        is_explicit: Whether every constant is known. Otherwise the value is a rate with constants of 1.
        unproved: What is missing in its proof, or cannot be checked on a sample.
    """

    theorem: str
    value: float
    trivial: float
    conditions: tuple[Condition, ...]
    is_explicit: bool = True
    unproved: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(c for c in self.conditions if not c.holds)

    @property
    def is_guarantee(self) -> bool:
        """Whether ``value`` is proved here, up to what no sample can show."""
        return self.is_explicit and not self.failed

    @property
    def is_vacuous(self) -> bool:
        """Whether it says no more than is known without it."""
        return self.value >= self.trivial

    @property
    def verdict(self) -> str:
        """One sentence on what the number is worth."""
        if not self.is_explicit:
            return "a rate with unknown constants: no guarantee"
        if self.failed:
            worst = max(self.failed, key=lambda c: c.factor)
            return f"not proved here: {worst.name} fails by a factor of {worst.factor:.3g}"
        return "proved, but vacuous" if self.is_vacuous else "proved"


def width_condition(
    problem: Problem, ball: Curvature, times: int, squared: float, name: str
) -> Condition:
    """The width is at least times c_max² Λ⁴, where c_max = √m κ on the ball of 3Λ."""
    needed = times * problem.m * ball.weakness**2 * squared**2
    return Condition.at_least(name, problem.m, needed)


def step_conditions(step_size: float, smoothness: float, times: int) -> tuple[Condition, Condition]:
    """η is at most 1 and at most 1/(times ρ)."""
    return (
        Condition.at_most("step size <= 1", step_size, 1.0),
        Condition.at_most(
            f"step size <= 1/({times}ρ)" if times > 1 else "step size <= 1/ρ",
            step_size,
            1 / (times * smoothness),
        ),
    )
