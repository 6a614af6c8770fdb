"""The clipped sum of a step: one flat tensor, of which every parameter's gradient is a part."""

import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import final

import torch
from torch import Tensor, nn

from antiphon.errors import UnsupportedError
from antiphon.training.clipping import AbstractClipping, Adaptive
from antiphon.training.factors import AbstractFactor, exactly
from antiphon.training.units import Units

__all__ = ["Buffer"]

_VANISHING = 1e-36  # what must be shortened more than this counts as infinite: float32 ends there


@final
class Buffer:
    """Adds up clipped gradients over the parts of a batch.

    Attributes:
        names: Of the parameters, as in the model.
        parameters: In the same order.
        slices: The place of each in ``flat``.
        flat: Their gradients one after the other, then one number for the votes of adaptive clipping.
        votes: That last number.
    """

    def __init__(self, named: Mapping[str, nn.Parameter]) -> None:
        self.names, self.parameters = tuple(named), tuple(named.values())
        sizes = [parameter.numel() for parameter in self.parameters]
        self.flat = torch.zeros(sum(sizes) + 1, dtype=_dtype(named), device=_device(named))
        parts = torch.split(self.flat[:-1], sizes)
        self.views = {p: part.view(p.shape) for p, part in zip(self.parameters, parts, strict=True)}
        ends = torch.cumsum(torch.tensor(sizes), 0).tolist()
        self.slices = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.votes = self.flat[-1:]
        self.layer_of = {p: n.rpartition(".")[0] for n, p in named.items()}

    @exactly()
    def add(
        self,
        factors: Mapping[nn.Parameter, AbstractFactor],
        clipping: AbstractClipping,
        clip_norm: float,
        units: Units | None = None,
        scale: float = 1.0,
    ) -> None:
        """Clip every unit's gradient and add them up, times ``scale``.

        Guarantee:
            The sum changes by at most ``scale`` × ``clip_norm`` in norm (and the votes by ``scale`` / 2)
            when one unit is added or removed. A unit whose gradient is not finite counts as zero, its vote
            too.
        """
        if units is not None:
            factors = {p: factor.grouped(units) for p, factor in factors.items()}
        squared = self._squared(factors)
        # A sum is finite if and only if all of its terms are, since none is negative.
        if not math.isfinite(float(torch.stack(list(squared.values())).sum())):
            alive = torch.isfinite(torch.stack(list(squared.values())).sum(0))
            if not bool(alive.any()):
                return
            factors = {p: factor.keep(alive) for p, factor in factors.items()}
            squared = self._squared(factors)
        weights = clipping.weights(squared, clip_norm)
        # Layers mostly share their weights.
        kept = {id(w): torch.where(w < _VANISHING, 0.0, w * scale) for w in weights.values()}
        weights = {layer: kept[id(weight)] for layer, weight in weights.items()}
        for parameter, factor in factors.items():
            factor.add_to(self.views[parameter], weights[self.layer_of[parameter]])
        if isinstance(clipping, Adaptive):
            votes = clipping.votes(squared, clip_norm).sum() * scale
            self.votes += votes.to(self.flat.dtype)

    def deliver(self, released: Tensor) -> None:
        """Make the parts of a tensor like ``flat`` the gradients of their parameters."""
        for parameter, part in zip(self.parameters, self.slices, strict=True):
            parameter.grad = released[part].view(parameter.shape).to(parameter.dtype)

    def digest(self) -> int:
        """64 bits of a hash of every bit of the sum."""
        data = memoryview(self.flat.cpu().numpy())  # type: ignore[arg-type]
        return int.from_bytes(
            blake2b(data, digest_size=8, person=b"antiphon sum").digest(), "little"
        )

    def _squared(self, factors: Mapping[nn.Parameter, AbstractFactor]) -> dict[str, Tensor]:
        """Squared norms by layer and unit."""
        squared: dict[str, Tensor] = {}
        for parameter, factor in factors.items():
            layer, square = self.layer_of[parameter], factor.squared_norms()
            squared[layer] = squared[layer] + square if layer in squared else square
        return squared


def _dtype(named: Mapping[str, nn.Parameter]) -> torch.dtype:
    double = any(p.dtype is torch.float64 for p in named.values())
    return torch.float64 if double else torch.float32


def _device(named: Mapping[str, nn.Parameter]) -> torch.device:
    devices = {p.device for p in named.values()}
    if len(devices) != 1:
        raise UnsupportedError(
            f"the parameters lie on several devices ({', '.join(sorted(map(str, devices)))}); put the "
            "model on one of them."
        )
    return devices.pop()
