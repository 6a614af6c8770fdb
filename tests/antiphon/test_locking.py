"""The one lock of runs."""

import os
import stat

import pytest

from antiphon.errors import StateError
from antiphon.locking import is_locked, locked


def test_one_at_a_time(tmp_path):
    file = tmp_path / "lock"
    assert not is_locked(file) and not file.exists()
    with locked(file, tmp_path):
        assert is_locked(file)
        with pytest.raises(StateError, match=f"another process is writing this run: {tmp_path}"):
            locked(file, tmp_path)
    assert not is_locked(file)
    locked(file, tmp_path).close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_forked_process_does_not_keep_the_lock_of_its_parent(tmp_path):
    file = tmp_path / "lock"
    wait, go = os.pipe()
    lock = locked(file, tmp_path)
    child = os.fork()
    if child == 0:  # lives on while the parent lets go
        os.close(go)
        os.read(wait, 1)
        os._exit(0)
    try:
        assert is_locked(file)  # the child's closing has not unlocked it
        lock.close()
        for _ in range(500):  # until the child has come to its first line
            if not is_locked(file):
                break
            os.sched_yield()
        assert not is_locked(file)
    finally:
        os.close(go)
        os.close(wait)
        os.waitpid(child, 0)


def test_what_cannot_be_opened_is_not_held(tmp_path):
    with pytest.raises(FileNotFoundError):
        locked(tmp_path / "no" / "lock", tmp_path)
    assert not is_locked(tmp_path / "no" / "lock")
