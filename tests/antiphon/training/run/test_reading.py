"""Rows are read one by one, in this process as in workers."""

import os
import random
import resource
import signal

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info

from antiphon.errors import PlanError, RunError, UnsupportedError
from antiphon.training.gradients import python_seeds
from antiphon.training.run.dataset import Dataset
from antiphon.training.run.reading import Reader, check_loading, read_ahead

KEY = bytes(range(32))


class Changed(torch.utils.data.Dataset):
    """Rows with a draw of each of the three global generators."""

    def __len__(self):
        return 9

    def __getitem__(self, row):
        return {"row": row, "torch": torch.rand(2), "numpy": np.random.rand()}  # noqa: NPY002


def collate(rows):
    (row,) = rows
    return {
        "row": torch.tensor([row["row"]]),
        "all": torch.cat([row["torch"], torch.tensor([row["numpy"], random.random()])])[None],
    }


def changed():
    return Reader(Dataset(Changed(), collate=collate), KEY)


def states():
    kind, words, *rest = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), (kind, words.tolist(), *rest), random.getstate()


def test_random_changes_depend_on_key_step_and_row_alone():
    def read(step, rows, key=KEY):
        examples = Reader(Dataset(Changed(), collate=collate), key).read(step, torch.tensor(rows))
        return dict(zip(rows, examples.kwargs["all"], strict=True))

    together, fewer = read(5, [1, 4, 7]), read(5, [7, 4])
    assert all(torch.equal(fewer[row], together[row]) for row in (4, 7))
    others = [together[4], together[7], read(6, [1])[1], read(5, [1], bytes(32))[1]]
    assert all((other != together[1]).all() for other in others)


def test_rows_are_read_under_the_seeds_of_step_and_row():
    examples = changed().read(3, torch.tensor([8, 2]))
    for place, row in enumerate([8, 2]):
        with python_seeds(KEY, 3, row):
            own = collate([Changed()[row]])
        assert torch.equal(examples.one(place)[1]["all"], own["all"])


def test_the_processs_own_generators_are_as_they_were():
    before = states()
    changed().read(0, torch.tensor([1, 2]))
    assert states() == before
    list(read_ahead(changed(), [(0, [1]), (1, [2])], {"num_workers": 2}))
    assert states()[:2] == before[:2]  # beartype draws from Python's to check lists


def test_generators_are_put_back_when_a_row_cannot_be_read():
    def broken(rows):
        torch.rand(1), random.random()
        raise KeyError("row")

    before = states()
    with pytest.raises(KeyError):
        Reader(Dataset([1], collate=broken), KEY).read(0, torch.tensor([0]))
    assert states() == before


def test_each_row_is_read_once_in_the_order_of_the_request_and_collated_alone():
    log = []

    class Logged:
        def __len__(self):
            return 9

        def __getitem__(self, row):
            log.append(row)
            return torch.tensor([row])

        def __getitems__(self, rows):
            raise AssertionError("several rows were asked for")

    def noted(rows):
        log.append([int(row) for row in rows])
        return torch.stack(rows)

    reader = Reader(Dataset(Logged(), collate=noted), KEY)
    examples = reader.read(0, torch.tensor([7, 1, 7]))
    assert log == [7, [7], 1, [1], 7, [7]]
    assert examples.args[0].tolist() == [[[7]], [[1]], [[7]]]


def mixed(rows):
    """MixUp within whatever batch it sees, padded to the longest."""
    x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return 0.5 * x + 0.5 * x.roll(1, 0)


def test_a_collate_function_that_mixes_its_batch_mixes_nothing():
    records = [torch.full((4,), float(row)) for row in range(5)]
    examples = Reader(Dataset(records, collate=mixed), KEY).read(0, torch.tensor([0, 2, 4]))
    assert torch.equal(examples.args[0].squeeze(1), torch.stack([records[i] for i in (0, 2, 4)]))


LOADING = {
    "two workers": {"num_workers": 2},
    "one worker, far ahead": {"num_workers": 1, "prefetch_factor": 5},
    "kept workers": {"num_workers": 2, "persistent_workers": True, "timeout": 60},
    "no workers, by a loader": {"num_workers": 0},
    "spawned": {"num_workers": 2, "multiprocessing_context": "spawn"},
}


@pytest.mark.parametrize("name", LOADING)
def test_workers_read_the_same_as_this_process(name):
    requests = [(step, [step, 8, 3]) for step in range(6)]
    found = list(read_ahead(changed(), requests, LOADING[name]))
    assert len(found) == len(requests)
    for (step, rows), examples in zip(requests, found, strict=True):
        expected = changed().read(step, torch.tensor(rows))
        assert examples.kwargs.keys() == expected.kwargs.keys()
        assert all(torch.equal(examples.kwargs[k], expected.kwargs[k]) for k in expected.kwargs)


def test_columns_are_read_by_workers_too():
    x = torch.arange(8.0).view(4, 2)
    (examples,) = read_ahead(Reader(Dataset((x,)), KEY), [(0, [3, 1])], {"num_workers": 1})
    assert torch.equal(examples.args[0], x[[3, 1]].unsqueeze(1))


def few_files(worker):
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))


def test_a_worker_reads_more_rows_than_it_may_open_files():
    records = [(torch.full((3,), float(row)), row) for row in range(300)]
    options = {"num_workers": 1, "worker_init_fn": few_files}
    request = (0, list(range(300)))
    (examples,) = read_ahead(Reader(Dataset(records), KEY), [request], options)
    assert examples.args[1].flatten().tolist() == list(range(300))


class Named:
    """Rows that need what a worker's first function sets."""

    name = None

    def __len__(self):
        return 4

    def __getitem__(self, row):
        same = get_worker_info().dataset is self
        return torch.tensor([float(self.name), float(same)])


def begin(worker):
    get_worker_info().dataset.name = 10 + worker


def test_a_workers_first_function_finds_the_users_own_data_set():
    options = {"num_workers": 2, "worker_init_fn": begin}
    found = list(read_ahead(Reader(Dataset(Named()), KEY), [(0, [0]), (1, [1])], options))
    assert [examples.args[0].flatten().tolist() for examples in found] == [[10, 1], [11, 1]]


class Broken:
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 4

    def __getitem__(self, row):
        if row < 2:
            return torch.zeros(1)
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "refused":
            return torch.zeros(2)
        raise KeyError("secret 777")


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raises", RunError, "a worker that reads rows failed with KeyError"),
        ("killed", RunError, "a worker that reads rows failed with RuntimeError"),
        ("refused", UnsupportedError, r"^batch has shape \(1, 1\) for one row and \(1, 2\)[^\n]*$"),
    ],
)
def test_a_workers_failure_is_one_clear_line(how, kind, text):
    reader = Reader(Dataset(Broken(how)), KEY)
    with pytest.raises(kind, match=text) as failure:
        list(read_ahead(reader, [(0, [0, 1]), (1, [1, 2])], {"num_workers": 1}))
    assert "777" not in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.parametrize("loading", [None, {"num_workers": 0}])
def test_in_this_process_the_users_own_error_comes_out(loading):
    reader = Reader(Dataset(Broken("raises")), KEY)
    with pytest.raises(KeyError, match="secret"):
        if loading is None:
            reader.read(0, torch.tensor([3]))
        else:
            next(read_ahead(reader, [(0, [3])], loading))


def test_what_cannot_be_sent_to_a_worker_is_said_so():
    reader = Reader(Dataset([1], collate=lambda rows: torch.tensor(rows)), KEY)
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    with pytest.raises(RunError, match=r"could not be started.*at the top of a module"):
        next(read_ahead(reader, [(0, [0])], options))


REFUSED = {
    "collate_fn": ({"collate_fn": mixed}, r"ap.Dataset\(rows, collate=...\)"),
    "batches": ({"batch_size": 5, "shuffle": True}, "batch_size, shuffle.*drawn by the run"),
    "a sampler": ({"sampler": [1]}, "sampler.*drawn by the run"),
    "order": ({"num_workers": 2, "in_order": False}, "in_order=False"),
    "a value": ({"timeout": -1}, "loading cannot be used: timeout"),
    "a value without workers": ({"prefetch_factor": 2}, "loading cannot be used: prefetch_factor"),
    "a type": ({"num_workers": "2"}, "loading cannot be used"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_would_choose_rows_or_cannot_be_used_are_refused(name):
    loading, text = REFUSED[name]
    with pytest.raises(PlanError, match=text):
        check_loading(loading)


def test_what_is_printed_shows_no_key():
    assert "00" not in repr(Reader(Dataset([1]), bytes(32))).split(" at ")[0]


class Augmented:
    """Rows are changed by a generator of the data set's own, of which some rows draw more."""

    def __init__(self, generator, greedy):
        self.generator, self.greedy = generator, greedy

    def __len__(self):
        return 9

    def __getitem__(self, row):
        if row == self.greedy:
            self.generator.random()
        return torch.tensor([self.generator.random(), float(row)])


class Lazy:
    """A collate function that makes its generator when it is first called, as Hugging Face's do."""

    generator = None

    def __call__(self, rows):
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(42)
        return torch.stack(rows)[None][0] + torch.rand(1, generator=self.generator)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [np.random.default_rng, random.Random])
def test_a_generator_of_the_data_set_carries_nothing_from_row_to_row(make, workers):
    def read(greedy, rows):
        reader = Reader(Dataset(Augmented(make(0), greedy)), KEY)
        (examples,) = read_ahead(reader, [(5, rows)], {"num_workers": workers})
        return dict(zip(rows, examples.args[0].tolist(), strict=True))

    plain, other = read(None, [1, 4, 7, 2]), read(4, [1, 4, 7, 2])
    assert plain[4] != other[4]
    assert all(plain[row] == other[row] for row in (1, 7, 2))
    assert read(None, [7, 2])[7] == plain[7]


def test_a_generator_that_is_made_for_the_first_row_is_set_for_the_next():
    rows = [torch.tensor([float(i)]) for i in range(5)]
    found = [
        Reader(Dataset(rows, collate=Lazy()), KEY).read(0, torch.tensor(places)).args[0]
        for places in ([0, 3, 4], [1, 3, 4])
    ]
    assert torch.equal(found[0][1:], found[1][1:])
