"""Anything that has rows, read one row at a time."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

from antiphon.errors import PlanError, RunError, UnsupportedError
from antiphon.training.run.dataset import Dataset, as_dataset


class Records(torch.utils.data.Dataset):
    """As Hugging Face's: rows, columns and slices by square brackets, and several rows at once."""

    def __init__(self, n=4):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, row):
        assert type(row) is int
        return {"x": torch.full((2,), float(row)), "y": row}

    def __getitems__(self, rows):
        raise AssertionError("several rows were asked for")


def test_rows_become_batches_of_one():
    one = Dataset(Records()).one(3)
    assert one["x"].tolist() == [[3.0, 3.0]] and one["y"].tolist() == [3]
    x, y = Dataset((np.eye(3), np.arange(3))).one(2)
    assert x.tolist() == [[0.0, 0.0, 1.0]] and y.tolist() == [2]
    assert Dataset(torch.arange(3)).one(1).tolist() == [1]


def test_a_list_of_tensors_is_a_list_of_records():
    records = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])]
    dataset = Dataset(records)
    assert len(dataset) == 2 and dataset.one(1).tolist() == [[4.0, 5.0, 6.0]]
    assert len(Dataset(tuple(records))) == 3  # columns


def test_data_sets_of_torch_are_read_by_row():
    x = torch.arange(6.0).view(3, 2)
    whole = TensorDataset(x)
    for rows in (whole, Subset(whole, [0, 1, 2]), ConcatDataset([whole])):
        assert len(Dataset(rows)) == 3 and torch.equal(Dataset(rows).one(1)[0], x[1:2])


def test_collate_is_given_a_list_of_one_row():
    seen = []

    def collate(rows):
        seen.append(rows)
        return pad_sequence(rows, batch_first=True)

    dataset = Dataset([torch.ones(2), torch.ones(5)], collate=collate, pad_to=6, pad_with=-1)
    assert dataset.one(0).tolist() == [[1, 1, -1, -1, -1, -1]]
    assert dataset.one(1).tolist() == [[1, 1, 1, 1, 1, -1]]
    assert [len(rows) for rows in seen] == [1, 1]


def test_columns_are_filled_and_collated_as_other_rows_are():
    x = torch.arange(4.0).view(2, 2)
    assert Dataset((x,), pad_to={0: 3}).one(1)[0].tolist() == [[2.0, 3.0, 0.0]]
    doubled = Dataset({"x": x}, collate=lambda rows: 2 * rows[0]["x"])
    assert doubled.one(1).tolist() == [4.0, 6.0]


def test_only_columns_as_they_are_are_read_at_once():
    x = torch.zeros(2, 2)
    assert Dataset((x,)).plain_columns is not None
    others = (Dataset([x]), Dataset((x,), pad_to=2), Dataset((x,), collate=lambda rows: rows[0][0]))
    assert all(dataset.plain_columns is None for dataset in others)


def test_a_row_that_is_longer_than_declared_is_refused():
    with pytest.raises(RunError, match="longer than declared"):
        Dataset([torch.ones(3)], pad_to=2).one(0)


def test_what_default_collate_does_not_know_is_refused_with_a_remedy():
    with pytest.raises(UnsupportedError, match=r"NoneType.*ap.Dataset\(rows, collate=...\)"):
        Dataset([(torch.ones(1), None)]).one(0)


def test_errors_of_the_users_own_collate_are_left_alone():
    def collate(rows):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        Dataset([1], collate=collate).one(0)


class Stream(IterableDataset):
    def __iter__(self):
        yield 1


class LongStream(Stream):
    def __len__(self):
        return 1


REFUSED = {
    "an iterable": (Stream(), UnsupportedError, "IterableDataset cannot be sampled"),
    "an iterable with a length": (LongStream(), UnsupportedError, "IterableDataset"),
    "a generator": ((i for i in range(3)), UnsupportedError, "generator has not both"),
    "a set": ({1, 2}, UnsupportedError, "set has not both"),
    "a text": ("rows", UnsupportedError, "str has not both"),
    "a loader": (DataLoader(TensorDataset(torch.zeros(2))), PlanError, "not the loader"),
    "a frame": (pd.DataFrame({"x": [1.0]}), UnsupportedError, r"DataFrame has columns.*to_numpy"),
    "a series": (pd.Series([1.0]), UnsupportedError, r"Series has columns.*to_numpy"),
    "frames": ((pd.DataFrame({"x": [1.0]}), pd.Series([1])), PlanError, r"column 0.*to_numpy"),
    "no rows": ([], PlanError, "empty"),
    "empty columns": ((torch.zeros(0, 5), torch.zeros(0)), PlanError, "empty"),
    "no columns": ((), PlanError, "empty"),
    "another Dataset": (Dataset([1]), PlanError, "rows themselves"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rows_by_number_is_refused(name):
    rows, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        Dataset(rows)


def test_a_filling_needs_a_length():
    for pad_with in (-100, {"labels": -100}):
        with pytest.raises(PlanError, match="pad_to declares none"):
            Dataset([torch.ones(1)], pad_with=pad_with)
    with pytest.raises(PlanError, match="pad_to must be a whole number"):
        Dataset([torch.ones(1)], pad_to=0)


def test_a_data_set_cannot_be_changed_and_shows_nothing():
    dataset = Dataset([torch.full((1,), 777.0)], user=["Jane"])
    assert repr(dataset) == "<Dataset: 1 rows, with users>"
    with pytest.raises(AttributeError):
        dataset.rows = []


def test_whatever_is_given_becomes_a_data_set_once():
    dataset = Dataset([1, 2], user=["a", "b"])
    assert as_dataset(dataset) is dataset
    assert len(as_dataset((torch.zeros(3),))) == 3 and as_dataset([1]).user is None
