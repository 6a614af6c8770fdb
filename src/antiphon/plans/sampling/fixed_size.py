"""Batches of a fixed size, drawn anew without replacement."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import AbstractParticipation, MinSeparation
from antiphon.plans.sampling.abstract_sampling import AbstractSampling

__all__ = ["FixedSize"]


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
