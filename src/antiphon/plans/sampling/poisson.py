"""Each record in each batch by a coin of its own."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.participation import AbstractParticipation, MinSeparation
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, check_rate

__all__ = ["Poisson"]


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
