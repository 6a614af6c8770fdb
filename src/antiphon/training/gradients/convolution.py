"""Gradients of single examples for convolutions of any dimension, stride, dilation and groups."""

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from antiphon.training.gradients.abstract_factor import AbstractFactor, Selection
from antiphon.training.gradients.autocast import as_autocast
from antiphon.training.gradients.factors import Dense
from antiphon.training.gradients.norms import (
    as_wide,
    at_least_single,
    norms,
    squares,
    with_rounding,
)
from antiphon.training.gradients.units import Units

__all__ = ["Convolution", "Geometry"]

_CHUNK = 1 << 20  # bytes of patches at a time: they stay in the processor's cache
_KEEP = 1 << 24  # bytes of gradients of single examples that are kept for the clipped sum
_CANCELS = 256.0  # terms that are so much larger than their sum need float64
_HUGE = 1e30  # beside a larger image, a gradient times its weight may leave the range of float32


@final
@dataclass(frozen=True)
class Geometry:
    """What a convolution's weight is multiplied with.

    Attributes:
        shape: Of the weight.
        stride: Along each axis of an image.
        padding: Zeros before and after each axis, the last axis first, as `torch.nn.functional.pad` takes.
        dilation: Along each axis.
        groups: Of channels.
    """

    shape: torch.Size
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> "Geometry":
        """From the arguments of torch's functions, where a number stands for one per axis."""
        dims = weight.ndim - 2
        stride, dilation = _each(stride, dims), _each(dilation, dims)
        if padding == "valid":
            sides = [(0, 0)] * dims
        elif padding == "same":
            totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
            sides = [(total // 2, total - total // 2) for total in totals]
        else:
            sides = [(p, p) for p in _each(padding, dims)]
        flat = tuple(side for pair in reversed(sides) for side in pair)
        return cls(weight.shape, stride, flat, dilation, groups)

    def convolve(self, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of images, whose first axis is that of rows."""
        after, before = self.padding[::-2], self.padding[-2::-2]
        if before == after:
            sides = list(before)
        else:
            images, sides = pad(images, self.padding), [0] * len(before)
        device = images.device.type
        if torch.is_autocast_enabled(device):
            images, weight, bias = (as_autocast(t, device) for t in (images, weight, bias))
        return torch.convolution(
            images,
            weight,
            bias,
            self.stride,
            sides,
            self.dilation,
            False,
            [0] * len(sides),
            self.groups,
        )

    def padded(self, images: Tensor) -> Tensor:
        """Images with their zeros around them."""
        return pad(images, self.padding) if any(self.padding) else images


def _each(value: Any, dims: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * dims if len(value) == 1 else tuple(value)


@final
class Convolution(AbstractFactor):
    """Row i has the gradient of a convolution's weights: patches of its input times gradients.

    For the small images of private training it is cheaper to form these gradients, a few examples at a
    time, than to compare all pairs of places.
    """

    def __init__(self, geometry: Geometry, image: Tensor, right: Tensor) -> None:
        self.geometry, self.image, self.right = (
            geometry,
            at_least_single(image),
            at_least_single(right),
        )
        self.rows = len(image)
        self._formed: Tensor | None = None
        self._careful: Tensor | None = None  # rows that need float64

    def squared_norms(self) -> Tensor:
        """Of the formed gradients; where these are not kept and terms cancel, in float64."""
        geometry = self.geometry
        if self.rows * geometry.shape.numel() * self.right.element_size() <= _KEEP:
            self._formed = self._form(self.geometry.padded(self.image), self.right).flatten(1)
            return squares(self._formed)
        padded = self.geometry.padded(self.image)
        squared = self._in_parts(padded, self.right)
        # By Cauchy-Schwarz not less than the sum of the norms of all terms.
        shared = math.prod(
            -(-k // s) for k, s in zip(geometry.shape[2:], geometry.stride, strict=True)
        )
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
        count = max(1, 2 * _CHUNK // (self.geometry.shape.numel() * right.element_size()))
        pairs = zip(torch.split(padded, count), torch.split(right, count), strict=True)
        return torch.cat([squares(self._form(x, g).flatten(1)) for x, g in pairs])

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """From the formed gradients, or by the convolution's own backward pass on scaled gradients."""
        if self._formed is not None:
            formed = as_wide(self._formed, out)
            out.add_(self._in_order(weights.to(formed.dtype) @ formed)[0])
            return
        padded, right = (as_wide(t, out) for t in (self.geometry.padded(self.image), self.right))
        careful = self._careful
        if careful is not None and bool(careful.any()):
            out.add_(
                self._backward(padded[careful].double(), right[careful].double(), weights[careful])
            )
            padded, right, weights = padded[~careful], right[~careful], weights[~careful]
        if len(right):
            out.add_(self._backward(padded, right, weights))

    def _backward(self, padded: Tensor, right: Tensor, weights: Tensor) -> Tensor:
        geometry, dims = self.geometry, right.ndim - 2
        scaled = right * weights.to(right.dtype).view(-1, *[1] * (dims + 1))
        _, gradient, _ = torch.ops.aten.convolution_backward(
            scaled, padded, right.new_empty(()).expand(geometry.shape), None, geometry.stride,
            [0] * dims, geometry.dilation, False, [0] * dims, geometry.groups, [False, True, False],
        )  # fmt: skip
        return gradient

    def dense(self) -> Tensor:
        """All gradients, in the weight's own order."""
        return self._in_order(self._form(self.geometry.padded(self.image), self.right))

    def keep(self, alive: Selection) -> "Convolution":
        """A selection, with what is known of it."""
        kept = Convolution(self.geometry, self.image[alive], self.right[alive])
        kept._formed = None if self._formed is None else self._formed[alive]
        kept._careful = None if self._careful is None else self._careful[alive]
        return kept

    def grouped(self, units: Units) -> Dense:
        """Formed and averaged."""
        return Dense(self.dense()).grouped(units)

    def _is_last(self) -> bool:
        """Whether patches are copied with the channels last: in longer stretches than along the image."""
        geometry, width = self.geometry, self.right.shape[-1]
        stretch = geometry.shape[1]
        if geometry.dilation[-1] == 1:
            stretch *= geometry.shape[-1]
        return stretch * geometry.stride[-1] >= width

    def _in_order(self, formed: Tensor) -> Tensor:
        """Gradients in the weight's own order: (rows, *shape of the weight)."""
        first, channels, *kernel = self.geometry.shape
        if not self._is_last():
            return formed.reshape(-1, first, channels, *kernel)
        return formed.reshape(-1, first, *kernel, channels).movedim(-1, 2)

    def _part(self) -> int:
        places = math.prod(self.right.shape[2:])
        inputs = self.geometry.groups * self.geometry.shape[1:].numel()
        return max(1, _CHUNK // max(1, inputs * places * self.right.element_size()))

    def _form(self, padded: Tensor, right: Tensor) -> Tensor:
        """Gradients (rows, groups, outputs, inputs × kernel), made from a few rows' patches at a time."""
        geometry, is_last = self.geometry, self._is_last()
        groups = geometry.groups
        outputs, inputs = geometry.shape[0] // groups, geometry.shape[1:].numel()
        places = math.prod(right.shape[2:])
        patches = _patches(padded, geometry, right.shape[2:], is_last)
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


def _patches(padded: Tensor, geometry: Geometry, places: torch.Size, is_last: bool) -> Tensor:
    """A view of all patches: (rows, groups, *places, *kernel, channels), or the last three turned round."""
    if is_last:
        padded = padded.movedim(1, -1).contiguous().movedim(-1, 1)
    row, channel, *step = padded.stride()
    channels = padded.shape[1] // geometry.groups
    parts = [
        (places, [s * d for s, d in zip(step, geometry.stride, strict=True)]),
        (geometry.shape[2:], [s * d for s, d in zip(step, geometry.dilation, strict=True)]),
        ((channels,), [channel]),
    ]
    parts = parts if is_last else parts[::-1]
    sizes = (len(padded), geometry.groups, *(size for part in parts for size in part[0]))
    strides = (row, channels * channel, *(stride for part in parts for stride in part[1]))
    return padded.as_strided(sizes, strides, padded.storage_offset())
