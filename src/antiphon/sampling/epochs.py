"""Schemes that go through the data in passes."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.errors import PlanError
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Reshuffled,
)
from antiphon.sampling.base import AbstractSampling, check_size

__all__ = ["BallsInBins", "FullBatch", "OnePass", "ShuffledEpochs"]


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
        check_size("batch", self.batch)

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
        check_size("batch", self.batch)

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
        check_size("bins", self.bins)

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


def _check_batch(batch: int, n: int) -> None:
    if batch > n:
        raise PlanError(f"a batch of {batch} is larger than the {n} records.")
