"""One example after another: the loss as it is, by plain autograd."""

from collections.abc import Iterator, Mapping
from typing import final

import torch
from torch import Tensor, nn

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.abstract_factor import AbstractFactor
from antiphon.training.gradients.context import evaluation
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.factors import Dense
from antiphon.training.gradients.global_generators import python_seeds
from antiphon.training.gradients.own_generators import seed_generators
from antiphon.training.gradients.piece import AbstractPath, Loss, Piece, as_scalar, device_of, kept
from antiphon.training.gradients.record_draws import RecordDraws
from antiphon.training.gradients.state import State
from antiphon.training.gradients.units import Units

__all__ = ["Alone"]

_BYTES = 1 << 28  # gradients of single examples that are kept at a time


@final
class Alone(AbstractPath):
    """Gradients of single examples by one evaluation of the loss for each.

    Args:
        model: The model, the first argument of the loss.
        loss: From the model and one example, as a batch of one, to a number.
        parameters: Those that are trained.
        key: Secret, from which random draws within the loss come.
        state: Of model and loss, if it is known.

    Guarantee:
        The gradient of an example is a function of the parameters, the key, the step, the example's id and
        the example alone, if the loss reads nothing else of the data: around every example python's state
        of model and loss is put back, all tensors bit by bit, and all generators are set.
    """

    text = "the loss was evaluated for one example after another"

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        parameters: Mapping[str, nn.Parameter],
        key: bytes,
        state: State | None = None,
    ) -> None:
        self._model, self._loss, self._key = model, loss, key
        self._parameters = list(parameters.values())
        self._state = state or State(model, loss)

    def pieces(
        self, step: int, ids: Tensor, examples: Examples, units: Units | None = None
    ) -> Iterator[Piece]:
        """Pieces of whole units, as large as memory allows."""
        size = sum(p.numel() * p.element_size() for p in self._parameters)
        for start, stop, own in _stretches(len(ids), max(1, _BYTES // size), units):
            found = [
                self.gradients(step, int(ids[i]), examples, i, i > 0) for i in range(start, stop)
            ]
            rows = zip(*found, strict=True)
            factors: dict[nn.Parameter, AbstractFactor] = {
                p: Dense(torch.stack(row)) for p, row in zip(self._parameters, rows, strict=True)
            }
            yield Piece(factors, own)

    def gradients(
        self, step: int, record: int, examples: Examples, place: int, within: bool = False
    ) -> list[Tensor]:
        """The gradient of one example, by parameter; zeros where the loss does not depend on one.

        Args:
            step: Number of the private step.
            record: Id of the example.
            examples: A batch.
            place: Which of them.
            within: Whether the last one was of the same batch.
        """
        args, kwargs = examples.one(place, device_of(self._parameters))
        # Seeds come last: what is done before the loss may draw (type checkers do).
        with (
            evaluation(),
            kept(self._state, exact=True, within=within),
            python_seeds(self._key, step, record),
        ):
            seed_generators(self._state.generators, self._key, step, record)
            with RecordDraws(self._key, step, record):
                loss = as_scalar(self._loss(self._model, *args, **kwargs))
            if not loss.requires_grad:
                return [torch.zeros_like(p) for p in self._parameters]
            try:  # here, since the backward pass may change Python's state, too
                found = torch.autograd.grad(loss, self._parameters, allow_unused=True)
            except RuntimeError as error:
                raise UnsupportedError(f"the gradient of an example failed: {error}") from error
        return [
            torch.zeros_like(p) if g is None else g.detach()
            for p, g in zip(self._parameters, found, strict=True)
        ]


def _stretches(
    rows: int, most: int, units: Units | None
) -> Iterator[tuple[int, int, Units | None]]:
    """Neighbouring rows that are kept together, with whole units in each."""
    if units is None:
        for start in range(0, rows, most):
            yield start, min(rows, start + most), None
        return
    start, first, stop = 0, 0, 0
    sizes = units.sizes.tolist()
    for unit, size in enumerate(sizes, start=1):
        stop += size
        if unit == len(sizes) or stop - start + sizes[unit] > most:
            yield start, stop, Units(units.of_row[start:stop] - first, unit - first)
            start, first = stop, unit
