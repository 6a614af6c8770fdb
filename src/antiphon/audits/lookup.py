"""A model whose gradients are chosen row by row.

The loss of a row is s·Σ w_layer[k] over its layers: its gradient is s in place k of every layer, whatever
the weights. It is longer than the clip norm by `LONG`, in every layer by itself, so that clipping is
attacked, too; and there are two layers at least, so that clipping each by the whole clip norm shows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from antiphon.errors import UnsupportedError
from antiphon.plans import Plan
from antiphon.training.run import VOTES

__all__ = ["LONG", "Layer", "Lookup", "has_votes", "layers_of"]

LONG = 10.0  # norm of a canary's gradient before clipping, in clip norms


@final
@dataclass(frozen=True)
class Layer:
    """A part of the model, and what a canary may add to it.

    Attributes:
        name: As in the plan's blocks.
        bound: What a canary adds, after clipping.
        noise: Standard deviation of the white noise per unit of ``bound``.
    """

    name: str
    bound: float
    noise: float


def has_votes(plan: Plan) -> bool:
    """Whether the clip norm follows noisy votes."""
    return any(block.name == VOTES for block in plan.blocks)


def layers_of(plan: Plan) -> tuple[Layer, ...]:
    """The plan's blocks; or two layers, between which a canary's gradient is split evenly."""
    if plan.blocks and not has_votes(plan):
        return tuple(Layer(b.name, b.bound, b.noise_multiplier) for b in plan.blocks)
    noise = plan.blocks[0].noise_multiplier if plan.blocks else plan.known_noise()
    half = math.sqrt(0.5)
    return tuple(Layer(name, half * plan.clip_norm, noise / half) for name in ("first", "second"))


@final
class Lookup(nn.Module):
    """A model whose output for a row is the weights in the row's place, one in every layer.

    Args:
        places: Number of places.
        layers: Names of the layers.
    """

    def __init__(self, places: int, layers: Sequence[str]) -> None:
        super().__init__()
        tables = {}
        for name in sorted(layers, key=lambda name: name.count(".")):  # parents first
            *path, last = name.split(".")
            parent: nn.Module = self
            for part in path:
                if part not in dict(parent.named_children()):
                    _add(parent, part, nn.Module(), name)
                parent = getattr(parent, part)
            tables[name] = nn.Embedding(places, 1)
            _add(parent, last, tables[name], name)
        self._tables = [tables[name] for name in layers]

    def forward(self, place: Tensor) -> Tensor:
        """One number for each row and layer."""
        return torch.cat([table(place) for table in self._tables], 1)


def _add(parent: nn.Module, part: str, child: nn.Module, name: str) -> None:
    try:
        parent.add_module(part, child)
    except KeyError as error:
        raise UnsupportedError(
            f"the plan has a block named {name!r}, after which no layer can be called: it cannot be "
            "audited. Name blocks as the layers are in model.named_modules()."
        ) from error
