"""One pass over the data in batches of equal size."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import (
    AbstractParticipation,
    Once,
)
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, check_batch

__all__ = ["OnePass"]


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
        check_batch(self.batch, n)
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
