"""Columns in memory."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset, default_collate

from antiphon.errors import PlanError
from antiphon.training.gradients.examples import Examples
from antiphon.training.run.in_memory import Columns, columns_of
from antiphon.training.run.stacking import stacked

shapes = st.lists(st.integers(0, 3), max_size=2)
kinds = st.sampled_from([np.float32, np.float64, np.int64, np.int8, np.uint8, np.bool_])
columns = st.lists(st.tuples(shapes, kinds), min_size=1, max_size=3)


@given(columns, st.integers(1, 6), st.sampled_from(["tuple", "dict", "one", "data set"]), st.data())
def test_chosen_rows_are_what_collating_each_by_itself_gives(described, n, form, data):
    arrays = [
        np.random.default_rng(i).integers(0, 9, (n, *shape)).astype(kind)
        for i, (shape, kind) in enumerate(described)
    ]
    tensors = [torch.from_numpy(array) for array in arrays]
    rows = {
        "tuple": tuple(arrays),
        "dict": {f"c{i}": array for i, array in enumerate(arrays)},
        "one": arrays[0],
        "data set": TensorDataset(*tensors),
    }[form]
    found = columns_of(rows)
    assert len(found) == n
    drawn = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5))
    quick = Examples.of(found.select(torch.tensor(drawn)))
    slow = stacked((default_collate([found[row]]) for row in drawn), len(drawn))
    for place, row in enumerate(drawn):
        args, kwargs = quick.one(place)
        own = [torch.from_numpy(array[row : row + 1]) for array in arrays]
        expected = own[:1] if form == "one" else own
        for a, b in zip([*args, *kwargs.values()], expected, strict=True):
            assert a.dtype is b.dtype and torch.equal(a, b)
    for a, b in zip(quick.args, slow.args, strict=True):
        assert a.dtype is b.dtype and torch.equal(a, b)
    assert quick.kwargs.keys() == slow.kwargs.keys() == (set(rows) if form == "dict" else set())
    assert all(torch.equal(quick.kwargs[name], slow.kwargs[name]) for name in quick.kwargs)


def test_columns_share_memory_and_chosen_rows_do_not():
    x = np.zeros((3, 2))
    found = columns_of((x,))
    assert found.content[0].data_ptr() == x.__array_interface__["data"][0]
    found.select(torch.tensor([0, 1, 2]))[0].fill_(1.0)
    assert x.sum() == 0


def test_arrays_that_are_read_only_or_reversed_are_taken(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = columns_of((mapped, np.arange(3)[::-1]))
    x, y = found.select(torch.tensor([2, 0]))
    assert x.tolist() == [[[4.0, 5.0]], [[0.0, 1.0]]] and y.tolist() == [[0], [2]]


def test_columns_do_not_lead_back_to_a_graph():
    found = columns_of((torch.zeros(3, 2, requires_grad=True),))
    assert not found.select(torch.tensor([1]))[0].requires_grad


@pytest.mark.parametrize(
    "records",
    [
        [torch.zeros(3), torch.zeros(3)],
        [np.zeros(3), np.zeros(3)],
        [{"x": torch.zeros(3)}],
        torch.utils.data.Subset(TensorDataset(torch.zeros(3)), [0]),
        range(3),
    ],
)
def test_a_list_of_tensors_and_other_data_sets_hold_records(records):
    assert columns_of(records) is None


REFUSED = {
    "lengths": ((torch.zeros(3, 5), torch.zeros(4)), r"different lengths: \[3, 4\]"),
    "lengths by name": ({"x": torch.zeros(3, 5), "y": torch.zeros(4)}, "different lengths"),
    "a list as a column": ((torch.zeros(3), [1, 2, 3]), "column 1 is of type list.*as a list"),
    "records in a tuple": (({"x": 1}, {"x": 2}), "column 0 is of type dict.*records as a list"),
    "data sets by name": ({"train": TensorDataset(torch.zeros(3))}, "column 'train'.*TensorDataset"),
    "names": ({0: torch.zeros(3), 1: torch.zeros(3)}, "not a text"),
    "a number": ((torch.zeros(()),), "column 0 is a single number"),
    "texts": (np.array(["a", "b"]), "the data set is an array of <U1"),
    "objects": ((np.array([object()]),), "column 0 is an array of object"),
    "no columns": ((), "empty"),
    "no named columns": ({}, "empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_neither_columns_nor_records_is_refused(name):
    rows, text = REFUSED[name]
    with pytest.raises(PlanError, match=text):
        columns_of(rows)


def test_what_is_printed_shows_nothing_of_the_columns():
    assert "777" not in repr(Columns(torch.full((3,), 777.0)))
