"""Two real processes make the run of one: one draw, one noise, one key, and one refusal for both."""

import json
import os
import shutil
import signal
import time

import numpy as np
import pytest
import torch
from oracles.runs import Job, assert_same_bits, data, member, members, refusals, results, team

from antiphon.errors import PlanError, RunError, StateError, UnsupportedError
from antiphon.mechanisms import BLT, Independent, LambdaCGD
from antiphon.numerics import Generator
from antiphon.plans import FixedSize, Plan, Poisson
from antiphon.training.gradients import Adaptive

FULL = {"sampling": "full-batch", "batch_size": None}
CASES = {
    "independent": {"optimizer": "adam"},
    "λ-CGD": {"mechanism": LambdaCGD(0.7), "optimizer": "momentum", "sampling": "shuffled"},
    "few or no units": {"sampling": Poisson(0.02), "optimizer": "momentum"},
    "users": {"user": [row // 3 for row in range(40)], "batch_size": 4, "max_batch": 5},
    "adaptive": {"clipping": Adaptive(rate=1.0), "clip_norm": 0.3, "optimizer": "momentum"},
    "parts": {"max_batch": 3},
    "one after another": {"loss": "looking", "dropout": 0.5},
    "dropout": {"dropout": 0.5},
    "noise alone": {"loss": "zero", "mechanism": BLT((0.3, 0.2), (0.9, 0.4)), **FULL},
}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """All cases in two processes."""
    return results(*team(members, tmp_path_factory.mktemp("team"), options=CASES))


@pytest.fixture(scope="module")
def alone():
    """The same in one."""
    return {name: member(0, None, dict(options)) for name, options in CASES.items()}


every = pytest.mark.parametrize("name", CASES)


@every
def test_two_processes_train_as_one(name, both, alone):
    for found in both:
        for key, expected in alone[name]["weights"].items():
            torch.testing.assert_close(found[name]["weights"][key], expected, rtol=1e-5, atol=1e-6)
        assert found[name]["clip norm"] == pytest.approx(alone[name]["clip norm"], rel=1e-5)
        assert found[name]["steps"] == 10


def assert_same_certificate(found, expected):
    """Equal up to the last digits of ε and its curve: where arrays lie in memory orders their sums."""
    one, other = json.loads(found), json.loads(expected)
    for name in ("epsilon", "curve", "attacks"):
        flat = [np.ravel([*map(_values, [part.pop(name)])]) for part in (one, other)]
        np.testing.assert_allclose(flat[0], flat[1], rtol=1e-9, atol=1e-15)
    assert one == other


def _values(part):
    return list(part.values()) if isinstance(part, dict) else part


@every
def test_all_processes_end_with_the_same_bits_and_certificate(name, both, alone):
    first, second = (found[name] for found in both)
    for what in ("weights", "optimizer", "clip norm", "start"):
        assert_same_bits(second[what], first[what])
    assert first["certificate"] == second["certificate"]
    assert_same_certificate(first["certificate"], alone[name]["certificate"])
    assert_same_bits(
        first["start"], alone[name]["start"]
    )  # the models were initialised differently


@every
def test_the_batch_of_one_process_is_divided(name, both, alone):
    for one, *shares in zip(
        alone[name]["rows"], *(found[name]["rows"] for found in both), strict=True
    ):
        assert sorted(row for share in shares for row in share) == sorted(one)


def test_there_were_batches_without_units_and_with_fewer_than_processes(alone):
    sizes = [len(rows) for rows in alone["few or no units"]["rows"]]
    assert {0, 1} <= set(sizes)


def test_noise_is_added_once_to_the_last_bit(both, alone):
    assert_same_bits(both[0]["noise alone"]["weights"], alone["noise alone"]["weights"])


@every
def test_only_the_first_process_has_a_key_and_noise(name, both):
    root = Generator.seeded(7)
    noise = root.spawn("noise").key
    assert both[0][name]["has noise"]
    assert noise in both[0][name]["keys"]  # so the search finds it
    assert not both[1][name]["has noise"]
    assert not both[1][name]["noise"]
    assert not {root.key, noise} & both[1][name]["keys"]
    assert root.spawn("sampling").key in both[1][name]["keys"]


@every
def test_only_the_first_process_calls_back(name, both):
    assert both[0][name]["calls"] == list(range(1, 11))
    assert both[1][name]["calls"] == []


# checkpoints


@pytest.mark.parametrize("lost", [0, 1])
def test_the_loss_of_a_process_ends_the_other_and_both_can_resume(lost, tmp_path):
    options = {"steps": 30, "mechanism": LambdaCGD(0.7), "sampling": "shuffled", "checkpoint_every": 4,
               "optimizer": "momentum"}  # fmt: skip
    folder, journal = tmp_path / "run", tmp_path / "run" / "journal"
    processes, places = team(member, tmp_path, folder, options | {"pause": 0.05})
    wait_for(lambda: journal.exists() and journal.stat().st_size >= 24 * 6)
    os.kill(processes[lost].pid, signal.SIGKILL)
    began = time.monotonic()
    error = results(processes, places, within=30)[1 - lost]
    assert time.monotonic() - began < 20  # seconds; torch's own limit is half an hour
    assert isinstance(error, RunError)
    assert "another process of this run was lost" in str(error)
    assert "resume=True" in str(error)
    assert 6 <= journal.stat().st_size // 24 < 30

    found = results(*team(member, tmp_path, folder, options | {"resume": True, "model_seed": 5}))
    whole = results(*team(member, tmp_path, None, options))
    for again, expected in zip(found, whole, strict=True):
        for what in ("weights", "optimizer", "noise", "certificate"):
            assert_same_bits(again[what], expected[what])
    assert found[0]["calls"][0] > 4  # it did not start again
    assert [path.name for path in tmp_path.glob("run*")] == ["run"]  # only the first one wrote


def wait_for(what, within=60.0):
    end = time.monotonic() + within
    while not what():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


# what one process refuses, all refuse


BY_ROW = Plan(n=41, sampling=FixedSize(8), steps=4, mechanism=Independent(), noise_multiplier=1.0,
              relation="zero-out")  # fmt: skip


def test_no_process_waits_for_one_that_refused(tmp_path):
    Job(tmp_path / "run", checkpoint_every=3).train(2).close()
    job = Job(tmp_path / "other", checkpoint_every=3).train(5)  # in one process, so with other bits
    shutil.copytree(tmp_path / "other", tmp_path / "copy")
    job.close()
    short = tuple(part[:39] for part in data())
    bad = torch.utils.data.TensorDataset(*data())
    cases = {
        "the first one's noise": ({"noise_multiplier": [-1.0, 1.0]}, PlanError, "process 0: noise_mul"),
        "the second one's steps": ({"steps": [10, -3]}, PlanError, "process 1: steps"),
        "the second one's loading": ({"loading": [{}, {"x": 1}]}, PlanError, "process 1: loading has x"),
        "the second one's vector": (
            {"loss": ["plain", "vector"]}, UnsupportedError, "process 1: the loss of"
        ),
        "data": ({"examples": [bad, short]}, PlanError, "number of examples is 40 in process 0 and 39"),
        "clipping": ({"clipping": ["flat", "automatic"]}, PlanError, "clipping is Flat"),
        "every": ({"checkpoint_every": [3, 4]}, PlanError, "checkpoint_every is 3 in process 0 and 4"),
        "the second one's loss": (
            {"loss": ["plain", "looking"]}, PlanError, "how gradients are computed is"
        ),
        "by row": ({"plan": BY_ROW}, PlanError, "41 units"),
    }  # fmt: skip
    folders = {
        "a folder with a run": (tmp_path / "run", {}, StateError, "holds a run already"),
        "another optimizer": (
            tmp_path / "run", {"resume": True, "optimizer": "adam"}, StateError, "another optimizer"),
        "another gradient": (tmp_path / "copy", {"resume": True}, StateError, "a different gradient"),
    }  # fmt: skip
    first, second = results(
        *team(refusals, tmp_path, None, {name: case[0] for name, case in cases.items()})
    )
    for name, (_, kind, text) in cases.items():
        for error in (first[name], second[name]):
            assert isinstance(error, kind), (name, error)
        assert text in f"process 0: {first[name]} process 1: {second[name]}", name
    for folder, options, kind, text in folders.values():
        found = results(*team(refusals, tmp_path, folder, {"": options}))
        for errors in found:
            assert isinstance(errors[""], kind)
            assert text in str(errors[""])
    assert_goes_on(tmp_path)


def assert_goes_on(tmp_path):
    """What was refused has lost nothing."""
    job = Job(tmp_path / "copy", resume=True, checkpoint_every=3).train()
    assert_same_bits(job.left["weights"], Job().train().left["weights"])
    job.close()
