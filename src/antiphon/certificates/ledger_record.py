"""The file of a ledger: one line of JSON per entry, each with the SHA-256 of all before it.

A line that a crash cut short was never granted; it is set aside in a file of its own and reported. A line
that was changed is reported and never skipped.
"""

import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from antiphon.errors import LedgerError

__all__ = ["Content", "add", "create", "locked", "parse"]


@dataclass(frozen=True)
class Content:
    """What a file holds: its first line, the others, the last digest, and what a crash left at its end."""

    head: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    digest: str
    torn: bytes


def create(path: Path, head: dict[str, Any]) -> None:
    """Write a new file and wait until it and its name are on the disk."""
    try:
        with open(path, "xb") as file:
            _append(file, _line(head, ""))
    except FileExistsError as error:
        raise LedgerError(f"{path} exists already; open it with Ledger(path).") from error
    folder = os.open(Path(path).resolve().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """The file, while no other process can write to it."""
    if not Path(path).exists():
        raise LedgerError(
            f"there is no ledger at {path}; create one: Ledger.create, or `antiphon ledger FILE create`."
        )
    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def parse(file: IO[bytes], path: Path) -> Content:
    """Read everything and check every digest."""
    file.seek(0)
    *lines, torn = file.read().split(b"\n")
    if not lines:
        raise LedgerError(f"{path} is not a ledger: it has no complete first line.")
    digest, values = "", []
    for number, line in enumerate(lines, start=1):
        text, _, mark = line.decode("utf-8", "replace").rpartition("\t")
        if hashlib.sha256((digest + text).encode()).hexdigest() != mark:
            raise LedgerError(
                f"line {number} of {path} was changed or damaged. Nothing is spent until it is restored "
                "from a copy: what it recorded may have been spent."
            )
        digest = mark
        values.append(json.loads(text))
    head, *rest = values
    if head.get("ledger") != 1:
        raise LedgerError(f"{path} is not a ledger of this version.")
    return Content(head, tuple(rest), digest, torn)


def add(file: IO[bytes], path: Path, content: Content, row: dict[str, Any]) -> None:
    """Append a line and wait until it is on the disk."""
    _set_aside(file, path, content.torn)
    _append(file, _line(row, content.digest))


def _set_aside(file: IO[bytes], path: Path, torn: bytes) -> None:
    """Move the beginning of a line that a crash cut short out of the way."""
    if not torn:
        file.seek(0, os.SEEK_END)
        return
    aside = Path(path).with_name(Path(path).name + ".torn")
    with open(aside, "ab") as other:
        _append(other, torn + b"\n")
    file.seek(-len(torn), os.SEEK_END)
    file.truncate()
    warnings.warn(
        f"the last line of {path} was cut short by a crash, before its run was granted; it is "
        f"kept in {aside.name}.",
        stacklevel=5,
    )


def _line(values: dict[str, Any], digest: str) -> bytes:
    text = json.dumps(values, sort_keys=True)
    mark = hashlib.sha256((digest + text).encode()).hexdigest()
    return f"{text}\t{mark}\n".encode()


def _append(file: IO[bytes], data: bytes) -> None:
    """Write and wait until it is on the disk."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
