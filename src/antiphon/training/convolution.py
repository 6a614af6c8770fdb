"""Gradients of single examples for convolutions of any dimension, stride, dilation and groups."""

import math
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from antiphon.training.factors import (
    AbstractFactor,
    Dense,
    at_least_single,
    norms,
    squares,
    with_rounding,
)
from antiphon.training.units import Units

__all__ = ["Convolution"]

_CHUNK = 1 << 20  # bytes of patches at a time: they stay in the processor's cache
_KEEP = 1 << 24  # bytes of gradients of single examples that are kept for the clipped sum
_CANCELS = 256.0  # terms that are so much larger than their sum need float64
_HUGE = 1e30  # beside a larger image, a gradient times its weight may leave the range of float32


@final
class Convolution(AbstractFactor):
    """Row i has the gradient of a convolution's weights: patches of its input times gradients.

    For the small images of private training it is cheaper to form these gradients, a few examples at a
    time, than to compare all pairs of places.
    """

    def __init__(self, layer: Any, image: Tensor, right: Tensor) -> None:
        self.layer, self.image, self.right = layer, at_least_single(image), at_least_single(right)
        self.rows = len(image)
        self._formed: Tensor | None = None
        self._careful: Tensor | None = None  # rows that need float64

    def squared_norms(self) -> Tensor:
        """Of the formed gradients; where these are not kept and terms cancel, in float64."""
        layer = self.layer
        if self.rows * layer.weight.numel() * self.right.element_size() <= _KEEP:
            self._formed = self._form(self._padded(), self.right).flatten(1)
            return squares(self._formed)
        padded = self._padded()
        squared = self._in_parts(padded, self.right)
        # By Cauchy-Schwarz not less than the sum of the norms of all terms.
        shared = math.prod(-(-k // s) for k, s in zip(layer.kernel_size, layer.stride, strict=True))
        image = norms(padded.flatten(1))
        size = image * norms(self.right.flatten(1)) * math.sqrt(shared)
        self._careful = (squared.sqrt() * _CANCELS < size) | (image > _HUGE)
        again = torch.nonzero(self._careful)[:, 0]
        if len(again):
            found = self._in_parts(padded[again].double(), self.right[again].double())
            places = math.prod(self.right.shape[2:])
            squared[again] = with_rounding(found, size[again], places)
        return squared

    def _in_parts(self, padded: Tensor, right: Tensor) -> Tensor:
        count = max(1, 2 * _CHUNK // (self.layer.weight.numel() * right.element_size()))
        pairs = zip(torch.split(padded, count), torch.split(right, count), strict=True)
        return torch.cat([squares(self._form(x, g).flatten(1)) for x, g in pairs])

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """From the formed gradients, or by the convolution's own backward pass on scaled gradients."""
        if self._formed is not None:
            out.add_(self._in_order(weights.to(self._formed.dtype) @ self._formed)[0])
            return
        padded, right, careful = self._padded(), self.right, self._careful
        if careful is not None and bool(careful.any()):
            out.add_(
                self._backward(padded[careful].double(), right[careful].double(), weights[careful])
            )
            padded, right, weights = padded[~careful], right[~careful], weights[~careful]
        if len(right):
            out.add_(self._backward(padded, right, weights))

    def _backward(self, padded: Tensor, right: Tensor, weights: Tensor) -> Tensor:
        layer, dims = self.layer, right.ndim - 2
        scaled = right * weights.to(right.dtype).view(-1, *[1] * (dims + 1))
        _, gradient, _ = torch.ops.aten.convolution_backward(
            scaled, padded, layer.weight.to(right.dtype), None, layer.stride, [0] * dims,
            layer.dilation, False, [0] * dims, layer.groups, [False, True, False],
        )  # fmt: skip
        return gradient

    def dense(self) -> Tensor:
        """All gradients, in the weight's own order."""
        return self._in_order(self._form(self._padded(), self.right))

    def keep(self, alive: Tensor) -> "Convolution":
        """A selection."""
        return Convolution(self.layer, self.image[alive], self.right[alive])

    def grouped(self, units: Units) -> Dense:
        """Formed and averaged."""
        return Dense(self.dense()).grouped(units)

    def _padded(self) -> Tensor:
        layer = self.layer
        if layer.padding_mode != "zeros":
            return pad(self.image, layer._reversed_padding_repeated_twice, layer.padding_mode)
        if isinstance(layer.padding, str):
            return pad(self.image, layer._reversed_padding_repeated_twice)
        return pad(self.image, [side for p in reversed(layer.padding) for side in (p, p)])

    def _is_last(self) -> bool:
        """Whether patches are copied with the channels last: in longer stretches than along the image."""
        layer, width = self.layer, self.right.shape[-1]
        stretch = layer.in_channels // layer.groups
        if layer.dilation[-1] == 1:
            stretch *= layer.kernel_size[-1]
        return stretch * layer.stride[-1] >= width

    def _in_order(self, formed: Tensor) -> Tensor:
        """Gradients in the weight's own order: (rows, *shape of the weight)."""
        first, channels, *kernel = self.layer.weight.shape
        if not self._is_last():
            return formed.reshape(-1, first, channels, *kernel)
        return formed.reshape(-1, first, *kernel, channels).movedim(-1, 2)

    def _part(self) -> int:
        layer = self.layer
        places = math.prod(self.right.shape[2:])
        inputs = layer.in_channels * math.prod(layer.kernel_size)
        return max(1, _CHUNK // max(1, inputs * places * self.right.element_size()))

    def _form(self, padded: Tensor, right: Tensor) -> Tensor:
        """Gradients (rows, groups, outputs, inputs × kernel), made from a few rows' patches at a time."""
        groups, is_last = self.layer.groups, self._is_last()
        outputs, inputs = self.layer.out_channels // groups, self.layer.weight[0].numel()
        places = math.prod(right.shape[2:])
        patches = _patches(padded, self.layer, right.shape[2:], is_last)
        formed = right.new_empty(len(right), groups, outputs, inputs)
        part = max(1, min(self._part(), len(right)))
        room = right.new_empty(part, *patches.shape[1:])
        for start in range(0, len(right), part):
            g = right[start : start + part].reshape(-1, outputs, places)
            copied = room[: len(g) // groups].copy_(patches[start : start + part])
            left = (
                copied.view(-1, places, inputs) if is_last else copied.view(-1, inputs, places).mT
            )
            torch.bmm(g, left, out=formed[start : start + part].view(-1, outputs, inputs))
        return formed


def _patches(padded: Tensor, layer: Any, places: torch.Size, is_last: bool) -> Tensor:
    """A view of all patches: (rows, groups, *places, *kernel, channels), or the last three turned round."""
    if is_last:
        padded = padded.movedim(1, -1).contiguous().movedim(-1, 1)
    row, channel, *step = padded.stride()
    channels = padded.shape[1] // layer.groups
    parts = [
        (places, [s * d for s, d in zip(step, layer.stride, strict=True)]),
        (layer.kernel_size, [s * d for s, d in zip(step, layer.dilation, strict=True)]),
        ((channels,), [channel]),
    ]
    parts = parts if is_last else parts[::-1]
    sizes = (len(padded), layer.groups, *(size for part in parts for size in part[0]))
    strides = (row, channels * channel, *(stride for part in parts for stride in part[1]))
    return padded.as_strided(sizes, strides, padded.storage_offset())
