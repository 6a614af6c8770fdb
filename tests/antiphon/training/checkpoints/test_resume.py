"""A run that was interrupted, at any moment and in any way, ends as if it had not been."""

import random
import shutil
import time

import numpy as np
import pytest
import torch
from oracles.runs import Job, assert_same_bits, data, in_process, train_in_process

from antiphon.errors import RunError, StateError
from antiphon.mechanisms import (
    BLT,
    FFT,
    Banded,
    BandedInverse,
    Dense,
    FullHonaker,
    Honaker,
    LambdaCGD,
    NuFTRL,
    Restarted,
    Tree,
)
from antiphon.plans import BallsInBins, CyclicPoisson, FixedSize, Poisson, ShuffledEpochs
from antiphon.training.gradients import Adaptive

FULL = {"sampling": "full-batch", "batch_size": None}
SHUFFLED = {"sampling": "shuffled"}
ENCODER = np.tril(np.random.default_rng(0).uniform(size=(6, 6))) + np.eye(6)


class Augmented(torch.utils.data.Dataset):
    """Rows with noise from torch's and NumPy's global generators (beartype uses Python's)."""

    def __init__(self):
        self.x, self.y = data()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row] + 0.1 * torch.randn(3) + np.random.rand(), self.y[row]  # noqa: NPY002


CASES = {
    "sgd": {},
    "momentum": {"optimizer": "momentum"},
    "adam": {"optimizer": "adam", "dropout": 0.5},
    "adamw and a scheduler": {"optimizer": "adamw", "dropout": 0.3, "scheduled": True},
    "dropout": {"dropout": 0.5, "optimizer": "momentum"},
    "one after another": {"loss": "looking", "optimizer": "momentum"},
    "one after another, with dropout, users and parts": {
        "loss": "looking", "dropout": 0.5, "user": [row // 3 for row in range(40)], "batch_size": 4,
        "max_batch": 5},
    "augmented data": {"examples": Augmented(), "dropout": 0.5, "optimizer": "momentum"},
    "augmented data, in a worker": {
        "examples": Augmented(), "dropout": 0.5, "loading": {"num_workers": 1}, "steps": 3},
    "adaptive clipping": {"clipping": "adaptive", "optimizer": "adam"},
    "adaptive clipping, correlated": {
        "clipping": Adaptive(rate=1.0), "mechanism": LambdaCGD(0.6), **FULL},
    "automatic clipping": {"clipping": "automatic"},
    "per-layer clipping": {"clipping": "per-layer"},
    "parts": {"max_batch": 3, "optimizer": "momentum"},
    "users": {"user": [row // 4 for row in range(40)], "batch_size": 3, "max_batch": 5},
    "a secure key": {"seed": None, "optimizer": "adam"},
    "a secure key, correlated": {"seed": None, "mechanism": BLT((0.3, 0.2), (0.9, 0.4)), **FULL},
    "λ-CGD": {"mechanism": LambdaCGD(0.7), "optimizer": "momentum", **SHUFFLED},
    "λ = 1": {"mechanism": LambdaCGD(1.0), **FULL},
    "blt": {"mechanism": BLT((0.3, 0.2), (0.9, 0.4)), "dropout": 0.5, **SHUFFLED},
    "banded": {"mechanism": Banded((1.0, 0.5, 0.25)), **SHUFFLED},
    "banded inverse": {"mechanism": BandedInverse((1.0, -0.6, 0.1)), **FULL},
    "tree": {"mechanism": Tree(), "optimizer": "adamw", **FULL},
    "honaker": {"mechanism": Honaker(), **FULL},
    "full honaker": {"mechanism": FullHonaker(), **FULL},
    "fft": {"mechanism": FFT(), **FULL},
    "ν": {"mechanism": NuFTRL(0.05), **FULL},
    "dense": {"mechanism": Dense(ENCODER), **FULL},
    "restarted": {"mechanism": Restarted(NuFTRL(0.0), 2), **FULL},
    "fixed-size": {"sampling": FixedSize(8)},
    "reshuffled": {"sampling": ShuffledEpochs(16, reshuffle=True)},
    "cyclic": {"sampling": CyclicPoisson(rate=0.5, cycle=3)},
    "balls in bins": {"sampling": BallsInBins(5), "mechanism": LambdaCGD(0.5)},
    "small batches, some of them empty": {"sampling": Poisson(0.02), "optimizer": "momentum"},
}  # fmt: skip


OFTEN = [
    "momentum",
    "λ-CGD",
    "users",
    "one after another",
]  # resumed at every step in the default suite, too


@pytest.mark.parametrize("name", CASES)
def test_a_run_resumes_from_its_middle_to_the_last_bit(name, tmp_path):
    _check_resumed(name, tmp_path, [3])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in OFTEN)) for name in CASES],
)
def test_a_run_resumes_from_every_checkpoint_to_the_last_bit(name, tmp_path):
    _check_resumed(name, tmp_path, range(CASES[name].get("steps", 6) + 1))


def _check_resumed(name, tmp_path, steps):
    options = {"steps": 6, "checkpoint_every": 1} | CASES[name]
    job, copies = Job(tmp_path / "run", **options), []

    def copy(*_):
        """As a crash would leave it before the update: the step is in the journal already."""
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(tmp_path / "run", copies[-1])

    handle = job.optimizer.register_step_pre_hook(copy)
    job.train()
    handle.remove()
    shutil.copytree(tmp_path / "run", tmp_path / "end")
    expected = job.left
    job.close()
    copies.append(tmp_path / "end")
    for step in steps:
        again = Job(copies[step], resume=True, model_seed=5, **options)
        assert again.run.steps_taken == step
        assert again.run.certificate == job.run.certificate
        assert type(again.run.path) is type(job.run.path)
        assert_same_bits(again.train().left, expected)
        again.close()


def test_workers_augment_a_row_again_in_every_step():
    job = Job(examples=Augmented(), loading={"num_workers": 1}, sampling="full-batch")
    parts = list(zip(range(2), job.run._batches.load(0, 2), strict=False))
    first, second = (examples.args[0] for _, (_, examples) in parts)
    assert not (first == second).any()


def test_global_generators_are_left_alone():
    def draw():
        return np.random.randn(), np.random.randn(), float(torch.rand(1))  # noqa: NPY002

    for options in ({}, {"dropout": 0.5, "loss": "looking", "examples": Augmented()}):
        job, found = Job(**options), []
        for steps in (0, 2):
            np.random.seed(1)  # noqa: NPY002
            torch.manual_seed(1)
            job.train(steps)
            found.append(draw())
        assert found[0] == found[1]


def test_checkpoints_change_nothing(tmp_path):
    options = {"dropout": 0.5, "optimizer": "adam", "scheduled": True}
    plain = Job(**options).train()
    kept = Job(tmp_path / "run", **options).train()
    assert_same_bits(kept.left, plain.left)
    kept.close()


def test_steps_since_the_last_checkpoint_are_repeated(tmp_path):
    options = {"dropout": 0.5, "checkpoint_every": 4, "optimizer": "adam", "scheduled": True}
    expected = Job(**options).train()
    job = Job(tmp_path / "run", **options).train(7)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")  # as a crash would leave it
    again = Job(tmp_path / "copy", resume=True, **options)
    assert again.run.steps_taken == 4
    assert_same_bits(again.train().left, expected.left)
    again.close()
    job.close()


def test_a_due_checkpoint_has_what_the_loop_did_after_the_step(tmp_path):
    # A scheduler of epochs steps between two loops.
    def epochs(job):
        while job.run.steps_taken < 8:
            job.train(4 - job.run.steps_taken % 4)
            job.scheduler.step()
        return job

    options = {"steps": 8, "checkpoint_every": 4}
    expected = epochs(Job(**options)).left["weights"]
    job = Job(tmp_path / "run", scheduled=True, **options)
    job.scheduled = False
    job.train(4)
    shutil.copytree(tmp_path / "run", tmp_path / "before")  # killed before the scheduler's step
    job.scheduler.step()
    job.train(2)
    shutil.copytree(tmp_path / "run", tmp_path / "after")
    job.close()
    for copy, step in (("before", 0), ("after", 4)):
        again = Job(tmp_path / copy, resume=True, scheduled=True, **options)
        again.scheduled = False
        assert again.run.steps_taken == step
        assert_same_bits(epochs(again).left["weights"], expected)
        again.close()


def test_closing_writes_a_checkpoint_that_is_due_unless_an_exception_ends_the_run(tmp_path):
    for name, is_broken in (("whole", False), ("broken", True)):
        job = Job(tmp_path / name, checkpoint_every=2)
        try:
            with job.run as run:
                for _ in run.take(show=False):
                    if run.steps_taken == 2:
                        assert not is_broken, "an accident"
                        break
        except AssertionError:
            pass
        again = Job(tmp_path / name, resume=True, checkpoint_every=2)
        assert again.run.steps_taken == (0 if is_broken else 2)
        again.close()


# real processes, really killed


def records(folder):
    journal = folder / "journal"
    return journal.stat().st_size // 24 if journal.exists() else 0


def test_a_process_killed_again_and_again_ends_as_one_that_was_not(tmp_path):
    options = {"steps": 30, "checkpoint_every": 3, "dropout": 0.5, "optimizer": "adamw",
               "scheduled": True, "mechanism": LambdaCGD(0.7), "sampling": "shuffled"}  # fmt: skip
    folder, out = tmp_path / "run", tmp_path / "out"
    began, delays = tmp_path / "out.began", random.Random(1)
    options["pause"] = 0.02
    taken = [0]
    for _ in range(8):
        began.unlink(missing_ok=True)
        process = in_process(train_in_process, folder, out, options)
        # Killed by what it has done, not by the clock: a busy machine may not come far in any given time.
        target = taken[-1] + delays.randint(0, 5)
        while process.is_alive() and not (began.exists() and records(folder) >= target):
            time.sleep(0.002)
        time.sleep(delays.uniform(0.0, 0.02))
        process.kill()
        process.join()
        recorded = records(folder)
        if began.exists() and began.read_text():
            # The checkpoint that this process found is at most 3 steps behind what was recorded.
            assert taken[-1] - 3 <= int(began.read_text()) <= taken[-1]
        taken.append(recorded)
        if out.exists():
            break
    assert taken[-1] > 3, "no process came far enough to be worth killing"
    process = in_process(train_in_process, folder, out, options)
    process.join(60)
    assert process.exitcode == 0
    actual = torch.load(out, weights_only=False)
    del options["pause"]
    torch.set_num_threads(1)
    assert_same_bits(actual, Job(**options).train().left)
    assert records(folder) == 30


# noise is never used twice


@pytest.fixture
def interrupted(tmp_path):
    """A run of which the steps 3 and 4 are in the journal only."""
    job = Job(tmp_path / "run", checkpoint_every=3).train(5)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    job.close()
    return tmp_path / "copy"


OTHER = {
    "data": {"examples": (data()[0] + 0.01, data()[1])},
    "one label": {"examples": (data()[0], torch.cat([1 - data()[1][:30], data()[1][30:]]))},
    "loss": {"loss": "other"},
}


@pytest.mark.parametrize("name", OTHER)
def test_the_same_noise_is_not_added_to_another_gradient(name, interrupted):
    journal, checkpoint = interrupted / "journal", interrupted / "checkpoint.safetensors"
    before = journal.read_bytes(), checkpoint.read_bytes()
    job = Job(interrupted, resume=True, checkpoint_every=3, **OTHER[name])
    start = job.left
    with pytest.raises(StateError, match="step 3 would add the same noise to a different gradient"):
        job.train()
    assert_same_bits(job.left, start)
    assert all(parameter.grad is None for parameter in job.model.parameters())
    with pytest.raises(StateError, match="step 3 would add the same noise"):
        job.train()
    job.close()
    assert (journal.read_bytes(), checkpoint.read_bytes()) == before
    again = Job(interrupted, resume=True, checkpoint_every=3)
    assert_same_bits(again.train().left, Job().train().left)
    again.close()


def test_the_same_gradient_with_another_scale_of_noise_is_another_one(tmp_path):
    # g + sz and g + s'z show z. Here no gradient is clipped, so that g does not depend on the clip norm.
    job = Job(tmp_path / "run", clipping=Adaptive(), clip_norm=100.0)
    digests = []
    part, examples = next(job.run.parts(1))
    for piece in job.run.path.pieces(part.step, part.rows, examples):
        job.run.add(piece)
    for norm in (100.0, 50.0):
        job.run._total.clip_norm = norm
        digests.append(job.run._total.digest())
    assert digests[0] != digests[1] != job.run._total.total.digest()
    job.close()


@pytest.mark.parametrize("place", range(4))
def test_the_digest_changes_with_any_number_of_the_sum(place):
    # An earlier digest was a sum with multipliers 1, 3, 5, ...: -3 and 1 in neighbours cancelled.
    total = Job().run._total
    words = total.total.value().view(torch.int32)
    seen = {total.digest()}
    for change in ((1, 0), (-3, 1), (0, 1), (-1, 0)):
        words[place : place + 2] = torch.tensor(change, dtype=torch.int32)
        seen.add(total.digest())
    assert len(seen) == 5
    assert all(0 <= digest < 2**64 for digest in seen)


# accidents within a process


def test_a_run_whose_update_failed_resumes_from_its_checkpoint_only(tmp_path):
    job = Job(tmp_path / "run", checkpoint_every=1)
    original, calls = job.optimizer.step, iter(range(100))

    def failing():
        if next(calls) == 2:
            raise MemoryError("an accident")
        original()

    job.optimizer.step = failing
    with pytest.raises(MemoryError):
        job.train()
    for again in (job.train, job.run.save, job.run.finish_part):
        with pytest.raises(RunError, match="interrupted after its noise was drawn"):
            again()
    job.close()
    job = Job(tmp_path / "run", resume=True, checkpoint_every=1)
    assert job.run.steps_taken == 2
    assert_same_bits(job.train().left, Job().train().left)
    job.close()


def test_a_part_that_failed_is_not_added_twice(monkeypatch):
    job = Job(max_batch=3)
    add, calls = job.run._total.add, iter(range(100))

    def failing(*args):
        add(*args)
        if next(calls) == 1:
            raise MemoryError("an accident")

    monkeypatch.setattr(job.run._total, "add", failing)
    loop = iter(job.run)
    with pytest.raises(MemoryError):
        list(loop)
    assert list(loop) == [] and job.run.steps_taken == 0
    with pytest.raises(RunError, match=r"a checkpoint is written between steps|has no folder"):
        job.run.save()
    assert_same_bits(job.train().left, Job(max_batch=3).train().left)


def test_a_part_that_failed_must_be_left(monkeypatch):
    job = Job(max_batch=3)
    parts = job.run.parts(2)
    part, examples = next(parts)
    piece = next(job.run.path.pieces(part.step, part.rows, examples))
    with monkeypatch.context() as patch:
        patch.setattr(job.run._total, "add", None)
        with pytest.raises(TypeError):
            job.run.add(piece)
    with pytest.raises(RunError, match="Leave the loop and begin another"):
        next(parts)
    assert_same_bits(job.train().left, Job(max_batch=3).train().left)


def test_a_checkpoint_is_written_between_steps(tmp_path):
    job = Job(tmp_path / "run")
    next(job.run.parts(1))
    with pytest.raises(RunError, match="between steps"):
        job.run.save()
    for _ in job.run:
        job.run.save()
        break
    job.close()
    again = Job(tmp_path / "run", resume=True)
    assert again.run.steps_taken == 1
    assert_same_bits(again.train().left, Job().train().left)
    again.close()


def test_steps_after_the_checkpoint_that_were_lost_count_among_those_taken(tmp_path):
    # Their results may have been seen before the crash.
    job = Job(tmp_path / "run", checkpoint_every=3)
    job.train(5)
    job.run.detach()
    job = Job(tmp_path / "run", resume=True, checkpoint_every=3)
    assert job.run.steps_taken == 3
    assert job.run.certify_steps_taken(stop_was_independent=True).plan.steps == 5
    job.train(4)
    assert job.run.certify_steps_taken(stop_was_independent=True).plan.steps == 7
    job.close()
