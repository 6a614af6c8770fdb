"""Gradients of single examples of convolutions, against plain autograd; and the clip norm."""

import math

import pytest
import torch
from torch import nn

from antiphon.training.gradients import convolution as module
from antiphon.training.gradients.clipped_sum import ClippedSum
from antiphon.training.gradients.clipping import Flat
from antiphon.training.gradients.convolution import Convolution, Geometry
from antiphon.training.gradients.units import Units

LAYERS = {
    "plain": nn.Conv2d(3, 4, 3),
    "groups": nn.Conv2d(4, 6, (3, 2), groups=2, stride=(1, 2), padding=1),
    "depthwise, dilated": nn.Conv2d(3, 3, 3, groups=3, dilation=2, padding="same"),
    "even kernel": nn.Conv2d(2, 3, (2, 4), padding="same"),
    "one dimension": nn.Conv1d(2, 3, 4, stride=3),
    "three dimensions": nn.Conv3d(2, 2, 2, padding=1),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def geometry_of(layer):
    return Geometry.of(layer.weight, layer.stride, layer.padding, layer.dilation, layer.groups)


def images_of(name, rows=5):
    """Images and gradients of what comes out."""
    layer = LAYERS[name]
    draw = torch.Generator().manual_seed(0)
    size = {nn.Conv1d: (9,), nn.Conv2d: (6, 7), nn.Conv3d: (3, 4, 3)}[type(layer)]
    image = torch.randn(rows, layer.in_channels, *size, generator=draw)
    return image, torch.randn(layer(image).shape, generator=draw)


def factor_of(name, rows=5, dtype=torch.float32):
    image, right = images_of(name, rows)
    return Convolution(geometry_of(LAYERS[name]), image.to(dtype), right.to(dtype))


def oracle(layer, factor):
    """One example at a time, by autograd."""
    found = []
    for image, right in zip(factor.image, factor.right, strict=True):
        out = layer(image[None].float())
        found.append(torch.autograd.grad(out, layer.weight, right[None].float())[0])
    return torch.stack(found)


def clipped(factor):
    """The sum of the clipped gradients."""
    weight = nn.Parameter(torch.zeros(factor.geometry.shape))
    total = ClippedSum({"c.weight": weight})
    total.add({weight: factor}, Flat(), 1.0)
    return total.value().double()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_computed_is_what_the_layer_computes(name):
    layer, (image, _) = LAYERS[name], images_of(name)
    found = geometry_of(layer).convolve(image, layer.weight, layer.bias)
    torch.testing.assert_close(found, layer(image))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_norms_and_sums_are_autograds(name, dtype, is_kept, monkeypatch):
    monkeypatch.setattr(module, "_KEEP", 1 << 24 if is_kept else 0)
    monkeypatch.setattr(module, "_CHUNK", 4000)
    factor = factor_of(name, dtype=dtype)
    expected = oracle(LAYERS[name], factor)
    torch.testing.assert_close(factor.dense().float(), expected, rtol=1e-4, atol=1e-5)
    squared = expected.flatten(1).double().square().sum(1)
    torch.testing.assert_close(factor.squared_norms(), squared, rtol=1e-5, atol=1e-6)
    weights = torch.linspace(0.1, 1, 5, dtype=torch.float64)
    out = torch.zeros_like(expected[0])
    factor.add_to(out, weights)
    total = torch.tensordot(weights.float(), expected, dims=1)
    torch.testing.assert_close(out, total.detach(), rtol=1e-4, atol=1e-5)


def test_kept_and_grouped_rows_are_those_of_the_formed_gradients():
    factor = factor_of("groups")
    rows = factor.dense()
    alive = torch.tensor([True, False, True, True, False])
    torch.testing.assert_close(factor.keep(alive).dense(), rows[alive])
    torch.testing.assert_close(factor.keep(slice(1, 4)).dense(), rows[1:4])
    units = Units(torch.tensor([1, 0, 1, 0, 0]), 2)
    expected = torch.stack([rows[[1, 3, 4]].mean(0), rows[[0, 2]].mean(0)])
    torch.testing.assert_close(factor.grouped(units).dense(), expected)


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("channels", [(1, 1), (16, 24)])
def test_places_that_cancel_do_not_pass_the_clip_norm(channels, size, is_kept, monkeypatch):
    monkeypatch.setattr(module, "_KEEP", 1 << 24 if is_kept else 0)
    layer = nn.Conv2d(*channels, 3)
    draw = torch.Generator().manual_seed(0)
    for _ in range(3):
        image = torch.ones(1, channels[0], 10, 10) / math.sqrt(9 * channels[0])
        right = torch.randn(1, channels[1], 32, 2, generator=draw).sign() * size
        right[..., 1] = -right[..., 0]
        right = right.view(1, channels[1], 8, 8) / math.sqrt(channels[1])
        right[0, :, 0, 0] += 2 * torch.randn(channels[1], generator=draw)
        factor = Convolution(geometry_of(layer), image, right)
        assert float(clipped(factor).norm()) <= 1 + 1e-5


@pytest.mark.parametrize("is_kept", [True, False])
def test_huge_gradients_are_clipped(is_kept, monkeypatch):
    monkeypatch.setattr(module, "_KEEP", 1 << 24 if is_kept else 0)
    factor = factor_of("plain", rows=1)
    factor = Convolution(factor.geometry, factor.image * 1e18, factor.right * 1e15)
    assert float(clipped(factor).norm()) == pytest.approx(1.0, rel=1e-5)
