"""Schemes that go through the data in passes."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Patterns,
    Reshuffled,
)
from antiphon.plans.sampling.abstract_sampling import AbstractSampling

__all__ = ["BallsInBins", "FullBatch", "OnePass", "Recorded", "ShuffledEpochs"]


@final
@dataclass(frozen=True)
class FullBatch(AbstractSampling):
    """Every record is in every batch: gradient descent."""

    name: ClassVar[str] = "full-batch"
    own_coin: ClassVar[bool] = True

    def check(self, n: int, steps: int) -> None:
        """Any n and any number of steps will do."""

    def expected_batch(self, n: int) -> float:
        """All n records."""
        return float(n)

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """Every step."""
        return MinSeparation(steps, 1)


@final
@dataclass(frozen=True)
class OnePass(AbstractSampling):
    """One pass in batches of ``batch``: each record is used once."""

    batch: int
    name: ClassVar[str] = "one-pass"
    own_coin: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole("batch", self.batch)

    def check(self, n: int, steps: int) -> None:
        """The batches of one pass must suffice for the steps."""
        _check_batch(self.batch, n)
        if steps > -(-n // self.batch):
            raise PlanError(
                f"one pass over {n} records in batches of {self.batch} has {-(-n // self.batch)} steps; "
                f"{steps} were asked for. Use ShuffledEpochs for more passes."
            )

    def expected_batch(self, n: int) -> float:
        """``batch``."""
        return float(self.batch)

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """One step."""
        return Once()


@final
@dataclass(frozen=True)
class ShuffledEpochs(AbstractSampling):
    """Passes over a shuffled order in batches of ``batch``.

    Attributes:
        batch: Records per batch.
        reshuffle: A new order in every epoch, which lets a record's participations be neighbours; else one
            order is drawn and kept.
    """

    batch: int
    reshuffle: bool = False
    name: ClassVar[str] = "shuffled-epochs"
    own_coin: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole("batch", self.batch)

    def check(self, n: int, steps: int) -> None:
        """A batch must not be larger than the data."""
        _check_batch(self.batch, n)

    def expected_batch(self, n: int) -> float:
        """``batch``."""
        return float(self.batch)

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """Once per epoch."""
        per_epoch = min(steps, -(-n // self.batch))
        epochs = -(-steps // per_epoch)
        kind = Reshuffled if self.reshuffle else FixedEpochs
        return kind(epochs, per_epoch)


@final
@dataclass(frozen=True)
class BallsInBins(AbstractSampling):
    """Each record draws one of ``bins`` batches once and is in that batch in every epoch."""

    bins: int
    name: ClassVar[str] = "balls-in-bins"
    own_coin: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole("bins", self.bins)

    def check(self, n: int, steps: int) -> None:
        """At least one epoch must be run, or some records are never used."""
        if steps < self.bins:
            raise PlanError(f"{steps} steps do not complete one epoch of {self.bins} bins.")

    def expected_batch(self, n: int) -> float:
        """N / ``bins``."""
        return n / self.bins

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """Once per epoch, always in the same place."""
        return FixedEpochs(-(-steps // self.bins), self.bins)


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


def _check_batch(batch: int, n: int) -> None:
    if batch > n:
        raise PlanError(f"a batch of {batch} is larger than the {n} records.")
