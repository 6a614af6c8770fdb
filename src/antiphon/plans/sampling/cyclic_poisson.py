"""Groups that take turns, sampled by coins."""

from dataclasses import dataclass
from typing import ClassVar, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import AbstractParticipation, FixedEpochs
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, check_rate

__all__ = ["CyclicPoisson"]


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
