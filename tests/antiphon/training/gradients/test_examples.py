"""Examples beside each other, each a batch of one."""

import pickle
from collections import UserDict, namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanError, RunError, UnsupportedError
from antiphon.training.gradients.examples import Examples
from antiphon.training.run.block_bounds import Bounds

X, Y = torch.arange(6.0).view(3, 1, 2), torch.arange(3).view(3, 1)


def test_tuples_are_positional_mappings_by_name_and_anything_else_is_alone():
    for pair in ((X, Y), [X, Y], namedtuple("Pair", "x y")(X, Y)):
        args, kwargs = Examples.of(pair).one(1)
        assert len(args) == 2 and not kwargs
        assert torch.equal(args[0], X[1]) and torch.equal(args[1], Y[1])
    for named in ({"x": X, "y": Y}, UserDict(x=X, y=Y)):  # as Hugging Face's collators return
        args, kwargs = Examples.of(named).one(2)
        assert not args and list(kwargs) == ["x", "y"] and torch.equal(kwargs["x"], X[2])
    args, kwargs = Examples.of(X).one(0)
    assert len(args) == 1 and torch.equal(args[0], X[0]) and not kwargs


def test_names_of_arguments_are_texts():
    with pytest.raises(UnsupportedError, match="keys that are not texts"):
        Examples.of({1: X})


def test_chosen_examples_are_those_at_the_places_or_under_the_mask():
    examples = Examples((X, "name"), {"y": Y})
    by_place, by_mask = (
        examples.select(torch.tensor(which)) for which in ([2, 0], [True, False, True])
    )
    assert torch.equal(by_place.args[0], torch.stack([X[2], X[0]])) and len(by_place) == 2
    assert torch.equal(by_mask.kwargs["y"], Y[[0, 2]]) and by_mask.args[1] == "name"


def test_examples_move_and_can_be_sent():
    examples = Examples((X, None), {"nested": [Y, 3]})
    moved = examples.to(torch.device("meta"))
    assert moved.args[0].device.type == moved.kwargs["nested"][0].device.type == "meta"
    for same in (examples.to(torch.device("cpu")), pickle.loads(pickle.dumps(examples))):
        assert torch.equal(same.args[0], X) and same.args[1] is None
        assert torch.equal(same.kwargs["nested"][0], Y) and same.kwargs["nested"][1] == 3


def test_what_is_printed_shows_nothing_of_the_rows():
    assert repr(Examples((torch.full((2, 1), 777.0),), {})) == "<Examples: 2>"


@given(st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4), st.booleans())
def test_bounds_hold_for_every_example_as_for_a_batch(values, is_named):
    x = torch.tensor(values).view(2, 2)
    content = {"x": x.unsqueeze(1)} if is_named else (x.unsqueeze(1), torch.zeros(2, 1))
    examples = Examples.of(content)
    clamp, refuse = (Bounds([-1.0, -0.5], [1.0, 0.5], how) for how in ("clamp", "raise"))
    found = Examples(*clamp.enforce((examples.args, examples.kwargs)))
    leaf = found.kwargs["x"] if is_named else found.args[0]
    expected = torch.stack([x[:, 0].clamp(-1, 1), x[:, 1].clamp(-0.5, 0.5)], 1)
    assert torch.equal(leaf, expected.unsqueeze(1))
    if not torch.equal(x, expected):
        with pytest.raises(RunError, match="outside the declared bounds"):
            refuse.enforce((examples.args, examples.kwargs))


def test_bounds_need_a_tensor():
    with pytest.raises(PlanError, match="this one has none"):
        Bounds(0.0, 1.0).enforce(((), {"a": 1}))
