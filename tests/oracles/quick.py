"""The clipped sum as a run computes it, without batches, noise and optimizer."""

import torch
from oracles.clipped import row_losses, scales_of
from torch import nn

from antiphon.training.buffer import Buffer
from antiphon.training.clipping import PerLayer, clipping_of
from antiphon.training.tape import Tape
from antiphon.training.units import Units


def quick_sum(
    model: nn.Module, args, kwargs, rows, rule="flat", clip_norm=1.0, users=None,
    loss=row_losses, scales=None,
):  # fmt: skip
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    tape, buffer = Tape(model, list(named.values())), Buffer(named)
    clipping = clipping_of(rule)
    if isinstance(clipping, PerLayer):
        clipping = clipping.for_layers(set(buffer.layer_of.values()), clip_norm)
    units = None
    if users is not None:
        numbers = sorted(set(users))
        units = Units(torch.tensor([numbers.index(u) for u in users]), len(numbers))
    try:
        tape.start()
        losses = loss(model(*args, **kwargs), scales_of(rows) if scales is None else scales)
        records = tape.used(losses, 1.0)
        with torch.no_grad():
            buffer.add(tape.factors(records, rows), clipping, clip_norm, units)
    finally:
        tape.detach()
    return {n: buffer.views[p].clone() for n, p in named.items()}
