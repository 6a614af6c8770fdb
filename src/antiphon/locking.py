"""A run is written by one process at a time: the lock that says which."""

import fcntl
import os
from pathlib import Path
from typing import IO
from weakref import WeakSet

from antiphon.errors import StateError

__all__ = ["is_locked", "locked"]

_held: WeakSet[IO[bytes]] = WeakSet()


def locked(file: Path, run: Path) -> IO[bytes]:
    """The file, made if it is not there, held until it is closed or the process ends, however it ends.

    Args:
        file: The lock, readable by its owner only.
        run: The folder that it stands for, for the error.

    Guarantee:
        Nobody else, in this or another process, holds it at the same time. A process that is forked does
        not hold it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lock = Path(folder, "lock")
        ...     with locked(lock, Path(folder)):
        ...         print(is_locked(lock))
        ...     print(is_locked(lock))
        True
        False
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock = open(descriptor, "r+b", buffering=0)  # noqa: SIM115 (held until the caller closes it)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StateError(
            f"another process is writing this run: {run}. Wait for it to end, or end it."
        ) from None
    except BaseException:
        lock.close()
        raise
    _held.add(lock)
    return lock


def is_locked(file: Path) -> bool:
    """Whether somebody holds the lock. Nothing is changed."""
    try:
        with open(file, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go at once
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _leave_to_parent() -> None:
    """A process just forked must not hold the lock of a dead parent. The parent's is not unlocked."""
    for lock in _held:
        lock.close()


os.register_at_fork(after_in_child=_leave_to_parent)
