"""Passes over a shuffled order, one order for all or a new one for each."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.checks import whole
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    Reshuffled,
)
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, check_batch

__all__ = ["ShuffledEpochs"]


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
        check_batch(self.batch, n)

    def expected_batch(self, n: int) -> float:
        """``batch``."""
        return float(self.batch)

    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """Once per epoch."""
        per_epoch = min(steps, -(-n // self.batch))
        epochs = -(-steps // per_epoch)
        kind = Reshuffled if self.reshuffle else FixedEpochs
        return kind(epochs, per_epoch)
