"""What a run checks at every step: that the model sees the run's own batch, and keeps nothing of it."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from antiphon.errors import RunError, UnsupportedError
from antiphon.training.tape import Record
from antiphon.training.trees import tensors

__all__ = ["Guard"]

Marks = dict[str, tuple[Tensor, int]]
"""Tensors by name, with their versions."""


@final
class Guard:
    """Knows the batch that is out and the model's buffers as they were."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._start = {
            name: buffer.clone() for name, buffer in model.named_buffers(remove_duplicate=False)
        }
        self._drawn: list[tuple[Tensor, int]] = []
        self._marks: Marks = {}
        self._weights: Marks = {}

    def hand_out(self, data: Any) -> None:
        """From now on this is the batch."""
        self._drawn = _marked(tensors(data))
        self._marks = self._now()
        self._weights = self._parameters_now()

    def allow(self, others: Sequence[Tensor]) -> None:
        """Take these for the batch, too."""
        self._drawn.extend(_marked(others))

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
            # What was written to in place may hold a mixture of rows by now.
            whole = [tensor for tensor, version in self._drawn if tensor._version == version]
            if not any(_is_same(x, d) for x in leaves for d in whole):
                raise RunError(
                    "the model was fed with other data than the batch that this run drew"
                    f"{'' if len(whole) == len(self._drawn) else ' (it was changed in place)'}. Feed it "
                    "with what batches() returned; if you computed its input from that row by row, say "
                    "so: x = run.derived(x)."
                )
        self._check_parameters()
        self._check_buffers()

    def _check_parameters(self) -> None:
        changed = _changed(self._weights, self._parameters_now())
        if changed:
            raise UnsupportedError(
                f"the parameter {changed[0]!r} was changed while the model ran, beside the noisy steps: it "
                "may depend on the data now. Change parameters between two steps only, and without the "
                "data; give the model its weights from before again."
            )

    def _check_buffers(self) -> None:
        changed = _changed(self._marks, self._now())
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

    def _now(self) -> Marks:
        """The buffers, kept so that no other tensor takes their place in memory, with their versions."""
        return {name: (buffer, buffer._version) for name, buffer in self._model.named_buffers()}

    def _parameters_now(self) -> Marks:
        return {name: (p, p._version) for name, p in self._model.named_parameters()}


def _marked(drawn: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
    """With versions, which tell whether they were written to."""
    return [(tensor, tensor._version) for tensor in drawn]


def _changed(before: Marks, now: Marks) -> list[str]:
    """Names of what is new, gone, another tensor, or written to."""
    here = [
        name
        for name, (tensor, version) in now.items()
        if name not in before or before[name][0] is not tensor or before[name][1] != version
    ]
    return here + [name for name in before if name not in now]


def _is_same(x: Tensor, drawn: Tensor) -> bool:
    """Whether ``x`` is the drawn tensor, row by row: itself, a view, a copy or a cast of it."""
    if x is drawn:
        return True
    if x.numel() != drawn.numel():
        return False
    # A view of the same rows: neither one row for all (expand) nor another axis first (transpose).
    if x.ndim and drawn.ndim and x.data_ptr() == drawn.data_ptr() and x.dtype is drawn.dtype:
        (rows, *_), (step, *_) = x.shape, x.stride()
        if rows == len(drawn) and (step == drawn.stride(0) or rows == 1):
            return True
    flat, other = x.detach().reshape(-1), drawn.to(x.device, x.dtype).reshape(-1)
    return bool(((flat == other) | (other != other)).all())
