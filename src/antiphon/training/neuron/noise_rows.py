"""Rows of C⁻¹z in blocks: millions of short rows, never all of them at once."""

from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.errors import StateError
from antiphon.mechanisms import (
    BLT,
    AbstractMechanism,
    Banded,
    BandedInverse,
    Independent,
    LambdaCGD,
    NoiseState,
    Tree,
)
from antiphon.numerics import Generator
from antiphon.training.neuron.neuron_kernel import buffered_rows, moving_rows, tree_rows
from antiphon.training.run import unit_of

__all__ = ["NoiseRows"]

_NUMBERS = 2**16  # of white noise that are drawn at once


@final
class NoiseRows:
    """The noise of a run at unit scale, as many rows at a time as are asked for.

    z_t is row t mod B of block t div B of the generator, where B is 65536 numbers over the length of a row:
    every row can be drawn again by itself. Independent, tree, banded, λ-CGD and BLT noise are correlated by
    compiled loops, that of other mechanisms by their `correlate`, row by row.

    Args:
        mechanism: C.
        generator: Source of z; as secret as the data.
        length: Numbers in a row.
        steps: Rows in all.

    Attributes:
        step: Of the next row.
        unit: Standard deviation of the first row.
    """

    def __init__(
        self, mechanism: AbstractMechanism, generator: Generator, length: int, steps: int
    ) -> None:
        self._mechanism, self._generator = mechanism, generator
        self._length, self._steps = length, steps
        self._per_block = max(1, _NUMBERS // length)
        self._block, self._drawn = -1, np.empty((0, length))
        self.step = 0
        self.unit = unit_of(mechanism, steps)
        self._weights, self._is_recursive = _weights(mechanism, steps)
        count = _kept(mechanism, steps, self._weights)
        self._state: NoiseState | None = None
        if count is None:
            self._state = mechanism.init(torch.empty(length, dtype=torch.float64), steps)
        self._buffers = np.zeros((count or 0, length))

    def draw(self, count: int) -> NDArray[np.float64]:
        """The next ``count`` rows; the array is the caller's own."""
        if self.step + count > self._steps:
            raise StateError(
                f"all {self._steps} steps of this noise are taken; more need a new plan, with more noise."
            )
        z = np.concatenate(self._white(count))
        self._correlate(z)
        self.step += count
        return z

    def state(self) -> dict[str, Tensor]:
        """What must be kept beside the step, by name; a copy."""
        if self._state is not None:
            kept = self._state.buffers[0]
            return {str(place): buffer.clone() for place, buffer in enumerate(kept)}
        return {"buffers": torch.from_numpy(self._buffers.copy())} if len(self._buffers) else {}

    def restore(self, step: int, kept: Mapping[str, Tensor]) -> None:
        """Go on before ``step`` with what `state` returned there."""
        is_row = all(b.shape[-1:] == (self._length,) for b in kept.values())
        expected = {"buffers"} if len(self._buffers) else set()
        has_names = self._state is not None or set(kept) == expected
        if not (0 <= step <= self._steps and is_row and has_names):
            raise StateError(
                f"the noise state does not fit rows of {self._length} numbers and {self._steps} steps: "
                "it is of another run."
            )
        self.step = step
        if self._state is not None:
            before = self._state
            buffers = tuple(kept[str(place)].clone() for place in range(len(kept)))
            self._state = NoiseState(before.mechanism, before.T, step, before.shapes, (buffers,))
        elif expected:
            self._buffers = kept["buffers"].numpy().copy()

    def _correlate(self, z: NDArray[np.float64]) -> None:
        """White rows become rows of C⁻¹z, in place."""
        mechanism = self._mechanism
        if self._state is not None:
            for k, row in enumerate(z):
                noise, self._state = mechanism.correlate(torch.from_numpy(row), self._state)
                z[k] = noise.numpy()
        elif isinstance(mechanism, Tree):
            tree_rows(z, self.step, self._buffers)
        elif isinstance(mechanism, BLT):
            buffered_rows(z, self._buffers, np.array(mechanism.scales), np.array(mechanism.decays))
        elif len(self._weights) == 1:
            z *= self._weights[0]
        else:
            moving_rows(z, self.step, self._buffers, self._weights, self._is_recursive)

    def _white(self, count: int) -> list[NDArray[np.float64]]:
        """Rows z_step, z_step+1, …, in pieces of one block each."""
        pieces, step, stop = [], self.step, self.step + count
        while step < stop:
            block, place = divmod(step, self._per_block)
            if block != self._block:
                rows = min(self._per_block, self._steps - block * self._per_block)
                like = torch.empty(rows, self._length, dtype=torch.float64)
                self._block, self._drawn = block, self._generator.normal(like, block).numpy()
            piece = self._drawn[place : place + stop - step]
            pieces.append(piece)
            step += len(piece)
        return pieces


def _weights(mechanism: AbstractMechanism, steps: int) -> tuple[NDArray[np.float64], bool]:
    """Weights of a moving sum, newest first, and whether it is one of outputs; none if it is none."""
    match mechanism:
        case Independent():
            return np.ones(1), False
        case LambdaCGD(lam):
            return np.array((1.0, -lam) if lam else (1.0,))[:steps], False
        case BandedInverse(beta):
            return np.array(beta[:steps], dtype=np.float64), False
        case Banded(coef):
            first, *rest = coef[:steps]
            return np.array([1 / first, *(-c / first for c in rest)]), True
    return np.empty(0), False


def _kept(mechanism: AbstractMechanism, steps: int, weights: NDArray[np.float64]) -> int | None:
    """Rows to keep, or None if only the mechanism itself knows."""
    if isinstance(mechanism, Tree):
        return int(steps).bit_length()
    if isinstance(mechanism, BLT):
        return len(mechanism.scales)
    return len(weights) - 1 if len(weights) else None
