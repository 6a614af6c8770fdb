"""One flat sum: every unit adds at most the clip norm, those that are not finite add nothing."""

import math

import pytest
import torch
from torch import nn

from antiphon.errors import UnsupportedError
from antiphon.training.buffer import Buffer
from antiphon.training.clipping import Adaptive, Automatic, Flat, PerLayer
from antiphon.training.convolution import Convolution
from antiphon.training.factors import Blocks, Dense, Lookups, Outer
from antiphon.training.units import Units

DRAW = torch.Generator().manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, generator=DRAW)


CONV = nn.Conv2d(2, 3, 2)
FACTORS = {
    "dense": Dense(draw(4, 2, 3)),
    "outer": Outer(draw(4, 1, 3), draw(4, 1, 2), torch.Size((2, 3))),
    "outer, formed": Outer(draw(4, 5, 3), draw(4, 5, 2), torch.Size((2, 3))),
    "outer, Gram": Outer(draw(4, 2, 30), draw(4, 2, 20), torch.Size((20, 30))),
    "lookups": Lookups(torch.arange(12).view(4, 3) % 5, draw(4, 3, 2), 5),
    "convolution": Convolution(CONV, draw(4, 2, 4, 4), draw(4, 3, 3, 3)),
    "blocks": Blocks([Dense(draw(4, 1, 3)), Dense(draw(4, 2, 3))], [1, 2]),
}


def added(factor, rule=None, clip_norm=1.0, units=None):
    parameter = nn.Parameter(torch.zeros(factor.dense().shape[1:]))
    buffer = Buffer({"a.weight": parameter})
    with torch.no_grad():
        buffer.add({parameter: factor}, rule or Flat(), clip_norm, units)
    return buffer


def spoiled(factor, row, value):
    """The factor with one row that is not finite."""
    if isinstance(factor, Blocks):
        return Blocks([spoiled(factor.parts[0], row, value), *factor.parts[1:]], factor.sizes)
    if isinstance(factor, Dense):
        gradients = factor.gradients.clone()
        gradients[row, 0] = value
        return Dense(gradients)
    right = factor.right.clone()
    right[row, 0] = value
    if isinstance(factor, Outer):
        return Outer(factor.left, right, factor.shape)
    if isinstance(factor, Lookups):
        return Lookups(factor.index, right, factor.lines)
    return Convolution(factor.layer, factor.image, right)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FACTORS)
def test_a_row_that_is_not_finite_is_as_if_it_were_not_there(name, value):
    factor = FACTORS[name]
    others = torch.tensor([True, False, True, True])
    found = added(spoiled(factor, 1, value)).flat
    assert torch.equal(found, added(factor.keep(others)).flat)
    assert torch.isfinite(found).all() and float(found.norm()) > 0


@pytest.mark.parametrize("name", FACTORS)
def test_nothing_finite_adds_nothing(name):
    factor = FACTORS[name]
    for row in range(4):
        factor = spoiled(factor, row, math.nan)
    assert float(added(factor).flat.abs().sum()) == 0
    assert float(added(factor, Adaptive()).votes) == 0


@pytest.mark.parametrize("name", FACTORS)
def test_a_user_with_a_row_that_is_not_finite_is_as_if_it_were_not_there(name):
    factor, units = FACTORS[name], Units(torch.tensor([0, 1, 1, 2]), 3)
    found = added(spoiled(factor, 2, math.nan), units=units).flat
    others = torch.tensor([True, False, False, True])
    expected = added(factor.keep(others), units=Units(torch.tensor([0, 1]), 2)).flat
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e-3, 1.0, 1e10, 1e20])
@pytest.mark.parametrize("name", FACTORS)
def test_one_more_unit_changes_the_sum_by_at_most_the_clip_norm(name, scale):
    factor = FACTORS[name]
    for row in range(4):
        alone = factor.keep(torch.arange(4) == row)
        single = Dense(alone.dense() * scale)
        for rule in (Flat(), Automatic(), PerLayer({"a": 0.3}), Adaptive()):
            assert float(added(single, rule, 0.3).flat[:-1].double().norm()) <= 0.3 * (1 + 1e-5)


def test_layers_are_clipped_together_or_by_themselves():
    named = {
        "a.w": nn.Parameter(torch.zeros(1)),
        "a.b": nn.Parameter(torch.zeros(1)),
        "c": nn.Parameter(torch.zeros(1)),
    }
    factors = {
        p: Dense(torch.tensor([[s]])) for p, s in zip(named.values(), (3.0, 4.0, 12.0), strict=True)
    }
    flat, by_layer = Buffer(named), Buffer(named)
    flat.add(factors, Flat(), 1.3)
    assert flat.flat.tolist() == pytest.approx([0.3, 0.4, 1.2, 0.0], rel=1e-5)
    by_layer.add(factors, PerLayer({"a": 1.0, "": 0.5}), 1.3)
    assert by_layer.flat.tolist() == pytest.approx([0.6, 0.8, 0.5, 0.0], rel=1e-5)


def test_parts_of_a_batch_add_up_and_votes_with_them():
    factor = FACTORS["dense"]
    parameter = nn.Parameter(torch.zeros(2, 3))
    buffer = Buffer({"w": parameter})
    for half in (
        torch.tensor([True, True, False, False]),
        torch.tensor([False, False, True, True]),
    ):
        buffer.add({parameter: factor.keep(half)}, Adaptive(), 1.0)
    whole = added(factor, Adaptive())
    torch.testing.assert_close(buffer.flat, whole.flat)
    norms = factor.gradients.flatten(1).norm(dim=1)
    assert float(whole.votes) == float(((norms <= 1).float() - 0.5).sum())


def test_a_vote_counts_once_per_user():
    units = Units(torch.tensor([0, 0, 0, 1]), 2)
    tiny = Dense(torch.full((4, 1), 1e-3))
    assert float(added(tiny, Adaptive(), units=units).votes) == 1.0


def test_gradients_beyond_all_measure_count_as_infinite():
    huge = Outer(torch.full((1, 1, 2), 1e30), torch.full((1, 1, 2), 1e30), torch.Size((2, 2)))
    assert float(added(huge).flat.abs().sum()) == 0


def test_the_sum_is_delivered_in_the_parameters_type():
    parameter = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    buffer = Buffer({"w": parameter})
    assert buffer.flat.dtype is torch.float32
    buffer.deliver(torch.tensor([1.0, 2.0, 0.0]))
    assert parameter.grad.dtype is torch.bfloat16 and parameter.grad.tolist() == [1.0, 2.0]
    mixed = {"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(2).double())}
    assert Buffer(mixed).flat.dtype is torch.float64
    assert [s.stop for s in Buffer(mixed).slices] == [2, 4]


def test_parameters_on_several_devices_are_refused():
    named = {"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(2, device="meta"))}
    with pytest.raises(UnsupportedError, match="several devices"):
        Buffer(named)


def test_the_digest_changes_with_every_bit_and_exchange():
    buffer = Buffer({"w": nn.Parameter(torch.zeros(4))})
    buffer.flat[:4] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    seen = {buffer.digest()}
    buffer.flat[0] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    seen.add(buffer.digest())
    buffer.flat[:4] = torch.tensor([2.0, 1.0, 3.0, 4.0])
    seen.add(buffer.digest())
    assert len(seen) == 3 and all(0 <= mark < 2**64 for mark in seen)


@pytest.mark.parametrize("bad", ["a.w", "c.w"])
def test_one_layer_that_is_not_finite_takes_the_unit_from_all_layers(bad):
    named = {name: nn.Parameter(torch.zeros(1)) for name in ("a.w", "c.w")}
    buffer = Buffer(named)
    rows = {name: torch.tensor([[0.1], [math.nan if name == bad else 0.2]]) for name in named}
    buffer.add({named[name]: Dense(values) for name, values in rows.items()}, Flat(), 1.0)
    assert buffer.flat.tolist() == pytest.approx([0.1, 0.1, 0.0])
