"""The batches of a run and their examples."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import Draws, FullBatch, Poisson, Recorded, ShuffledEpochs
from antiphon.training.run.batches import Batches
from antiphon.training.run.dataset import Dataset
from antiphon.training.run.unit_rows import Rows

KEY = bytes(range(32))
N = 20
X, Y = torch.arange(3.0 * N).view(N, 3), torch.arange(N)


class Noisy(torch.utils.data.Dataset):
    """Rows with random changes."""

    def __len__(self):
        return N

    def __getitem__(self, row):
        return X[row] + torch.randn(3), np.random.rand(), row  # noqa: NPY002


def batches(rows=None, sampling=None, *, user=None, max_batch=None, key=KEY, **options):
    dataset = (
        rows if isinstance(rows, Dataset) else Dataset((X, Y) if rows is None else rows, user=user)
    )
    units = Rows(len(dataset), dataset.user)
    draws = Draws(sampling or Poisson(rate=0.3), units.count, Generator.seeded(0))
    return Batches(dataset, draws, units, max_batch=max_batch, key=key, **options)


def all_equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def same(one, other):
    """Whether two loads are equal bit for bit."""
    one, other = list(one), list(other)
    for (a, x), (b, y) in zip(one, other, strict=True):
        if (a.step, a.is_last, a.rows.tolist()) != (b.step, b.is_last, b.rows.tolist()):
            return False
        if (x is None) != (y is None):
            return False
        if x is not None and not all_equal(x.args, y.args):
            return False
    return True


users = st.one_of(st.none(), st.lists(st.integers(0, 5), min_size=N, max_size=N))


@given(users, st.integers(1, 25), st.integers(1, 3), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_parts_divide_every_batch_among_processes_and_memory(user, max_batch, world, rate):
    units = Rows(N, user)
    sampling = Poisson(rate) if 0 < rate < 1 else FullBatch() if rate else Recorded(((), (), (0,)))
    if max_batch < units.most:
        with pytest.raises(PlanError, match="do not fit into max_batch"):
            batches(user=user, sampling=sampling, max_batch=max_batch)
        return
    for step in range(2):
        drawn = Draws(sampling, units.count, Generator.seeded(0)).rows(step)
        for rank in range(world):
            share = drawn[rank::world]
            parts = batches(
                user=user, sampling=sampling, max_batch=max_batch, share=(rank, world)
            ).parts(step)
            assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
            assert all(part.step == step and len(part.rows) <= max_batch for part in parts)
            rows = torch.cat([part.rows for part in parts])
            assert rows.dtype is torch.int64 and torch.equal(rows, units.of(share)[0])
            assert (parts[0].units is None) == (user is None)
            if user is not None:
                assert sum(part.units.count for part in parts) == len(share)
                for part in parts:  # a user's rows stay together
                    owners = [user[row] for row in part.rows]
                    assert len(set(owners)) == part.units.count
                    assert all(
                        (owners[i] == owners[j]) == bool(part.units.of_row[i] == part.units.of_row[j])
                        for i in range(len(owners)) for j in range(i)
                    )  # fmt: skip


@pytest.mark.parametrize("max_batch", [None, 1, 4])
def test_parts_come_with_the_examples_of_their_rows(max_batch):
    seen = 0
    for part, examples in batches(max_batch=max_batch).load(0, 6):
        assert torch.equal(examples.args[0], X[part.rows].unsqueeze(1))
        assert torch.equal(examples.args[1], Y[part.rows].unsqueeze(1))
        assert not examples.kwargs and len(examples) == len(part.rows)
        seen += part.is_last
    assert seen == 6


def test_rows_of_mappings_come_by_name():
    for rows in ({"x": X, "y": Y}, [{"x": x, "y": y} for x, y in zip(X, Y, strict=True)]):
        part, examples = next(batches(rows).load(0, 1))
        assert examples.args == () and torch.equal(examples.kwargs["x"], X[part.rows].unsqueeze(1))
        assert torch.equal(examples.kwargs["y"], Y[part.rows].unsqueeze(1))


LOADING = [None, {"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "prefetch_factor": 4}]


@pytest.mark.parametrize("loading", LOADING)
@pytest.mark.parametrize("max_batch", [None, 3])
def test_loading_from_any_step_is_as_if_it_had_begun_there(loading, max_batch):
    options = {"max_batch": max_batch, "user": [row // 2 for row in range(N)]}
    if max_batch is None:
        options["sampling"] = ShuffledEpochs(batch=4, reshuffle=True)
    whole = list(batches(Noisy(), **options).load(0, 5))
    for first in (0, 3):
        later = [found for found in whole if found[0].step >= first]
        assert same(batches(Noisy(), loading=loading, **options).load(first, 5), later)
    assert not same(batches(Noisy(), key=bytes(32), **options).load(0, 5), whole)


def test_leaving_a_loop_changes_nothing_of_the_next():
    loaded = batches(Noisy(), loading={"num_workers": 2})
    whole = list(batches(Noisy()).load(0, 4))
    next(loaded.load(0, 4))
    assert same(loaded.load(0, 4), whole)


def test_processes_read_what_one_would_have_read():
    whole = {
        (part.step, int(row)): x
        for part, found in batches(Noisy()).load(0, 3)
        for row, x in zip(part.rows, found.args[0], strict=True)
    }
    shared = {
        (part.step, int(row)): x
        for rank in range(3)
        for part, found in batches(Noisy(), share=(rank, 3)).load(0, 3)
        for row, x in zip(part.rows, found.args[0], strict=True)
    }
    assert whole.keys() == shared.keys()
    assert all(torch.equal(whole[place], shared[place]) for place in whole)


class Unreadable:
    def __len__(self):
        return N

    def __getitem__(self, row):
        raise AssertionError("a row was read")


@pytest.mark.parametrize("loading", LOADING)
def test_an_empty_batch_reads_no_row(loading):
    nobody = Recorded(((), (), (0,)))
    found = list(batches(Unreadable(), nobody, loading=loading).load(0, 2))
    assert [(part.step, len(part.rows), part.is_last, x) for part, x in found] == [
        (0, 0, True, None), (1, 0, True, None),
    ]  # fmt: skip
    mixed = Recorded(((), (3,), (), (1, 2)))
    found = list(batches(Noisy(), mixed, loading=loading).load(0, 4))
    assert [None if x is None else x.args[2].flatten().tolist() for _, x in found] == [
        None, [3], None, [1, 2],
    ]  # fmt: skip


@given(st.lists(st.integers(0, N - 1), min_size=1, max_size=6, unique=True), st.data())
def test_an_example_does_not_depend_on_others_in_the_batch(drawn, data):
    fewer = data.draw(st.lists(st.sampled_from(drawn), min_size=1, unique=True))
    of_all, of_fewer = (
        next(batches(Noisy(), Recorded((tuple(rows),))).load(0, 1))[1] for rows in (drawn, fewer)
    )
    for place, row in enumerate(fewer):
        one, other = of_fewer.one(place)[0], of_all.one(drawn.index(row))[0]
        assert all_equal(one, other)


def test_texts_of_any_length_are_filled_to_the_declared_one_in_workers():
    texts = [{"words": torch.arange(1, 2 + row % 5)} for row in range(N)]
    dataset = Dataset(texts, pad_to={"words": 6}, pad_with=-100)
    for part, examples in batches(dataset, loading={"num_workers": 2}).load(0, 2):
        for place, row in enumerate(part.rows.tolist()):
            words = texts[row]["words"].tolist()
            expected = words + [-100] * (6 - len(words))
            assert examples.kwargs["words"][place].tolist() == [expected]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_batch": 0}, "max_batch must be a whole number"),
        ({"user": ["a"] * N, "max_batch": 5}, "one user has 20 examples"),
        ({"loading": {"collate_fn": list}}, "collate_fn is not an option"),
        ({"loading": {"num_workers": 2, "in_order": False}}, "in_order"),
    ],
)
def test_batches_that_cannot_be_loaded_are_refused_at_once(options, text):
    with pytest.raises(PlanError, match=text):
        batches(**options)
