"""The journal of a run: which gradient each step's noise was added to, written before it was added.

A resumed run draws the noise of a step again. Added to the gradient it was added to before, it shows
nothing new; added to another one, the difference of the two results is the difference of the gradients,
without noise. So each step first leaves a digest of its gradient here, and a step that was recorded with
another digest is refused.

The file is a row of records of 24 bytes: step, digest, and a checksum of both, 8 bytes each, unsigned and
little-endian. Digests are taken from gradients without noise: the file is as secret as the data.
"""

import errno
import os
import struct
from hashlib import blake2b
from pathlib import Path

from antiphon.errors import StateError

__all__ = ["Journal"]

_BODY = struct.Struct("<QQ")
_CHECK = 8
_RECORD = _BODY.size + _CHECK
_PERSON = b"antiphon step 1"


class Journal:
    """One digest per step, never changed.

    Guarantee:
        What `record` has taken survives the end of the process, by whatever signal. What `sync` has
        waited for survives a power cut. A record that was cut short counts as never written: if the
        process was killed, its noise was not added yet. Any other damage is refused when the file is
        opened.

    A power cut can take the records since the last `sync` that Linux has not written back by itself, which
    it does within about 30 seconds. The weights of those steps were in memory and are gone as well, and
    repeating the steps is harmless, unless results of theirs were sent or stored elsewhere meanwhile. So
    what leaves the run must wait for `sync`.

    The checksums find accidents and not forgers, and a journal that was cut at the end of a record looks
    like one of a shorter run.
    """

    def __init__(self, path: Path) -> None:
        """Read the file at ``path``, or make one that only its owner can read."""
        self._path = path
        self._file = open(path, "r+b", buffering=0, opener=_private)  # noqa: SIM115 (until `close`)
        try:
            self._digests = self._parse(path.read_bytes())
            os.ftruncate(self._file.fileno(), len(self._digests) * _RECORD)
        except BaseException:
            self._file.close()
            raise

    def record(self, step: int, digest: int) -> None:
        """Write down that the noise of ``step`` is about to be added to the gradient of ``digest``.

        Args:
            step: Number of the step, below 2^64.
            digest: Of everything that the noise is added to, below 2^64.
        """
        known = self._digests.get(step)
        if known is None:
            self._append(step, digest)
        elif known != digest:
            raise StateError(
                f"step {step} would add the same noise to a different gradient than before, and the two "
                "results together would show the data without noise. Resume with the same data, the "
                "same code, the same number of threads and processes, and the same max_batch; or start a "
                "new run, which costs a new ε."
            )

    def recorded(self, step: int) -> int | None:
        """The digest that was recorded for ``step``, if any."""
        return self._digests.get(step)

    def sync(self) -> None:
        """Wait until everything recorded is on the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error) from error

    def close(self) -> None:
        """Close the file. Nothing can be recorded from then on."""
        self._file.close()

    def __len__(self) -> int:
        """How many steps are recorded."""
        return len(self._digests)

    def _append(self, step: int, digest: int) -> None:
        """Hand a record to the operating system, which outlives this process."""
        # No fsync: it takes milliseconds, a thousand times as long. What a power cut then takes stands
        # in the docstring of the class.
        record, end = _record(step, digest), len(self._digests) * _RECORD
        try:
            if os.pwrite(self._file.fileno(), record, end) != _RECORD:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the next one overwrites it
        except OSError as error:
            raise self._unwritten(error) from error
        self._digests[step] = digest

    def _unwritten(self, error: OSError) -> StateError:
        return StateError(
            f"{self._path} could not be written ({error.strerror}), so the step must not take "
            "place. Make room on the disk, then resume."
        )

    def _parse(self, data: bytes) -> dict[int, int]:
        """Every whole record, each of them checked."""
        digests: dict[int, int] = {}
        for start in range(0, len(data), _RECORD):
            record = data[start : start + _RECORD]
            body, check = record[: _BODY.size], record[_BODY.size :]
            if check != _checksum(body):
                if _is_torn(data[start:]):
                    break
                raise self._damaged(start)
            step, digest = _BODY.unpack(body)
            if step in digests:
                raise self._damaged(start)
            digests[step] = digest
        return digests

    def _damaged(self, start: int) -> StateError:
        return StateError(
            f"record {start // _RECORD} of {self._path} was changed or damaged, so it cannot be told "
            "whether noise would be used twice. Restore the file from a copy, or start a new run, which "
            "costs a new ε."
        )


def _is_torn(rest: bytes) -> bool:
    """Whether less than a record was written: a crash ends a file early or fills it up with zeros."""
    return len(rest.rstrip(b"\0")) < _RECORD


def _record(step: int, digest: int) -> bytes:
    try:
        body = _BODY.pack(step, digest)
    except struct.error:
        raise StateError("a step and its digest are whole numbers from 0 to 2^64 − 1.") from None
    return body + _checksum(body)


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK, person=_PERSON).digest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
