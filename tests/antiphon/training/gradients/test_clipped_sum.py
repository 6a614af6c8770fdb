"""One flat sum: every unit adds at most the clip norm, those that are not finite add nothing."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.clipped_sum import ClippedSum
from antiphon.training.gradients.clipping import Adaptive, Automatic, Flat, PerLayer
from antiphon.training.gradients.convolution import Convolution, Geometry
from antiphon.training.gradients.factors import Dense, Rows
from antiphon.training.gradients.lookups import Lookups
from antiphon.training.gradients.outer import Outer
from antiphon.training.gradients.sum_of_factors import Sum
from antiphon.training.gradients.units import Units

DRAW = torch.Generator().manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, generator=DRAW)


GEOMETRY = Geometry.of(nn.Conv2d(2, 3, 2).weight, 1, 0, 1, 1)
FACTORS = {
    "dense": Dense(draw(4, 2, 3)),
    "outer": Outer(draw(4, 1, 3), draw(4, 1, 2), torch.Size((2, 3))),
    "outer, formed": Outer(draw(4, 5, 3), draw(4, 5, 2), torch.Size((2, 3))),
    "outer, Gram": Outer(draw(4, 2, 30), draw(4, 2, 20), torch.Size((20, 30))),
    "lookups": Lookups(torch.arange(12).view(4, 3) % 5, draw(4, 3, 2), 5),
    "convolution": Convolution(GEOMETRY, draw(4, 2, 4, 4), draw(4, 3, 3, 3)),
    "rows": Rows({(0, 1): Dense(draw(4, 1, 3)), (1, 3): Dense(draw(4, 2, 3))}, torch.Size((3, 3))),
    "tied": Sum(Lookups(torch.arange(12).view(4, 3) % 5, draw(4, 3, 2), 5),
                Outer(draw(4, 2, 2), draw(4, 2, 5), torch.Size((5, 2)))),
}  # fmt: skip


def added(factor, rule=None, clip_norm=1.0, units=None):
    """The clipped sum of one factor, votes included."""
    parameter = nn.Parameter(torch.zeros(factor.dense().shape[1:]))
    sums = ClippedSum({"a.weight": parameter})
    with torch.no_grad():
        sums.add({parameter: factor}, rule or Flat(), clip_norm, units)
    return sums.value()


def spoiled(factor, row, value):
    """The factor with one row that is not finite."""
    if isinstance(factor, Rows):
        (stretch, first), *others = factor.parts.items()
        return Rows({stretch: spoiled(first, row, value), **dict(others)}, factor.shape)
    if isinstance(factor, Sum):
        return Sum(spoiled(factor.table, row, value), factor.matrix)
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
    return Convolution(factor.geometry, factor.image, right)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FACTORS)
def test_a_row_that_is_not_finite_is_as_if_it_were_not_there(name, value):
    factor = FACTORS[name]
    others = torch.tensor([True, False, True, True])
    found = added(spoiled(factor, 1, value))
    assert torch.equal(found, added(factor.keep(others)))
    assert torch.isfinite(found).all() and float(found.norm()) > 0


@pytest.mark.parametrize("name", FACTORS)
def test_nothing_finite_adds_nothing(name):
    factor = FACTORS[name]
    for row in range(4):
        factor = spoiled(factor, row, math.nan)
    assert float(added(factor).abs().sum()) == 0
    assert float(added(factor, Adaptive())[-1]) == 0


@pytest.mark.parametrize("name", FACTORS)
def test_a_user_with_a_row_that_is_not_finite_is_as_if_it_were_not_there(name):
    factor, units = FACTORS[name], Units(torch.tensor([0, 1, 1, 2]), 3)
    found = added(spoiled(factor, 2, math.nan), units=units)
    others = torch.tensor([True, False, False, True])
    expected = added(factor.keep(others), units=Units(torch.tensor([0, 1]), 2))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e-3, 1.0, 1e10, 1e20])
@pytest.mark.parametrize("name", FACTORS)
def test_one_more_unit_changes_the_sum_by_at_most_the_clip_norm(name, scale):
    factor = FACTORS[name]
    for row in range(4):
        alone = factor.keep(torch.arange(4) == row)
        single = Dense(alone.dense() * scale)
        for rule in (Flat(), Automatic(), PerLayer({"a": 0.3}), Adaptive()):
            assert float(added(single, rule, 0.3)[:-1].double().norm()) <= 0.3 * (1 + 1e-5)


def test_layers_are_clipped_together_or_by_themselves():
    named = {
        "a.w": nn.Parameter(torch.zeros(1)),
        "a.b": nn.Parameter(torch.zeros(1)),
        "c": nn.Parameter(torch.zeros(1)),
    }
    factors = {
        p: Dense(torch.tensor([[s]])) for p, s in zip(named.values(), (3.0, 4.0, 12.0), strict=True)
    }
    flat, by_layer = ClippedSum(named), ClippedSum(named)
    flat.add(factors, Flat(), 1.3)
    assert flat.value().tolist() == pytest.approx([0.3, 0.4, 1.2, 0.0], rel=1e-5)
    by_layer.add(factors, PerLayer({"a": 1.0, "": 0.5}), 1.3)
    assert by_layer.value().tolist() == pytest.approx([0.6, 0.8, 0.5, 0.0], rel=1e-5)


def test_parts_of_a_batch_add_up_and_votes_with_them():
    factor = FACTORS["dense"]
    parameter = nn.Parameter(torch.zeros(2, 3))
    sums = ClippedSum({"w": parameter})
    for half in (
        torch.tensor([True, True, False, False]),
        torch.tensor([False, False, True, True]),
    ):
        sums.add({parameter: factor.keep(half)}, Adaptive(), 1.0)
    whole = added(factor, Adaptive())
    torch.testing.assert_close(sums.value().float(), whole)
    norms = factor.gradients.flatten(1).norm(dim=1)
    assert float(whole[-1]) == float(((norms <= 1).float() - 0.5).sum())


def test_a_vote_counts_once_per_user():
    units = Units(torch.tensor([0, 0, 0, 1]), 2)
    tiny = Dense(torch.full((4, 1), 1e-3))
    assert float(added(tiny, Adaptive(), units=units)[-1]) == 1.0


def test_gradients_beyond_all_measure_count_as_infinite():
    huge = Outer(torch.full((1, 1, 2), 1e30), torch.full((1, 1, 2), 1e30), torch.Size((2, 2)))
    assert float(added(huge).abs().sum()) == 0


def test_the_sum_is_delivered_in_the_parameters_type():
    parameter = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    sums = ClippedSum({"w": parameter})
    assert sums.value().dtype is torch.float32
    sums.deliver(torch.tensor([1.0, 2.0, 0.0]))
    assert parameter.grad.dtype is torch.bfloat16 and parameter.grad.tolist() == [1.0, 2.0]
    mixed = {"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(2).double())}
    assert ClippedSum(mixed).value().dtype is torch.float64
    assert [s.stop for s in ClippedSum(mixed).slices] == [2, 4]


def test_parameters_on_several_devices_are_refused():
    named = {"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(2, device="meta"))}
    with pytest.raises(UnsupportedError, match="several devices"):
        ClippedSum(named)


def test_the_digest_changes_with_every_bit_and_exchange():
    sums = ClippedSum({"w": nn.Parameter(torch.zeros(4))})
    sums.value()[:4] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    seen = {sums.digest()}
    sums.value()[0] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    seen.add(sums.digest())
    sums.value()[:4] = torch.tensor([2.0, 1.0, 3.0, 4.0])
    seen.add(sums.digest())
    assert len(seen) == 3 and all(0 <= mark < 2**64 for mark in seen)


@pytest.mark.parametrize("bad", ["a.w", "c.w"])
def test_one_layer_that_is_not_finite_takes_the_unit_from_all_layers(bad):
    named = {name: nn.Parameter(torch.zeros(1)) for name in ("a.w", "c.w")}
    sums = ClippedSum(named)
    rows = {name: torch.tensor([[0.1], [math.nan if name == bad else 0.2]]) for name in named}
    sums.add({named[name]: Dense(values) for name, values in rows.items()}, Flat(), 1.0)
    assert sums.value().tolist() == pytest.approx([0.1, 0.1, 0.0])


def test_a_new_sum_begins_with_nothing_of_the_last_one():
    factor = FACTORS["dense"]
    parameter = nn.Parameter(torch.zeros(2, 3))
    sums = ClippedSum({"w": parameter}, expected=1e4)
    found = []
    for _ in range(2):
        sums.clear()
        sums.add({parameter: factor}, Adaptive(), 1.0)
        sums.add({parameter: factor}, Adaptive(), 1.0)
        found.append((sums.value().clone(), sums.digest()))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]
    torch.testing.assert_close(found[0][0].float(), 2 * added(factor, Adaptive()))


@pytest.mark.parametrize("rows", [1, 128, 129, 1024, 1025, 5000])
@pytest.mark.parametrize("name", ["dense", "outer", "lookups", "convolution"])
def test_products_of_any_size_make_one_sum(name, rows):
    which = torch.arange(rows) % 4
    factor = FACTORS[name].keep(which)
    for expected in (1.0, 500.0, 1e6):
        parameter = nn.Parameter(torch.zeros(factor.dense().shape[1:]))
        sums = ClippedSum({"w": parameter}, expected)
        sums.add({parameter: factor}, Adaptive(), 0.5, None, 0.25)
        one = sum(
            int((which == row).sum())
            * added(FACTORS[name].keep(torch.tensor([row])), Adaptive(), 0.5)
            for row in range(4)
        )
        torch.testing.assert_close(sums.value().float(), 0.25 * one, rtol=1e-4, atol=1e-4)


# How far one record of many moves the sum


def equal_records(count, differs):
    """Gradients of clip-norm size in one direction, of which one may differ."""
    direction = torch.randn(5, generator=torch.Generator().manual_seed(count))
    return with_one_that_differs(
        (direction / direction.norm()).expand(count, 5).clone(), 0, differs
    )


def edge_of(total, part):
    """Where adding a part in float32 begins to lose it: one record tells whether all others are lost.

    Ones make a total of 2^k + 1, from which -ulp / 2 is lost each time, and from 2^k it is not.
    """
    power = 2 ** math.floor(math.log2(0.6 * total))
    ones = power + 1
    less = -power * 2.0**-24 / part

    def records(count, differs):
        rows = torch.zeros(count, 5)
        rows[:ones, 0] = 1.0
        rows[ones:, 0] = less
        return with_one_that_differs(rows, 0, differs)

    return records


def with_one_that_differs(rows, place, differs):
    if differs == "removed":
        return torch.cat([rows[:place], rows[place + 1 :]])
    if differs:
        rows[place] = 0.0 if differs == "zeroed" else -rows[place]
    return rows


def naive_sum(rows, part):
    """Sums of parts, added one after another in float32."""
    whole = rows[: len(rows) // part * part].view(-1, part, rows.shape[1]).double().sum(1)
    rest = rows[len(rows) // part * part :].double().sum(0, keepdim=True)
    parts = torch.cat([whole, rest]).float().numpy()
    return torch.from_numpy(np.cumsum(parts, axis=0, dtype=np.float32)[-1]).double()


def our_sum(rows, part, expected, is_outer):
    """As a run adds them up: parts of so many records, divided by a public number."""
    parameter = nn.Parameter(torch.zeros((2, 5) if is_outer else (5,)))
    sums = ClippedSum({"w": parameter}, expected)
    for some in torch.split(rows, part):
        factor = Dense(some)
        if is_outer:
            right = torch.tensor([0.6, 0.8]).expand(len(some), 1, 2)
            factor = Outer(some[:, None], right, torch.Size((2, 5)))
        sums.add({parameter: factor}, Adaptive(), 1.0, None, 1 / expected)
    return sums.value().double() * expected


BOUNDS = {"removed": 1.0, "zeroed": 1.0, "replaced": 2.0}
MANY = [
    (128, 128),
    (1000, 1000),
    (131_072, 131_072),
    (32_768, 64),
    pytest.param(387_072, 64, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("is_outer", [False, True])
@pytest.mark.parametrize("is_edge", [False, True])
@pytest.mark.parametrize(("count", "part"), MANY)
def test_one_record_of_many_moves_the_sum_by_its_bound(count, part, is_edge, is_outer):
    records = edge_of(count, part) if is_edge else equal_records
    whole = our_sum(records(count, ""), part, count, is_outer)
    for differs, bound in BOUNDS.items():
        moved = our_sum(records(count, differs), part, count, is_outer) - whole
        assert 0.9 * bound < float(moved[:-1].norm()) <= 1.001 * bound
        assert abs(float(moved[-1])) <= 1.001 * bound / 2  # votes


@pytest.mark.parametrize(("count", "part"), [(131_072, 1), (387_072, 64)])
def test_one_record_of_many_moves_a_naive_sum_by_far_more(count, part):
    records = edge_of(count, part)
    whole = naive_sum(records(count, ""), part)
    assert float((naive_sum(records(count, "zeroed"), part) - whole).norm()) > 10


@pytest.mark.parametrize(("count", "part"), MANY[2:4])
def test_one_vote_of_many_counts_once(count, part):
    norms = torch.where(torch.arange(count) % 3 == 0, 0.5, 2.0)[:, None] * torch.ones(1)
    whole = our_sum(norms * torch.eye(5)[0], part, count, False)
    norms[0] = 2.0
    other = our_sum(norms * torch.eye(5)[0], part, count, False)
    assert float(whole[-1] - other[-1]) == pytest.approx(1.0, rel=1e-3)
