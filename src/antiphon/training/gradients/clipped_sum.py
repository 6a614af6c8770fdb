"""The clipped sum of a step: one flat tensor, of which every parameter's gradient is a part."""

import math
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import final

import torch
from torch import Tensor, nn

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.abstract_factor import AbstractFactor
from antiphon.training.gradients.clipping import AbstractClipping, Adaptive
from antiphon.training.gradients.factors import exactly
from antiphon.training.gradients.units import Units

__all__ = ["ClippedSum"]

_VANISHING = 1e-36  # what must be shortened more than this counts as infinite: float32 ends there
# Rounding of a sum of B gradients in products of K: at most B * K * 2^-24 clip norms of one term each.
_ROUNDING = 1e-3 * 2**24
_FEWEST = 16  # gradients in a product of float32; rather than fewer, products are in float64
_DOUBLE_ROWS = 1024  # gradients that are turned into float64 at a time


@final
class ClippedSum:
    """Adds up the clipped gradients of a step.

    Args:
        named: The trained parameters.
        expected: Gradients in a step, a public number: it sets how many are added up in one product.

    Attributes:
        names: Of the parameters, as in the model.
        parameters: In the same order.
        slices: The place of each in the sum.
        size: Numbers in the sum: all gradients one after the other, then the votes of adaptive clipping.
        layer_of: The layer of every parameter.
        dtype: Of what is released.
        device: Where the parameters are.
        rounding: Bound on what rounding moves the sum by, in clip norms, for one term in each number.

    Guarantee:
        Gradients of up to 128 examples are added up in one product, of more in products of K each, whose
        sums are added in float64. Let every example have one term for each number (a layer that is called
        once). Then rounding moves the sum of B gradients by at most B * K * 2^-24 clip norms, which is
        1/1000; for B above 1024 the products themselves are in float64. With T terms (the places of a
        sequence, whose terms may be larger than their sum) the bound is T times as large, times the ratio
        of the terms' norms to the sum's, which is below 64 or the product is in float64.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], expected: float = 1.0) -> None:
        self.names, self.parameters = tuple(named), tuple(named.values())
        self._sizes = [parameter.numel() for parameter in self.parameters]
        self.size = sum(self._sizes) + 1
        self.device, self.dtype = _device(named), _dtype(named)
        self.layer_of = {p: n.rpartition(".")[0] for n, p in named.items()}
        ends = torch.cumsum(torch.tensor(self._sizes), 0).tolist()
        self.slices = [slice(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]
        self._count, self._is_double = _product(expected)
        digits = 52 if self._is_double or self.dtype is torch.float64 else 23
        self.rounding = (
            max(1.0, expected) * min(max(1.0, expected), self._count) * 2.0 ** -(digits + 1)
        )
        self._part = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        self._views = self._views_of(self._part)
        self._total: Tensor | None = None  # in float64, once a step has several products
        self._is_empty = True

    @exactly()
    @torch.no_grad()
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
            when one unit is added or removed, up to the rounding that the class states. A unit whose
            gradient is not finite counts as zero, its vote too.
        """
        if not factors:
            return
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
        for rows in self._products(next(iter(factors.values())).rows):
            views = self._next_views()
            for parameter, factor in factors.items():
                part = factor if rows is None else factor.keep(rows)
                weight = kept[id(weights[self.layer_of[parameter]])]
                part.add_to(views[parameter], weight if rows is None else weight[rows])
        if isinstance(clipping, Adaptive):
            votes = clipping.votes(squared, clip_norm).sum() * scale
            total = self._part if self._total is None or not self._is_double else self._total
            total[-1] += votes.to(total.dtype)

    def value(self) -> Tensor:
        """The sum so far, in float64 if it has several parts; the memory is used again after `clear`."""
        return self._part if self._total is None else self._total + self._part

    def clear(self) -> None:
        """Begin a new sum."""
        self._part.zero_()
        self._total, self._is_empty = None, True

    def deliver(self, released: Tensor) -> None:
        """Make the parts of a tensor of this size the gradients of their parameters."""
        for parameter, part in zip(self.parameters, self.slices, strict=True):
            parameter.grad = released[part].view(parameter.shape).to(parameter.dtype)

    def digest(self) -> int:
        """64 bits of a hash of every bit of the sum."""
        data = memoryview(self.value().cpu().numpy())  # type: ignore[arg-type]
        return int.from_bytes(
            blake2b(data, digest_size=8, person=b"antiphon sum").digest(), "little"
        )

    def _products(self, rows: int) -> Iterator[slice | None]:
        """The gradients that enter each product; None if all enter the same."""
        if rows <= self._count:
            yield None
            return
        for start in range(0, rows, self._count):
            yield slice(start, start + self._count)

    def _next_views(self) -> dict[nn.Parameter, Tensor]:
        """Where the next product is added to."""
        if self._is_double and self.dtype is not torch.float64:
            if self._total is None:
                self._total = self._part.double()
                self._part.zero_()
            return self._views_of(self._total)
        if not self._is_empty and self.dtype is not torch.float64:
            if self._total is None:
                self._total = self._part.double()
            else:
                self._total += self._part
            self._part.zero_()
        self._is_empty = False
        return self._views

    def _views_of(self, flat: Tensor) -> dict[nn.Parameter, Tensor]:
        parts = torch.split(flat[:-1], self._sizes)
        return {p: part.view(p.shape) for p, part in zip(self.parameters, parts, strict=True)}

    def _squared(self, factors: Mapping[nn.Parameter, AbstractFactor]) -> dict[str, Tensor]:
        """Squared norms by layer and unit."""
        squared: dict[str, Tensor] = {}
        for parameter, factor in factors.items():
            layer, square = self.layer_of[parameter], factor.squared_norms()
            squared[layer] = squared[layer] + square if layer in squared else square
        return squared


def _product(expected: float) -> tuple[int, bool]:
    """How many gradients enter one product, and whether products are in float64."""
    if expected <= 128:
        return 128, False
    count = int(_ROUNDING / expected)
    return (count, False) if count >= _FEWEST else (_DOUBLE_ROWS, True)


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
