"""The middle of every step: clipped gradients are added up, noise is added once, gradients come out."""

from hashlib import blake2b
from typing import final

import torch
from torch import Tensor

from antiphon.errors import PlanError, StateError
from antiphon.numerics import add_noise
from antiphon.plans import Block, Plan
from antiphon.training.gradients import (
    AbstractClipping,
    Adaptive,
    ClippedSum,
    PerLayer,
    Piece,
    exactly,
)
from antiphon.training.run.noise import Noise
from antiphon.training.run.team import Team

__all__ = ["VOTE", "VOTES", "PrivateSum"]

VOTES = "votes on the clip norm"
VOTE = 0.5  # what one unit adds to them, or takes off


@final
class PrivateSum:
    """Σ clipped gradients + noise scale × (C⁻¹z)_t, divided by the expected batch.

    The divisor is the plan's, whatever the batch that was drawn; a step without any unit is noise alone.

    Args:
        plan: What runs.
        clipping: How gradients are shortened.
        noise: Of the process that draws it; None in all others.
        team: The processes that share a batch.
        total: Where clipped gradients are added up.

    Attributes:
        total: The sum so far.
        clip_norm: Of the next step; it changes with adaptive clipping only.
    """

    def __init__(
        self,
        plan: Plan,
        clipping: AbstractClipping,
        noise: Noise | None,
        team: Team,
        total: ClippedSum,
    ) -> None:
        self.total, self.clip_norm = total, plan.clip_norm
        self.noise, self._plan, self._team = noise, plan, team
        self._row: Tensor | None = None  # of the last step: memory for the next
        self._clipping = _resolved(clipping, plan, set(total.layer_of.values()))

    def add(self, piece: Piece) -> None:
        """Clip the gradients of a part of the batch and add them up."""
        # The public divisor is within the sum from the start: one pass less over all gradients.
        share = 1 / self._plan.expected_batch
        self.total.add(piece.factors, self._clipping, self.clip_norm, piece.units, share)

    def digest(self) -> int:
        """64 bits that belong to the sum over all processes, before noise, and to the noise's scale."""
        # The scale is part of it: g + sz and g + s'z together show z, and with it g.
        scales = repr(self._scales()).encode()
        own = self.total.digest().to_bytes(8, "little")
        mark = blake2b(scales + own, digest_size=8, person=b"antiphon step").digest()
        total = torch.tensor(int.from_bytes(mark, "little", signed=True), device=self.total.device)
        self._team.add_up(total)  # modulo 2^64
        return int(total) % 2**64

    @torch.no_grad()
    def release(self, step: int) -> None:
        """Add the noise of ``step`` and make the result the parameters' gradients: it may be seen then.

        Guarantee:
            Each number is a function of a point of the public grid of `antiphon.numerics`: the sum over all
            processes and its noise are added in float64 and rounded once.
        """
        if self.noise is not None and self.noise.step != step:
            raise StateError(
                f"the noise of step {self.noise.step} comes next, not that of step {step}: the run was "
                "interrupted within a step. Resume it from its checkpoint."
            )
        sums = self._team.to_first(self.total.value())
        released = torch.empty(self.total.size, dtype=self.total.dtype, device=self.total.device)
        released[-1] = 0  # without votes nothing is added there
        if self.noise is not None:
            with exactly():
                self._row = self.noise.draw(self._row)
            for part, scale in self._scales():
                share = scale / self._plan.expected_batch
                deviation = share * self.noise.unit
                add_noise(sums[part], self._row[part], share, released[part], deviation=deviation)
        elif self._team.is_first:
            released.copy_(sums)
        self._team.from_first(released)
        if isinstance(self._clipping, Adaptive):
            self.clip_norm = self._clipping.next_norm(self.clip_norm, float(released[-1]))
        self.total.deliver(released)

    def _scales(self) -> list[tuple[slice, float]]:
        """Parts of the flat sum, with the standard deviation of their white noise."""
        plan = self._plan
        if isinstance(self._clipping, Adaptive):
            gradient, votes = plan.blocks
            # The stream g_t / G_t has clip norm 1: in units of g_t its noise grows with G_t.
            return [
                (slice(0, -1), gradient.noise_multiplier * self.clip_norm),
                (slice(-1, None), votes.noise_multiplier * votes.bound),
            ]
        if plan.blocks:
            return [
                (part, block.noise_multiplier * block.bound)
                for part, block in zip(self.total.slices, self._blocks(), strict=True)
            ]
        return [(slice(0, -1), plan.noise_scale)]

    def _blocks(self) -> list[Block]:
        by_name = {block.name: block for block in self._plan.blocks}
        return [by_name[self.total.layer_of[p]] for p in self.total.parameters]


def _resolved(clipping: AbstractClipping, plan: Plan, layers: set[str]) -> AbstractClipping:
    """The clipping with every bound that the plan and the layers fix."""
    if isinstance(clipping, Adaptive):
        if len(plan.blocks) != 2 or plan.blocks[1].name != VOTES or plan.blocks[1].bound != VOTE:
            raise PlanError(
                f"adaptive clipping needs a plan that pays for its votes: two blocks, of which the second "
                f"is {VOTES!r} with bound {VOTE}."
            )
        return clipping
    if plan.blocks:
        bounds = {block.name: block.bound for block in plan.blocks}
        if set(bounds) != layers:
            raise PlanError(
                f"the plan's blocks must be the trained layers {sorted(layers)}; got {sorted(bounds)}."
            )
        return PerLayer(bounds)
    return (
        clipping.for_layers(layers, plan.clip_norm) if isinstance(clipping, PerLayer) else clipping
    )
