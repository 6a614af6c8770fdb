"""Which widths the explicit bounds allow, and what stands in the way where there are none."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from antiphon.checks import whole
from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_sgd.theory.descent import Descent, LossBound, optimization_bound
from antiphon_papers.kan_sgd.theory.geometry import Bounds, Constants

__all__ = ["FeasibleWidths", "feasible_widths"]


@final
@dataclass(frozen=True)
class FeasibleWidths:
    """Widths at which all conditions of a bound hold.

    Attributes:
        low: The smallest found; None if there is none.
        high: The largest found; None if there is none.
        nearest: A width at which the worst condition fails by the smallest factor.
        conditions: Those of that width.
        bound: The bound at ``low``, or else at ``nearest``.
    """

    low: int | None
    high: int | None
    nearest: int
    conditions: tuple[Condition, ...]
    bound: LossBound

    @property
    def is_empty(self) -> bool:
        """Whether no width was found."""
        return self.low is None


def feasible_widths(
    run: Descent,
    margin: float,
    n: int,
    *,
    failure: float = 0.01,
    bounds: Bounds | None = None,
    most: int = 2**100,
) -> FeasibleWidths:
    """The widths for which `optimization_bound` is proved, with tight constants and the clip norm at G.

    Args:
        run: The run; its width and clip norm are replaced.
        margin: γ in (0, 1].
        n: Records.
        failure: Of the bound, half of it for the second layer.
        bounds: On splines and activation, for ``run.basis`` functions.
        most: Largest width that is tried.

    Guarantee:
        All conditions hold at ``low`` and at ``high``. Powers of two are tried first, so that a window
        narrower than a factor of 2 can be missed.

    Example:
        >>> run = Descent(inputs=5, width=1, iterates=200, batch=1000, step_size=1e-3, clip_norm=1.0)
        >>> found = feasible_widths(run, margin=0.5, n=10_000)
        >>> found.is_empty, found.low > 10**9, found.bound.is_vacuous
        (False, True, True)
    """
    b = bounds or Bounds.of()

    def bound(width: int) -> LossBound:
        constants = Constants.tight(width, failure / 4, b)
        wide = replace(run, width=width, clip_norm=constants.gradient, basis=b.basis)
        return optimization_bound(wide, constants, margin, n, failure / 2)

    found = {m: bound(m) for m in (2**k for k in range(whole("most", most).bit_length()))}
    nearest = min(found, key=lambda m: max(c.factor for c in found[m].conditions))
    proved = [m for m in found if found[m].is_proved]
    if not proved:
        return FeasibleWidths(None, None, nearest, found[nearest].conditions, found[nearest])
    low, high = min(proved), max(proved)
    if low > 1:
        low = _edge(lambda m: bound(m).is_proved, low, low // 2)
    if 2 * high <= most:
        high = _edge(lambda m: bound(m).is_proved, high, 2 * high)
    return FeasibleWidths(low, high, nearest, found[nearest].conditions, bound(low))


def _edge(holds: Callable[[int], bool], inside: int, outside: int) -> int:
    """The last whole number from ``inside`` towards ``outside`` at which a claim holds."""
    while abs(inside - outside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
