"""Every record in every batch: gradient descent."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.participation import (
    AbstractParticipation,
    MinSeparation,
)
from antiphon.plans.sampling.abstract_sampling import AbstractSampling

__all__ = ["FullBatch"]


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
