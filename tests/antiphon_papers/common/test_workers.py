"""Configurations on a real cluster of two worker processes."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest

from antiphon.errors import RunError
from antiphon_papers.common.reproduce import reproduce
from antiphon_papers.common.workers import mapped

ID = "kan-sgd-noise-growth"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache that the workers share with the tests that ask for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield os.environ["ANTIPHON_CACHE"]


@contextmanager
def _cluster(folder, workers):
    """The address of a scheduler with so many workers, each a process as a user starts it."""
    with ExitStack() as stack:

        def start(*arguments):
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        file = folder / "scheduler.json"
        start("scheduler", "--port=0", "--no-dashboard", f"--scheduler-file={file}")
        for _ in range(workers):
            start("worker", f"--scheduler-file={file}", "--nthreads=1", "--no-dashboard")
        yield _address(file, workers)


def _address(file, workers):
    from distributed import Client

    while not file.exists():
        time.sleep(0.05)
    with Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
        if workers:
            client.wait_for_workers(workers, timeout=60)
        return client.scheduler.address


@pytest.fixture(scope="module")
def cluster(cache, tmp_path_factory):
    with _cluster(tmp_path_factory.mktemp("cluster"), workers=2) as address:
        yield address


def test_results_come_with_their_places_from_the_workers(cluster):
    found = dict(mapped(os.getpid, [()] * 8, cluster=cluster))
    assert sorted(found) == list(range(8)) and os.getpid() not in found.values()
    assert dict(mapped(pow, [(2, n) for n in range(5)], cluster=cluster)) == {
        n: 2**n for n in range(5)
    }


def test_a_cluster_gives_the_rows_of_one_process_and_the_caller_keeps_them(
    cluster, cache, tmp_path, monkeypatch
):
    two = reproduce(ID, "ci", tmp_path / "two", cluster=cluster)
    monkeypatch.setenv("ANTIPHON_CACHE", cache)  # noise is calibrated once
    one = reproduce(ID, "ci", tmp_path / "one")
    assert two.rows == one.rows and two.computed == 2
    assert len([*(tmp_path / "two" / "kept").iterdir()]) == 2
    assert reproduce(ID, "ci", tmp_path / "two", cluster="tcp://nowhere:1").computed == 0


def test_an_error_of_a_configuration_is_that_of_the_caller(cluster):
    with pytest.raises(ZeroDivisionError):
        list(mapped(divmod, [(1, 1), (1, 0)], cluster=cluster))


def test_workers_that_die_are_one_clear_error(cluster):
    with pytest.raises(RunError, match=r"lost its workers: .* died .* What is done is kept"):
        list(mapped(os._exit, [(1,)], cluster=cluster))


def test_a_cluster_that_does_not_answer_is_one_clear_error(monkeypatch):
    monkeypatch.setattr("antiphon_papers.common.workers._PATIENCE", 0.5)
    for address in ("tcp://127.0.0.1:1", "no address"):
        with pytest.raises(
            RunError, match=r"no Dask scheduler answers at .* `dask worker ADDRESS`"
        ):
            list(mapped(pow, [(1, 1)], cluster=address))


def test_a_cluster_without_workers_is_one_clear_error(tmp_path):
    with (
        _cluster(tmp_path, workers=0) as address,
        pytest.raises(RunError, match="has no workers"),
    ):
        list(mapped(pow, [(1, 1)], cluster=address))


def test_a_cluster_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(RunError, match=r'pip install "antiphon\[cluster\]"'):
        list(mapped(pow, [(1, 1)], cluster="tcp://127.0.0.1:1"))


def test_results_are_handed_over_as_they_are_done():
    seen = []

    def slow(n):
        seen.append(n)
        return n

    results = mapped(slow, [(n,) for n in range(3)])
    assert next(results) == (0, 0) and seen == [0]
    assert [*results] == [(1, 1), (2, 2)]
