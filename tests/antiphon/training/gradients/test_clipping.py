"""Every rule bounds every unit's gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanError
from antiphon.training.gradients.clipping import Adaptive, Automatic, Flat, PerLayer, clipping_of

sizes = st.floats(-30, 30).map(lambda power: 10.0**power) | st.just(0.0)


def squared(*layers):
    return {str(i): torch.tensor(v, dtype=torch.float64).square() for i, v in enumerate(layers)}


def norms_after(rule, layers, clip_norm):
    weights = rule.weights(squared(*layers), clip_norm)
    after = [weights[str(i)] * torch.tensor(v, dtype=torch.float64) for i, v in enumerate(layers)]
    return torch.linalg.vector_norm(torch.stack(after), dim=0).tolist()


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5), st.floats(1e-3, 1e3))
def test_no_unit_passes_the_clip_norm(units, clip_norm):
    first, second = ([u[i] for u in units] for i in range(2))
    for rule in (Flat(), Automatic(), Adaptive(), PerLayer().for_layers({"0", "1"}, clip_norm)):
        assert all(n <= clip_norm for n in norms_after(rule, (first, second), clip_norm))


def test_flat_leaves_short_gradients_and_shortens_long_ones():
    assert norms_after(Flat(), ([0.0, 0.3, 3.0], [0.0, 0.4, 4.0]), 1.0) == pytest.approx(
        [0.0, 0.5, 1.0], rel=1e-5
    )
    assert Flat().weights(squared([0.0, 0.5]), 1.0)["0"].tolist() == [1.0, 1.0]


def test_the_bound_is_aimed_at_from_below():
    (norm,) = norms_after(Flat(), ([5.0],), 1.0)
    assert 1 - 1e-5 < norm <= 1 - 2e-6


def test_automatic_divides_by_the_norm_and_its_stability():
    assert norms_after(Automatic(0.01), ([0.01, 1.0],), 2.0) == pytest.approx(
        [1.0, 2 / 1.01], rel=1e-5
    )
    assert norms_after(Automatic(1.0), ([1.0],), 2.0) == pytest.approx([1.0], rel=1e-5)
    with pytest.raises(PlanError, match="stability"):
        Automatic(0.0)


def test_layers_share_the_clip_norm_equally_unless_told():
    rule = PerLayer().for_layers(["a", "b", "c", "d"], 2.0)
    assert rule.bounds == dict.fromkeys("abcd", 1.0)
    own = PerLayer({"0": 0.6, "1": 0.8}).for_layers({"0", "1"}, 1.0)
    weights = own.weights(squared([6.0, 0.1], [0.2, 8.0]), 1.0)
    assert weights["0"].tolist() == pytest.approx([0.1, 1.0], rel=1e-5)
    assert weights["1"].tolist() == pytest.approx([1.0, 0.1], rel=1e-5)


def test_bounds_of_layers_must_fit():
    with pytest.raises(PlanError, match="exactly the trained layers"):
        PerLayer({"a": 1.0}).for_layers({"a", "b"}, 1.0)
    with pytest.raises(PlanError, match=r"1\.41421 together"):
        PerLayer({"a": 1.0, "b": 1.0}).for_layers({"a", "b"}, 1.0)
    with pytest.raises(PlanError, match="clip norm of layer 'a'"):
        PerLayer({"a": -1.0})
    given = {"a": 1.0}
    rule = PerLayer(given)
    given["a"] = 9.0
    assert rule.bounds == {"a": 1.0}


def test_votes_are_a_half_within_the_clip_norm_and_minus_a_half_without():
    assert Adaptive().votes(squared([0.3, 3.0, 0.6], [0.4, 4.0, 0.8]), 1.0).tolist() == [
        0.5,
        -0.5,
        0.5,
    ]


def test_the_clip_norm_follows_the_quantile():
    rule = Adaptive(quantile=0.5, rate=0.2)
    assert rule.next_norm(1.0, 0.0) == 1.0
    assert rule.next_norm(1.0, 0.5) == pytest.approx(math.exp(-0.1))
    assert rule.next_norm(1.0, -0.5) == pytest.approx(math.exp(0.1))
    assert rule.next_norm(1.0, -1e9) == pytest.approx(math.exp(3))
    assert rule.next_norm(1.0, 1e9) == pytest.approx(math.exp(-3))
    for options in ({"quantile": 0.0}, {"share": 1.0}, {"rate": 0.0}):
        with pytest.raises(PlanError):
            Adaptive(**options)


def test_rules_by_name():
    assert clipping_of("flat") == Flat()
    assert clipping_of("per-layer") == clipping_of("per_layer") == PerLayer()
    assert clipping_of("automatic") == Automatic() and clipping_of("adaptive") == Adaptive()
    rule = Automatic(0.5)
    assert clipping_of(rule) is rule
    with pytest.raises(PlanError, match="'sharp'"):
        clipping_of("sharp")
