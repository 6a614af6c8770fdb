"""Each record draws one batch of an epoch once, and keeps it."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
)
from antiphon.plans.sampling.abstract_sampling import AbstractSampling

__all__ = ["BallsInBins"]


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
