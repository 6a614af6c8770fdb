"""The loader that comes back: batches drawn by the run, in the form of the user's own loader."""

from collections.abc import Iterator, Mapping
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from antiphon.checks import whole
from antiphon.errors import RunError, UnsupportedError
from antiphon.integrations.opacus.batch import Batch
from antiphon.integrations.opacus.evaluations import Setting
from antiphon.training.gradients import Examples, Piece, python_seeds
from antiphon.training.run import Dataset, Run, stacked

__all__ = ["PrivateLoader", "Template"]


@final
class Template:
    """The form of a batch, and a batch of one row of zeros.

    Args:
        data: Of which one row is read.
    """

    def __init__(self, data: Dataset) -> None:
        with python_seeds(bytes(32), 0, 0):
            row = data.one(0)
        if any(isinstance(part, Tensor) and not part.ndim for part in tree_leaves(row)):
            raise UnsupportedError(
                "a row's collated batch holds a tensor without an axis for the batch. Make it a tensor "
                "with one entry in collate_fn."
            )
        self._kind, found = type(row), stacked([row], 1)
        self.zeros = Examples(*tree_map(_zeros, (found.args, found.kwargs)))

    def filled(self, examples: Examples) -> Any:
        """What the user's loader would hand out."""
        if issubclass(self._kind, Mapping):
            return dict(examples.kwargs)
        if issubclass(self._kind, tuple | list):
            return list(examples.args)
        return examples.args[0]


@final
class PrivateLoader:
    """The batches of a private run, one epoch at a time.

    Iterating it takes as many steps as an epoch has; iterate it once per epoch. ``len`` is that number.
    An empty batch is handed out as one row of zeros, whose gradient is not used.

    Args:
        run: The run whose batches these are.
        setting: What its batches have in common.
        template: The form of a batch.

    Attributes:
        dataset: What the loader reads.
        batch_size: Expected number of units in a batch.
        run: The run whose batches these are.
    """

    def __init__(self, run: Run, setting: Setting, template: Template) -> None:
        self.run, self.dataset, self.batch_size = run, run.dataset, run.plan.expected_batch
        self._steps = whole("steps", max(1, round(run.plan.n / run.plan.expected_batch)))
        self._setting, self._template = setting, template
        self._batch: Batch | None = None
        self._is_empty = False
        run.listener = self._add

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch."""
        self.run.check_steps_left()
        return self._batches()

    def at_hand(self) -> Batch | None:
        """The batch that was handed out and has had no step yet."""
        batch = self._batch
        return batch if batch is not None and batch.is_open else None

    def _batches(self) -> Iterator[Any]:
        for part, examples in self.run.parts(self._steps, show=False):
            self._close()
            self._is_empty = examples is None
            found = self._template.zeros if examples is None else examples
            ids = part.rows if examples is not None else torch.zeros(1, dtype=torch.int64)
            batch = self._batch = Batch(self._setting, part.step, ids)
            form = self._template.filled(found)
            yield tree_map(batch.handed_out, form)

    def _add(self) -> None:
        """The optimizer's step was called: clip the gradients of the part at hand and add them."""
        part, batch = self.run.pending(), self.at_hand()
        if batch is None:
            raise RunError("no batch is out: take a batch from the loader first.")
        self._check_gradients()
        factors = batch.factors()
        if not self._is_empty:
            self.run.add(Piece(factors, part.units))
        self._close()

    def _check_gradients(self) -> None:
        """Raise if a gradient reached a parameter by another way."""
        for name, parameter in self._setting.together.parameters.items():
            if parameter.grad is not None:
                raise RunError(
                    f"{name!r} has a gradient without clipping and noise: from before (call "
                    "optimizer.zero_grad()), or from a loss that reads parameters past the model that "
                    "make_private returned: weight decay by hand (use the optimizer's), the original "
                    "model, or a model in eval mode. Call the returned model in training mode."
                )

    def _close(self) -> None:
        if self._batch is not None:
            self._batch.close()


def _zeros(thing: Any) -> Any:
    return torch.zeros_like(thing) if isinstance(thing, Tensor) else thing
