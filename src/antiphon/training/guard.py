"""What a run checks at every step: that the model sees the run's own batch, and keeps nothing of it."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from antiphon.errors import RunError, UnsupportedError
from antiphon.training.tape import Record
from antiphon.training.trees import tensors

__all__ = ["Guard"]


@final
class Guard:
    """Knows the batch that is out and the model's buffers as they were."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._start = {name: buffer.clone() for name, buffer in model.named_buffers()}
        self._drawn: list[Tensor] = []
        self._marks: dict[str, tuple[int, int]] = {}

    def hand_out(self, data: Any) -> None:
        """From now on this is the batch."""
        self._drawn = tensors(data)
        self._marks = self._now()

    def allow(self, others: Sequence[Tensor]) -> None:
        """Take these for the batch, too."""
        self._drawn.extend(others)

    def check(self, records: Sequence[Record]) -> None:
        """Refuse a loss that does not come from the batch through the model, and changed buffers."""
        if not records:
            raise RunError(
                "the loss does not depend on the model's parameters through this batch: compute it from "
                "model(x) with the x that batches() returned."
            )
        for call in {id(record.call): record.call for record in records}.values():
            if call is None:
                alone = next(record.name for record in records if record.call is None)
                raise RunError(
                    f"the layer {alone!r} was called by itself; call the whole model, so that its input "
                    "can be recognised as this run's batch."
                )
            leaves = tensors((call.args, call.kwargs))
            if self._drawn and not any(_is_same(x, d) for x in leaves for d in self._drawn):
                raise RunError(
                    "the model was fed with other data than the batch that this run drew. Feed it with "
                    "what batches() returned; if you computed its input from that row by row, say so: "
                    "x = run.derived(x)."
                )
        self._check_buffers()

    def _check_buffers(self) -> None:
        now = self._now()
        changed = [name for name, mark in now.items() if self._marks.get(name) != mark]
        if not changed:
            return
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                if name in self._start and buffer.shape == self._start[name].shape:
                    buffer.copy_(self._start[name])
        raise UnsupportedError(
            f"the model changed its buffer {changed[0]!r} while it ran: buffers get no noise, so they must "
            "not depend on the data. Its buffers were set back to their values at the start."
        )

    def _now(self) -> dict[str, tuple[int, int]]:
        return {name: (id(b), b._version) for name, b in self._model.named_buffers()}


def _is_same(x: Tensor, drawn: Tensor) -> bool:
    """Whether ``x`` is the drawn tensor: itself, a view, a copy or a cast of it."""
    if x is drawn:
        return True
    if x.numel() != drawn.numel():
        return False
    if x.untyped_storage().data_ptr() == drawn.untyped_storage().data_ptr():
        return True
    flat, other = x.detach().reshape(-1), drawn.to(x.device, x.dtype).reshape(-1)
    return bool(((flat == other) | (other != other)).all())
