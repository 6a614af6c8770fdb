"""Schemes that draw every batch independently."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import AbstractParticipation, FixedEpochs, MinSeparation
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, check_rate

__all__ = ["CyclicPoisson", "FixedSize", "Poisson"]


@final
@dataclass(frozen=True)
class Poisson(AbstractSampling):
    """Each record is in each batch with probability ``rate``, independently. Batches vary in size."""

    rate: float
    name: ClassVar[str] = "poisson"
    own_coin: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_rate(self.rate)
        object.__setattr__(self, "rate", float(self.rate))

    def check(self, n: int, steps: int) -> None:
        """Any n and any number of steps will do."""

    def expected_batch(self, n: int) -> float:
        """``rate`` × n."""
        return self.rate * n

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """A record may, if unlikely, be in every batch."""
        return MinSeparation(steps, 1)


@final
@dataclass(frozen=True)
class FixedSize(AbstractSampling):
    """Each batch is a uniform set of ``batch`` records, without replacement, drawn again in every step.

    Not Poisson: the others in a batch tell whether a record is in it, so Poisson's amplification does not
    hold here.
    """

    batch: int
    name: ClassVar[str] = "fixed-size"
    own_coin: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole("batch", self.batch)

    def check(self, n: int, steps: int) -> None:
        """A batch must not be larger than the data."""
        if self.batch > n:
            raise PlanError(f"a batch of {self.batch} cannot be drawn from {n} records.")

    def expected_batch(self, n: int) -> float:
        """``batch``."""
        return float(self.batch)

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """A record may, if unlikely, be in every batch."""
        return MinSeparation(steps, 1)


@final
@dataclass(frozen=True)
class CyclicPoisson(AbstractSampling):
    """Each record draws one of ``cycle`` groups once; step t samples group t mod ``cycle`` at ``rate``.

    A record's participations are then ``cycle`` steps apart or more: for encoders of at most ``cycle``
    bands the noise of two of them is independent [Banded23].
    """

    rate: float
    cycle: int
    name: ClassVar[str] = "cyclic-poisson"
    own_coin: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_rate(self.rate)
        whole("cycle", self.cycle)
        object.__setattr__(self, "rate", float(self.rate))

    def check(self, n: int, steps: int) -> None:
        """At least one cycle must be run, or some groups are never used."""
        if steps < self.cycle:
            raise PlanError(f"{steps} steps do not complete one cycle of {self.cycle} groups.")

    def expected_batch(self, n: int) -> float:
        """``rate`` × n / ``cycle``."""
        return self.rate * n / self.cycle

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """At most every ``cycle``-th step."""
        return FixedEpochs(-(-steps // self.cycle), self.cycle)
