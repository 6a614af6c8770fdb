"""In which steps one unit can take part.

A *pattern* is the set of steps in which one unit contributes. A participation is a family of
patterns, and a sensitivity is always "under" one. With contributions of norm at most 1 at the steps of
a pattern π and X = CᵀC, the change of Cg is at most sqrt(Σ_{s,t ∈ π} |X_st|); `heaviest` bounds that
sum over the family.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.numerics import Matrix, Rows, Vector

__all__ = [
    "AbstractParticipation",
    "FixedEpochs",
    "MinSeparation",
    "Once",
    "PatternBound",
    "Patterns",
    "Reshuffled",
]


class PatternBound(NamedTuple):
    """A bound on Σ_{s,t ∈ π} W_st over the patterns π, and a pattern that comes close to it."""

    bound: float
    pattern: tuple[int, ...]


class AbstractParticipation(ABC):
    """A family of patterns. Subclasses are frozen values."""

    @abstractmethod
    def check(self, T: int) -> None:
        """Raise `PlanError` if T steps cannot hold these participations."""

    @abstractmethod
    def densest(self, T: int) -> tuple[int, ...] | None:
        """The pattern of largest sensitivity for every non-negative, non-increasing Toeplitz encoder.

        None if there is no single such pattern.
        """

    @abstractmethod
    def heaviest(self, W: Matrix) -> PatternBound:
        """Upper bound on Σ_{s,t ∈ π} W_st over all patterns π, for a symmetric W >= 0."""

    @final
    def to_dict(self) -> dict[str, Any]:
        """This value as JSON types; `from_dict` is its inverse."""
        return {"kind": type(self).__name__, **vars(self)}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "AbstractParticipation":
        """The participation that `to_dict` described."""
        kind = values.get("kind") if isinstance(values, dict) else None
        if kind not in [*_KINDS]:
            raise PlanError(f"unknown participation {kind!r}; known are {', '.join(_KINDS)}.")
        arguments = {key: _tuples(value) for key, value in values.items() if key != "kind"}
        try:
            return _KINDS[kind](**arguments)
        except TypeError as error:
            raise PlanError(
                f"cannot read the participation {str(values)[:80]}: {error}."
            ) from error


@final
@dataclass(frozen=True)
class Once(AbstractParticipation):
    """Each unit takes part in at most one step: a single pass."""

    def check(self, T: int) -> None:
        """One participation fits into any number of steps."""

    def densest(self, T: int) -> tuple[int, ...]:
        """The first step: its column is the longest."""
        return (0,)

    def heaviest(self, W: Matrix) -> PatternBound:
        """The largest diagonal entry, exactly."""
        step = int(np.argmax(np.diagonal(W)))
        return PatternBound(float(W[step, step]), (step,))


@final
@dataclass(frozen=True)
class MinSeparation(AbstractParticipation):
    """At most ``times`` participations, any two at least ``apart`` steps from each other.

    Guarantee:
        `densest` is the worst pattern for non-negative, non-increasing Toeplitz encoders
        [BandedSqrt24, Thm. 2]. `heaviest` is exact if W vanishes ``apart`` or more off the diagonal
        [Banded23], and an upper bound otherwise.
    """

    times: int
    apart: int

    def __post_init__(self) -> None:
        _count(self, "times", "apart")

    def check(self, T: int) -> None:
        """``times`` participations ``apart`` steps from each other must fit into T steps."""
        _fits(self.times, self.apart, T)

    def densest(self, T: int) -> tuple[int, ...]:
        """Steps 0, apart, 2 apart, ..."""
        return tuple(range(0, self.times * self.apart, self.apart))

    def heaviest(self, W: Matrix) -> PatternBound:
        """Σ_{s ∈ π} v_s, where v_s is the best row sum of any pattern that holds s."""
        T = len(W)
        steps = np.arange(T)
        near = np.abs(steps[:, None] - steps) < self.apart
        others = np.where(near, 0.0, W)
        best = np.zeros_like(W)
        for _ in range(self.times - 1):
            best = _one_more(best, others, self.apart)
        rows = np.diagonal(W) + best[:, -1]
        return PatternBound(*self._pick(rows))

    def _pick(self, weight: Vector) -> tuple[float, tuple[int, ...]]:
        """Largest sum of at most ``times`` weights that are ``apart`` steps from each other."""
        layers = [np.zeros_like(weight)]
        for _ in range(self.times):
            layers.append(_one_more(layers[-1][None], weight[None], self.apart)[0])
        chosen: list[int] = []
        last = len(weight) - 1
        for before, after in zip(layers[-2::-1], layers[:0:-1], strict=True):
            if last < 0:
                break
            step = int(np.searchsorted(after[: last + 1], after[last]))
            if after[step] > (before[step - self.apart] if step >= self.apart else 0.0):
                chosen.append(step)
                last = step - self.apart
        return float(layers[-1][-1]), tuple(sorted(chosen))


@final
@dataclass(frozen=True)
class FixedEpochs(AbstractParticipation):
    """At most ``times`` participations, each exactly ``apart`` steps after the last.

    That is what training on the same order of batches in every epoch of ``apart`` steps gives.
    """

    times: int
    apart: int

    def __post_init__(self) -> None:
        _count(self, "times", "apart")

    def check(self, T: int) -> None:
        """``times`` participations ``apart`` steps from each other must fit into T steps."""
        _fits(self.times, self.apart, T)

    def densest(self, T: int) -> tuple[int, ...]:
        """Steps 0, apart, 2 apart, ...: also the worst of the larger family `MinSeparation`."""
        return tuple(range(0, self.times * self.apart, self.apart))

    def patterns(self, T: int) -> tuple[tuple[int, ...], ...]:
        """Every pattern that is not part of another one."""
        reach = self.times * self.apart
        starts = range(max(self.apart, T - reach + self.apart) if self.apart < T else T)
        return tuple(tuple(range(s, min(T, s + reach), self.apart)) for s in starts)

    def heaviest(self, W: Matrix) -> PatternBound:
        """The largest sum over the patterns, exactly."""
        return _heaviest_of(self.patterns(len(W)), W)


@final
@dataclass(frozen=True)
class Reshuffled(AbstractParticipation):
    """One participation in each of ``times`` epochs of ``batches`` steps, in a new order every epoch.

    Two participations may then be neighbours (last batch of one epoch, first of the next): the
    sensitivity is larger than in a fixed order.

    Guarantee:
        `heaviest` is exact for at most two epochs and wherever W couples neighbouring epochs only (a
        banded encoder); else the coupling of farther epochs is bounded step by step.
    """

    times: int
    batches: int

    def __post_init__(self) -> None:
        _count(self, "times", "batches")

    def check(self, T: int) -> None:
        """T steps must end within the last epoch."""
        _fits(self.times, self.batches, T)
        if self.times * self.batches < T:
            raise PlanError(
                f"{T} steps are more than {self.times} epochs of {self.batches} batches; raise "
                f"times to {-(-T // self.batches)}."
            )

    def densest(self, T: int) -> tuple[int, ...] | None:
        """Known for one epoch only; else an early start and a short distance compete."""
        return (0,) if self.times == 1 else None

    def heaviest(self, W: Matrix) -> PatternBound:
        """Best path through the epochs: neighbours exactly, farther epochs by their largest entry."""
        T, b = len(W), self.batches
        epochs = [slice(e * b, min(T, (e + 1) * b)) for e in range(self.times)]
        # peak[s, e]: the most that step s can be coupled to any one step of epoch e.
        peak = np.stack([W[:, epoch].max(1) for epoch in epochs], axis=1)
        gap = np.abs(np.arange(T)[:, None] // b - np.arange(self.times))
        node = np.diagonal(W) + np.where(gap >= 2, peak, 0.0).sum(1)
        value, back = node[epochs[0]], []
        for before, here in pairwise(epochs):
            arrivals = value[:, None] + 2 * W[before, here]
            back.append(arrivals.argmax(0))
            value = arrivals.max(0) + node[here]
        position = [int(value.argmax())]
        for pointers in reversed(back):
            position.append(int(pointers[position[-1]]))
        path = tuple(e * b + p for e, p in enumerate(reversed(position)))
        return PatternBound(float(value.max()), path)


@final
@dataclass(frozen=True)
class Patterns(AbstractParticipation):
    """An explicit list of patterns, or a recorded schedule (`recorded`).

    Guarantee:
        Covers exactly the units whose patterns are listed, and every unit that skips some of a listed
        pattern's steps.

    Example:
        >>> Patterns.recorded([[7, 8], [9], [8, 7]]).patterns
        ((0, 2), (1,))
    """

    patterns: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        rows = [tuple(sorted(_whole(step) for step in pattern)) for pattern in self.patterns]
        if not rows or not all(rows):
            raise PlanError("a list of patterns needs at least one, and none of them empty.")
        for row in rows:
            if row[0] < 0 or len(set(row)) < len(row):
                raise PlanError(f"a pattern is a set of steps counted from 0; got {row}.")
        object.__setattr__(self, "patterns", tuple(sorted(set(rows))))

    @classmethod
    def recorded(cls, batches: Iterable[Sequence[int]]) -> "Patterns":
        """The patterns of a schedule that gives the units of each step, in order."""
        steps: dict[int, list[int]] = {}
        for step, batch in enumerate(batches):
            for unit in batch:
                steps.setdefault(int(unit), []).append(step)
        return cls(tuple(tuple(taken) for taken in steps.values()))

    def check(self, T: int) -> None:
        """Every listed step must be among the T steps."""
        last = max(pattern[-1] for pattern in self.patterns)
        if last >= T:
            raise PlanError(f"a pattern takes part in step {last}, but the steps are 0 to {T - 1}.")

    def densest(self, T: int) -> tuple[int, ...] | None:
        """None: the list is its own family."""
        return None

    def heaviest(self, W: Matrix) -> PatternBound:
        """The largest sum over the patterns, exactly."""
        return _heaviest_of(self.patterns, W)


_KINDS: dict[str, type[AbstractParticipation]] = {
    kind.__name__: kind for kind in (Once, MinSeparation, FixedEpochs, Reshuffled, Patterns)
}


def _heaviest_of(patterns: Iterable[tuple[int, ...]], W: Matrix) -> PatternBound:
    sums = ((float(W[np.ix_(steps, steps)].sum()), steps) for steps in patterns)
    return PatternBound(*max(sums, key=lambda pair: pair[0]))


def _one_more(best: Rows, weight: Rows, apart: int) -> Rows:
    """Given each row's best sums up to every step, the best with one more weight ``apart`` later."""
    taken = weight.copy()
    taken[:, apart:] += best[:, :-apart]
    return np.maximum.accumulate(np.maximum(taken, best), axis=1)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _whole(step: Any) -> int:
    try:
        return operator.index(step)
    except TypeError as error:
        raise PlanError(f"a step is a whole number counted from 0; got {step!r}.") from error


def _count(participation: AbstractParticipation, *names: str) -> None:
    """Make each field a plain int of at least 1."""
    for name in names:
        object.__setattr__(participation, name, whole(name, getattr(participation, name)))


def _fits(times: int, apart: int, T: int) -> None:
    if (times - 1) * apart >= T:
        raise PlanError(
            f"{times} participations {apart} steps apart need at least {(times - 1) * apart + 1} "
            f"steps; there are {T}. Lower the number of participations or their distance."
        )
