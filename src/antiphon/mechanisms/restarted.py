"""Stamping: a mechanism that starts afresh in every block of steps."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.linalg import block_diag
from torch import Tensor

from antiphon.checks import whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms.abstract_mechanism import (
    AbstractMechanism,
    Buffers,
    Sensitivity,
    check_steps,
    gram_sensitivity,
)
from antiphon.mechanisms.workload import PREFIX_SUMS, Workload
from antiphon.numerics import Matrix, Vector
from antiphon.participation import AbstractParticipation, FixedEpochs, MinSeparation, Once

__all__ = ["Restarted"]


@final
@dataclass(frozen=True)
class Restarted(AbstractMechanism):
    """C is block diagonal: ``blocks`` copies of a mechanism, each with fresh noise.

    T steps are cut into blocks whose lengths differ by at most one. The noise of finished blocks stays
    in the prefix sums, but a unit's participations in different blocks no longer add up.

    Attributes:
        mechanism: What runs within a block.
        blocks: Their number.

    Guarantee:
        sensitivity² <= Σ_j s_j(k_j)², where s_j(k) is the block's own sensitivity for k
        participations, at the worst split k = Σ_j k_j. Exact if every block is a whole number of
        epochs long, all blocks can be full at once and the block's own sensitivity is exact.
    """

    mechanism: AbstractMechanism
    blocks: int
    name: ClassVar[str] = "restarted"

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", whole("blocks", self.blocks))
        if not isinstance(self.mechanism, AbstractMechanism):
            raise PlanError(f"what restarts must be a mechanism; got {self.mechanism!r}.")

    def lengths(self, T: int) -> list[int]:
        """Steps of each block."""
        check_steps(T)
        if self.blocks > T:
            raise PlanError(f"{T} steps cannot be cut into {self.blocks} blocks.")
        short, longer = divmod(T, self.blocks)
        return [short + (j < longer) for j in range(self.blocks)]

    def encoder(self, T: int) -> Matrix:
        """C, dense, for tests and plots."""
        return block_diag(*(self.mechanism.encoder(length) for length in self.lengths(T)))

    def decoder(self, T: int) -> Matrix:
        """C⁻¹, dense, for tests and plots."""
        return block_diag(*(self.mechanism.decoder(length) for length in self.lengths(T)))

    def sensitivity(self, T: float, participation: AbstractParticipation) -> Sensitivity:
        """Largest change of Cg under ``participation``: the worst split over the blocks."""
        if math.inf == T:
            raise UnsupportedError(
                "restarts need a number of steps fixed in advance; give a finite T."
            )
        check_steps(T)
        lengths = self.lengths(int(T))
        participation.check(int(T))
        match participation:
            case Once():
                return max(self.mechanism.sensitivity(length, Once()) for length in set(lengths))
            case MinSeparation(times, apart) | FixedEpochs(times, apart):
                return self._split(lengths, times, apart)
            case _:
                C = self.encoder(int(T))
                return gram_sensitivity(C.T @ C, participation)

    def errors(self, T: int, workload: Workload = PREFIX_SUMS) -> Vector:
        """Row norms of A C⁻¹."""
        if workload != PREFIX_SUMS:
            return np.linalg.norm(workload.apply(self.decoder(T)), axis=1)
        variances, carried = [], 0.0
        for length in self.lengths(T):
            within = self.mechanism.errors(length) ** 2
            variances.append(carried + within)
            # The noise of a finished block stays in every later prefix.
            carried += within[-1]
        return np.sqrt(np.concatenate(variances))

    def _start(self, like: Tensor, T: int) -> Buffers:
        self.lengths(T)
        return self.mechanism._start(like, max(self.lengths(T)))

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        lengths = self.lengths(T)
        ends = np.cumsum(lengths)
        block = int(np.searchsorted(ends, t, side="right"))
        within = t - int(ends[block] - lengths[block])
        if within == 0:
            kept = self.mechanism._start(z, lengths[block])
        return self.mechanism._next(z, kept, within, lengths[block], donate)

    def _split(self, lengths: list[int], times: int, apart: int) -> Sensitivity:
        """Best division of ``times`` participations among the blocks, by dynamic programming."""
        most = {length: min(times, -(-length // apart)) for length in lengths}
        gains = {length: self._gains(length, most[length], apart) for length in most}
        best = np.zeros(times + 1)
        for length in lengths:
            gain = gains[length]
            best = np.array(
                [
                    max(best[k - i] + gain[i] for i in range(min(k, most[length]) + 1))
                    for k in range(times + 1)
                ]
            )
        # One pattern of period ``apart`` through all blocks attains the sum if it is each block's worst.
        aligned = all(length % apart == 0 for length in lengths)
        full = times == sum(most[length] for length in lengths)
        is_exact = (
            aligned and full and all(self._worst_is_periodic(n, most[n], apart) for n in most)
        )
        return Sensitivity(math.sqrt(float(best[-1])), is_exact)

    def _gains(self, length: int, most: int, apart: int) -> list[float]:
        """Squared sensitivity of a block for 0, 1, ..., ``most`` participations."""
        values = (
            self.mechanism.sensitivity(length, MinSeparation(k, apart)) for k in range(1, most + 1)
        )
        return [0.0, *(float(value) ** 2 for value in values)]

    def _worst_is_periodic(self, length: int, most: int, apart: int) -> bool:
        periodic = self.mechanism.sensitivity(length, FixedEpochs(most, apart))
        bound = self.mechanism.sensitivity(length, MinSeparation(most, apart))
        return periodic.is_exact and math.isclose(periodic, bound, rel_tol=1e-12)
