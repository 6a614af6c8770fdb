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
        self._start = {
            name: buffer.clone() for name, buffer in model.named_buffers(remove_duplicate=False)
        }
        self._drawn: list[Tensor] = []
        self._marks: dict[str, tuple[Tensor, int]] = {}

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
        changed = [
            name
            for name, (buffer, version) in self._now().items()
            if name not in self._marks
            or self._marks[name][0] is not buffer
            or self._marks[name][1] != version
        ]
        if not changed:
            return
        self._set_back()
        raise UnsupportedError(
            f"the model changed its buffer {changed[0]!r} while it ran: buffers get no noise, so they must "
            "not depend on the data. Its buffers were set back to their values at the start."
        )

    @torch.no_grad()
    def _set_back(self) -> None:
        """Every buffer to its value at the start; those that were none are none again."""
        for prefix, module in self._model.named_modules():
            for name, buffer in module._buffers.items():
                start = self._start.get(f"{prefix}.{name}" if prefix else name)
                if start is None:
                    module._buffers[name] = None
                elif buffer is not None and buffer.shape == start.shape:
                    buffer.copy_(start)
                else:
                    module._buffers[name] = start.clone()

    def _now(self) -> dict[str, tuple[Tensor, int]]:
        """The buffers, kept so that no other tensor takes their place in memory, with their versions."""
        return {name: (buffer, buffer._version) for name, buffer in self._model.named_buffers()}


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
