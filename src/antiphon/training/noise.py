"""The noise of a run: a generator composed with a mechanism, whose state can be kept and restored."""

from collections.abc import Mapping
from typing import final

from torch import Tensor

from antiphon.errors import StateError
from antiphon.mechanisms import AbstractMechanism, NoiseState
from antiphon.randomness import Generator

__all__ = ["Noise"]


@final
class Noise:
    """Rows of C⁻¹z for a flat gradient, one step after another.

    Args:
        mechanism: C.
        generator: Source of z; as secret as the data.
        like: A tensor of the gradient's shape, type and device.
        steps: Number of steps of the plan.
    """

    def __init__(
        self, mechanism: AbstractMechanism, generator: Generator, like: Tensor, steps: int
    ) -> None:
        self._mechanism, self._generator, self._like = mechanism, generator, like
        self._state = mechanism.init([like], steps)

    @property
    def step(self) -> int:
        """The step whose noise comes next."""
        return self._state.step

    def draw(self) -> Tensor:
        """The next row of C⁻¹z, at unit scale."""
        z = self._generator.normal([self._like], self._state.step)
        (row,), self._state = self._mechanism.correlate(z, self._state, donate=True)
        return row

    def state(self) -> dict[str, Tensor]:
        """What the mechanism keeps, by name."""
        kept = self._state.buffers[0]
        return {str(place): buffer for place, buffer in enumerate(kept)}

    def restore(self, step: int, kept: Mapping[str, Tensor]) -> None:
        """Go on before ``step`` with what `state` returned there."""
        buffers = tuple(kept[str(place)].to(self._like.device) for place in range(len(kept)))
        before = self._state
        if step < 0 or step > before.T or any(b.shape != self._like.shape for b in buffers):
            raise StateError("the noise state does not fit this model and plan.")
        self._state = NoiseState(before.mechanism, before.T, step, before.shapes, (buffers,))
