"""Batches of one become the rows of tensors, unchanged."""

import copy
import weakref
from collections import UserDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_flatten

from antiphon.errors import UnsupportedError
from antiphon.training.run.stacking import stacked

# A form of a batch of one, in which every tensor is a shape and a type.
tensors = st.tuples(
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from([torch.float32, torch.int64, torch.bool, torch.float64]),
)
constants = st.sampled_from([None, 3, 2.5, "text", True, b"x"])
leaves = st.one_of(tensors.map(lambda t: ("tensor", *t)), constants.map(lambda c: ("constant", c)))
entries = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2).map(lambda found: ("list", found)),
        st.dictionaries(st.sampled_from("ab"), inner, min_size=1).map(lambda d: ("dict", d)),
    ),
    max_leaves=4,
)
forms = st.dictionaries(st.sampled_from("xyz"), entries).map(
    lambda found: ("dict", found | {"always": ("tensor", [2], torch.float32)})
)


def made(form, generator):
    match form:
        case "tensor", shape, kind:
            return torch.randint(-9, 9, (1, *shape), generator=generator).to(kind)
        case "constant", value:
            return value
        case "list", found:
            return [made(entry, generator) for entry in found]
        case "dict", found:
            return {name: made(entry, generator) for name, entry in found.items()}


def assert_same(one, other):
    (found, form), (expected, expected_form) = tree_flatten(one), tree_flatten(other)
    assert form == expected_form
    for a, b in zip(found, expected, strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            assert a.dtype is b.dtype and a.shape == b.shape and torch.equal(a, b)
        else:
            assert a == b


@given(forms, st.integers(1, 4), st.booleans())
def test_every_example_gets_its_own_batch_of_one_back(form, n, is_named):
    generator = torch.Generator().manual_seed(0)
    batches = [made(form, generator) for _ in range(n)]
    if not is_named:
        batches = [list(batch.values()) for batch in batches]
    examples = stacked(copy.deepcopy(batches), n)
    assert len(examples) == n
    for place, batch in enumerate(batches):
        assert_same(examples.one(place), ((), batch) if is_named else (tuple(batch), {}))


def test_examples_have_memory_of_their_own():
    row = torch.zeros(1, 2)
    for batches in ([row], [row, row]):
        stacked(batches, len(batches)).args[0].fill_(1.0)
    assert float(row.sum()) == 0


def test_batches_are_asked_for_one_after_another():
    held = []

    def batches():
        for row in range(3):
            batch = torch.full((1, 2), float(row))
            held.append(weakref.ref(batch))
            assert sum(one() is not None for one in held) <= 2  # the one before may still be named
            yield batch
            del batch

    assert stacked(batches(), 3).args[0].tolist() == [[[row] * 2] for row in (0.0, 1.0, 2.0)]


def test_no_graph_leads_back_to_the_rows():
    row = torch.zeros(1, 2, requires_grad=True)
    assert not stacked([row * 2, row], 2).args[0].requires_grad


SECRET = 777
REFUSED = {
    "lengths": (
        [{"words": torch.full((1, 5), SECRET)}, {"words": torch.full((1, 9), SECRET)}],
        r"batch\['words'\] has shape \(1, 5\) for one row and \(1, 9\) .* pad_to={'words': length}",
    ),
    "lengths by position": (
        [[torch.ones(1), torch.ones(1, 5, 2)], [torch.ones(1), torch.ones(1, 6, 2)]],
        r"batch\[1\] .* pad_to={1: length}",
    ),
    "lengths of what is alone": ([torch.ones(1, 5), torch.ones(1, 6)], "pad_to=length"),
    "lengths further down": (
        [{"a": [torch.ones(1, 5)]}, {"a": [torch.ones(1, 6)]}],
        r"batch\['a'\]\[0\] .* pad_to={'a': length}",
    ),
    "other axes": ([torch.ones(1, 5, 2), torch.ones(1, 5, 3)], "one shape of public sizes"),
    "numbers of axes": ([torch.ones(1, 5), torch.ones(1, 5, 1)], "one shape of public sizes"),
    "first axes": ([torch.ones(1, 5), torch.ones(2, 5)], "one shape of public sizes"),
    "types": (
        [torch.full((1,), SECRET), torch.full((1,), float(SECRET))],
        "torch.int64 on cpu for one row and of torch.float32 on cpu .* one type",
    ),
    "devices": ([torch.ones(1), torch.ones(1, device="meta")], "on cpu for one row .* on meta"),
    "tensors and none": ([{"a": torch.ones(1)}, {"a": None}], "a tensor for one row and none"),
    "numbers": (
        [{"a": torch.ones(1), "b": SECRET}, {"a": torch.ones(1), "b": 778}],
        r"batch\['b'\] is of type int and differs between rows.*make it a tensor in collate=",
    ),
    "texts": ([(torch.ones(1), "777"), (torch.ones(1), "778")], "of type str and differs"),
    "signs of zero": ([(torch.ones(1), 0.0), (torch.ones(1), -0.0)], "float and differs"),
    "a number and a truth value": ([(torch.ones(1), True), (torch.ones(1), 1)], "differs"),
    "keys": ([{"a": torch.ones(1)}, {"b": torch.ones(1)}], "different structures"),
    "lists of numbers": ([[torch.ones(1)] * 2, [torch.ones(1)] * 3], "different structures.*with_format"),
    "arrays": ([(torch.ones(1), np.ones(1))], r"batch\[1\] is of type ndarray.*tensor in collate"),
    "numbers of NumPy": ([(torch.ones(1), np.float64(SECRET))], "of type float64"),
    "objects": ([(torch.ones(1), UserDict(a=SECRET))], "of type UserDict"),
    "no tensor": ([{"a": SECRET}], "holds no tensor"),
    "names that are not texts": ([{1: torch.ones(1)}], "keys that are not texts"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_only_be_stacked_by_changing_rows_is_refused(name):
    batches, text = REFUSED[name]
    with pytest.raises(UnsupportedError, match=text) as refusal:
        stacked(batches, len(batches))
    assert "777" not in str(refusal.value) and "778" not in str(refusal.value)
