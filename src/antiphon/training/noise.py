"""The noise of a run: a generator composed with a mechanism, whose state can be kept and restored."""

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from antiphon.errors import StateError
from antiphon.mechanisms import AbstractMechanism, NoiseState
from antiphon.randomness import Generator

__all__ = ["Noise", "unit_of"]


def unit_of(mechanism: AbstractMechanism, steps: int) -> float:
    """Standard deviation of the first row of C⁻¹z, |1 / C[0, 0]|.

    Example:
        >>> from antiphon.mechanisms import Banded
        >>> unit_of(Banded((4.0, 2.0)), steps=10)
        0.25
    """
    one = torch.ones((), dtype=torch.float64)
    return abs(float(mechanism.correlate(one, mechanism.init(one, steps))[0]))


@final
class Noise:
    """Rows of C⁻¹z for a flat gradient, one step after another, in float64.

    Args:
        mechanism: C.
        generator: Source of z; as secret as the data.
        like: A tensor of the gradient's shape and device.
        steps: Number of steps of the plan.

    Attributes:
        unit: Standard deviation of the first row, |1 / C[0, 0]|: the part of z_t in row t, unless the
            diagonal of C changes. It sets the grid of a release.
    """

    def __init__(
        self, mechanism: AbstractMechanism, generator: Generator, like: Tensor, steps: int
    ) -> None:
        self._mechanism, self._generator = mechanism, generator
        self._like = torch.empty_like(
            like, dtype=torch.float64
        )  # memory only once it is written to
        self._state = mechanism.init([self._like], steps)
        self.unit = unit_of(mechanism, steps)

    @property
    def step(self) -> int:
        """The step whose noise comes next."""
        return self._state.step

    def draw(self, memory: Tensor | None = None) -> Tensor:
        """The next row of C⁻¹z, at unit scale.

        Args:
            memory: A row of an earlier step that is no longer read. It is given up: new numbers go there,
                of the result or of the mechanism's state, which spares the time to allocate as much.
        """
        z = [torch.empty_like(self._like) if memory is None else memory]
        self._generator.normal_(z, self._state.step)
        (row,), self._state = self._mechanism.correlate(z, self._state, donate=True)
        return row

    def state(self) -> dict[str, Tensor]:
        """What the mechanism keeps, by name; the next `draw` overwrites it."""
        kept = self._state.buffers[0]
        return {str(place): buffer for place, buffer in enumerate(kept)}

    def restore(self, step: int, kept: Mapping[str, Tensor]) -> None:
        """Go on before ``step`` with what `state` returned there, of which a copy is taken."""
        before, like = self._state, self._like
        names = [str(place) for place in range(len(kept))]
        if (
            not 0 <= step <= before.T
            or set(names) != set(kept)
            or any((b.shape, b.dtype) != (like.shape, torch.float64) for b in kept.values())
        ):
            raise StateError(
                f"the noise state does not fit a gradient of {like.numel() - 1} numbers and a plan of "
                f"{before.T} steps, with noise in float64: it is of another model, plan or version."
            )
        buffers = tuple(kept[name].to(like.device, copy=True) for name in names)
        self._state = NoiseState(before.mechanism, before.T, step, before.shapes, (buffers,))
