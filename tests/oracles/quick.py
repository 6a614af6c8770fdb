"""The clipped sum as a run computes it, without batches, noise and optimizer."""

import torch
from oracles.clipped import row_losses, scales_of
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.clipped_sum import ClippedSum
from antiphon.training.gradients.clipping import PerLayer, clipping_of
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.units import Units


def quick_sum(
    model: nn.Module, args, kwargs, rows, rule="flat", clip_norm=1.0, users=None,
    loss=row_losses, scales=None,
):  # fmt: skip
    """The clipped sum by parameter name; tensors with ``rows`` rows belong to the examples."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    scales = scales_of(rows) if scales is None else scales
    places, common = [], []

    def split(leaf):
        is_row = isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == rows
        (places if is_row else common).append(leaf)
        return is_row

    is_row = tree_map(split, (args, kwargs))

    def one_loss(model, scale, *own):
        own, shared = iter(own), iter(common)
        a, k = tree_map(lambda mine: next(own) if mine else next(shared), is_row)
        return loss(model(*a, **k), scale).sum()

    content = tuple(tensor.unsqueeze(1) for tensor in (scales, *places))
    path, total = Batched(model, one_loss, named, bytes(32)), ClippedSum(named, rows)
    clipping = clipping_of(rule)
    if isinstance(clipping, PerLayer):
        clipping = clipping.for_layers(set(total.layer_of.values()), clip_norm)
    units = None
    if users is not None:
        numbers = sorted(set(users))
        units = Units(torch.tensor([numbers.index(u) for u in users]), len(numbers))
    for piece in path.pieces(0, torch.arange(rows), Examples.of(content), units):
        total.add(piece.factors, clipping, clip_norm, piece.units)
    value = total.value()
    parts = zip(named, total.parameters, total.slices, strict=True)
    return {n: value[part].view(p.shape).clone() for n, p, part in parts}
