"""The folder of a run: its checkpoint, its journal and its lock; and the file of what may leave it.

    ======================  ===========================================================================
    checkpoint.safetensors  everything needed to resume: replaced as a whole, verified when read
    journal                 which gradient each step's noise was added to, written before it is added
    lock                    held by the one process that writes
    ======================  ===========================================================================

Each file can be read by its owner only, and so can the folder. This module knows names, tensors and JSON;
what they mean is up to the run.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final
from weakref import WeakSet

from torch import Tensor

from antiphon.errors import StateError
from antiphon.locking import is_locked, locked
from antiphon.training.checkpoints import tensor_file
from antiphon.training.checkpoints.journal import Journal

__all__ = ["Folder", "export", "holds_run", "peek", "read_export"]

_CHECKPOINT, _JOURNAL, _LOCK = "checkpoint.safetensors", "journal", "lock"


@final
class Folder:
    """The folder of one run, held by one process at a time. As secret as the data.

    Guarantee:
        While a `Folder` is open, no other one, in this or another process, can open the same folder. The
        hold ends with `close` or with the process, however it ends, and does not pass to its children.
        After a crash at any moment `read` returns the last checkpoint that `write` finished, or the one
        that it was writing, whole; and every step that `record` has taken is `recorded`.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as place, Folder.create(f"{place}/run") as folder:
        ...     folder.write({"weight": torch.ones(2)}, {"step": 1})
        ...     folder.record(step=1, digest=123)  # then add the noise of step 1
        ...     folder.read()
        ({'weight': tensor([1., 1.])}, {'step': 1})
    """

    def __init__(self, path: Path, lock: IO[bytes], journal: Journal) -> None:
        """Use `create` or `open`."""
        self._path, self._lock, self._journal = path, lock, journal
        _folders.add(self)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> "Folder":
        """The folder of a new run: one that does not exist yet, or is empty."""
        path = Path(path)
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            _refuse_other_files(path)
            path.chmod(0o700)
        return cls._hold(path, _refuse_run)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Folder":
        """The folder of a run that is to be resumed."""
        path = Path(path)
        _require_run(path)
        return cls._hold(path, _require_run)

    @classmethod
    def _hold(cls, path: Path, check: Callable[[Path], None]) -> "Folder":
        """Take the lock, then look at what is there: from now on no other process changes it."""
        with _explained(path):
            lock = locked(path / _LOCK, path)
            try:
                check(path)
                tensor_file.remove_unfinished(path / _CHECKPOINT)
                return cls(path, lock, Journal(path / _JOURNAL))
            except BaseException:
                lock.close()
                raise

    def write(self, tensors: Mapping[str, Tensor], meta: dict[str, Any]) -> None:
        """Replace the checkpoint, and wait until it and every record before it are on the disk.

        Args:
            tensors: Dense tensors by name; views and shared memory are stored as separate values.
            meta: What JSON can hold, with texts as keys; floats are kept exactly, tuples become lists.
        """
        self._check_open()
        pieces = tensor_file.encode(tensors, meta, kind="checkpoint")
        self._journal.sync()  # first, so that no checkpoint is ahead of its journal after a power cut
        tensor_file.replace(self._path / _CHECKPOINT, pieces, mode=0o600)

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The checkpoint: tensors by name, and JSON. All of it is verified, or `StateError` is raised."""
        self._check_open()
        return tensor_file.read(self._path / _CHECKPOINT, kind="checkpoint")

    def record(self, step: int, digest: int) -> None:
        """Write down, before noise is added, which gradient the noise of ``step`` goes to.

        Recording the same again does nothing. Another digest for a step that was recorded is refused: the
        same noise on two gradients would show their difference.
        """
        self._check_open()
        self._journal.record(step, digest)

    def recorded(self, step: int) -> int | None:
        """The digest that was recorded for ``step``, if any."""
        return self._journal.recorded(step)

    def steps_recorded(self) -> int:
        """How many steps are recorded."""
        return len(self._journal)

    def sync(self) -> None:
        """Wait until every record is on the disk. Call it before anything of the run is released."""
        self._check_open()
        self._journal.sync()

    def close(self) -> None:
        """Let another process resume the run."""
        self._journal.close()
        self._lock.close()  # not unlocked: that would also free it for the process this was forked from

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._lock.closed:
            raise StateError(
                f"{self._path} is closed, or was opened before this process was forked. "
                "Folder.open opens it."
            )


def export(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], meta: dict[str, Any]
) -> None:
    """Write a file that may leave the run: weights, plan and certificate, with the usual permissions.

    It replaces what was at ``path``, as a whole. What is given is what is written: nothing is removed.
    """
    pieces = tensor_file.encode(tensors, meta, kind="export")
    tensor_file.replace(Path(path), pieces, mode=0o666)


def read_export(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `export` wrote: tensors by name, and JSON. All of it is verified, or `StateError` is raised."""
    return tensor_file.read(Path(path), kind="export")


def holds_run(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint from which a run can be resumed."""
    return (Path(path) / _CHECKPOINT).is_file()


def peek(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bool]:
    """The JSON of a run's checkpoint, and whether a process holds the run. Nothing is changed.

    A checkpoint is replaced as a whole, so it can be read while the run continues. It is verified, or
    `StateError` is raised. As secret as the data.
    """
    path = Path(path)
    with _explained(path):
        _, meta = tensor_file.read(path / _CHECKPOINT, kind="checkpoint")
        return meta, is_locked(path / _LOCK)


def _refuse_other_files(path: Path) -> None:
    ours = {_CHECKPOINT, _JOURNAL, _LOCK}
    names = (name for name in os.listdir(path) if not name.startswith(f".{_CHECKPOINT}."))
    if other := sorted(set(names) - ours):
        raise StateError(f"{path} is not empty: it holds {other[0]!r}. Choose an empty folder.")


def _refuse_run(path: Path) -> None:
    journal = path / _JOURNAL
    if os.path.lexists(path / _CHECKPOINT) or (journal.exists() and journal.stat().st_size):
        raise StateError(f"{path} holds a run already; resume it or choose another folder.")


def _require_run(path: Path) -> None:
    for name in (_CHECKPOINT, _JOURNAL):
        if not (path / name).is_file():
            raise StateError(
                f"there is no run to resume in {path}: it has no file {name!r}. Check the path, restore "
                "the file from a copy, or start a new run with Folder.create."
            )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say what the operating system refused, and where."""
    try:
        yield
    except OSError as error:
        raise StateError(
            f"{path} cannot be used as the folder of a run ({error.strerror}). Choose a folder that you "
            "own, on a disk with room."
        ) from error


_folders: WeakSet[Folder] = WeakSet()


def _leave_to_parent() -> None:
    """Close all folders in a process just forked: a worker must not hold the lock of a dead parent."""
    for folder in _folders:
        folder.close()


os.register_at_fork(after_in_child=_leave_to_parent)
