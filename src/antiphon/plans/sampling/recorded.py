"""A schedule of batches that was written down in advance."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from antiphon.errors import PlanError
from antiphon.participation import (
    AbstractParticipation,
    Patterns,
)
from antiphon.plans.sampling.abstract_sampling import AbstractSampling

__all__ = ["Recorded"]


@final
@dataclass(frozen=True)
class Recorded(AbstractSampling):
    """A schedule that was fixed without looking at the data: the rows of every batch, written down.

    Nothing is random in it, so nothing is amplified: a unit is protected as its own batches demand, and
    the guarantee is that of the unit with the heaviest pattern. The schedule is part of the plan, and
    public.

    Attributes:
        batches: For each step, the rows of its batch, counted from 0; kept as tuples.
    """

    batches: Sequence[Any]
    name: ClassVar[str] = "recorded"
    own_coin: ClassVar[bool] = False

    def __post_init__(self) -> None:
        try:
            rows = tuple(tuple(map(operator.index, batch)) for batch in self.batches)
        except TypeError as error:
            raise PlanError(
                f"a schedule is a list of batches of whole row numbers: {error}."
            ) from error
        if not any(rows):
            raise PlanError("a schedule needs at least one batch that is not empty.")
        for step, batch in enumerate(rows):
            if len(set(batch)) < len(batch) or min(batch, default=0) < 0:
                raise PlanError(f"batch {step} holds a row twice, or a negative one: {batch[:8]}.")
        object.__setattr__(self, "batches", rows)

    def check(self, n: int, steps: int) -> None:
        """There must be a batch for every step, of rows that exist."""
        if steps != len(self.batches):
            raise PlanError(
                f"the schedule has {len(self.batches)} batches; the plan {steps} steps."
            )
        last = max(max(batch, default=0) for batch in self.batches)
        if last >= n:
            raise PlanError(f"the schedule uses row {last}, but rows are 0 to {n - 1}.")

    def expected_batch(self, n: int) -> float:
        """The mean size of the batches."""
        return sum(map(len, self.batches)) / len(self.batches)

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """The patterns of the schedule's own units."""
        return Patterns.recorded(self.batches)
