"""The noise of a run: a generator composed with a mechanism, whose state can be kept and restored."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from antiphon.errors import StateError
from antiphon.mechanisms import AbstractMechanism, NoiseState
from antiphon.numerics import Generator
from antiphon.training.run.ahead import Ahead

__all__ = ["Noise", "unit_of"]

_AHEAD = "ahead"  # the name, in a kept state, of a row that was drawn ahead
# Numbers in a row from which on it is drawn ahead. On an idle machine the caller waits less from 20,000 on.
# Where all cores are busy it waits for its thread's turn, which costs a shorter row more than is gained.
_LONG = 100_000


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

    While the caller computes the gradients of a step, a thread draws the row of the next one. Short rows,
    and rows on other devices than the CPU, are drawn when they are asked for.

    Args:
        mechanism: C.
        generator: Source of z; as secret as the data.
        like: A tensor of the gradient's shape and device.
        steps: Number of steps of the plan.

    Attributes:
        unit: Standard deviation of the first row, |1 / C[0, 0]|: the part of z_t in row t, unless the
            diagonal of C changes. It sets the grid of a release.

    Guarantee:
        Rows are equal, bit for bit, whether they were drawn ahead or not, before and after `restore`. No
        row beyond the last step is drawn.
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
        self._row: Tensor | None = None  # of the step before that of the state: not handed out yet
        self._ahead = Ahead[tuple[Tensor, NoiseState]]()
        # Other devices have streams of work of their own, which a second thread would have to follow.
        self._is_ahead = like.device.type == "cpu" and like.numel() >= _LONG

    @property
    def step(self) -> int:
        """The step whose noise comes next."""
        return self._state.step - (self._row is not None)

    def draw(self, memory: Tensor | None = None) -> Tensor:
        """The next row of C⁻¹z, at unit scale.

        Args:
            memory: A row of an earlier step that is no longer read. It is given up: new numbers go there,
                of a result or of the mechanism's state, which spares the time to allocate as much.
        """
        self._collect()
        row, self._row = self._row, None
        if row is None:
            row, self._state = self._drawn(memory)()
            memory = None
        if self._is_ahead and self._state.step < self._state.T:
            _compile()
            self._ahead.begin(self._drawn(memory))
        if self._ahead.is_begun:  # the buffers are the thread's until the next draw
            self._state = replace(self._state, buffers=((),))
        return row

    def state(self) -> dict[str, Tensor]:
        """What the mechanism keeps, by name, and the row drawn ahead; the next `draw` overwrites it."""
        self._collect()
        kept = {str(place): buffer for place, buffer in enumerate(self._state.buffers[0])}
        return kept if self._row is None else kept | {_AHEAD: self._row}

    def restore(self, step: int, kept: Mapping[str, Tensor]) -> None:
        """Go on before ``step`` with what `state` returned there, of which a copy is taken."""
        before, like, is_ahead = self._state, self._like, _AHEAD in kept
        names = [str(place) for place in range(len(kept) - is_ahead)]
        if (
            not 0 <= step <= before.T - is_ahead
            or {*names, *([_AHEAD] * is_ahead)} != set(kept)
            or any((b.shape, b.dtype) != (like.shape, torch.float64) for b in kept.values())
        ):
            raise StateError(
                f"the noise state does not fit a gradient of {like.numel() - 1} numbers and a plan of "
                f"{before.T} steps, with noise in float64: it is of another model, plan or version."
            )
        copies = {name: buffer.to(like.device, copy=True) for name, buffer in kept.items()}
        self._ahead.drop()
        self._row = copies.pop(_AHEAD, None)
        buffers = tuple(copies[name] for name in names)
        next_step = step + is_ahead
        self._state = NoiseState(before.mechanism, before.T, next_step, before.shapes, (buffers,))

    def close(self) -> None:
        """End the thread. What it has drawn stays part of the state; later rows are drawn in place."""
        self._ahead.close()

    def _collect(self) -> None:
        """Wait for the row that was begun ahead, if any."""
        if self._ahead.is_begun:
            self._row, self._state = self._ahead.take()

    def _drawn(self, memory: Tensor | None) -> partial[tuple[Tensor, NoiseState]]:
        """The work of the next step. It does not refer to this object, which may be collected."""
        return partial(_row, self._mechanism, self._generator, self._state, self._like, memory)


def _row(
    mechanism: AbstractMechanism,
    generator: Generator,
    state: NoiseState,
    like: Tensor,
    memory: Tensor | None,
) -> tuple[Tensor, NoiseState]:
    """The row of the state's step, and the state after it; state and memory are given up."""
    z = [torch.empty_like(like) if memory is None else memory]
    generator.normal_(z, state.step)
    (row,), after = mechanism.correlate(z, state, donate=True)
    return row, after


def _compile() -> None:
    """Compile what a draw may need, in the calling thread."""
    from antiphon.numerics.normals import fill_normals, fill_tails  # they load a compiler

    fill_normals()
    fill_tails()
