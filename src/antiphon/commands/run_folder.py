"""The folder that `antiphon train` leaves: what may be shown, and, while it runs, what must stay secret.

==================  ===============================================================================
model.safetensors   the trained model with its certificate; `antiphon predict` reads it
certificate.json    what is proved
report.html, .json  the page, and all that stands on it
secret/             keys, noise and what was asked for, until the run has ended; then it is removed
==================  ===============================================================================
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, final

from antiphon.commands.train_request import TrainRequest
from antiphon.errors import StateError
from antiphon.locking import locked
from antiphon.numerics import Generator
from antiphon.writing import write_whole

__all__ = ["RunFolder"]

_SECRET, _ASKED, _LOCK, _CURVE = "secret", "asked.json", "lock", "curve.json"
# Before and after; each step from one to the next is whole.
_NEW, _OLD = ".secret.new.", ".secret.old"


@final
class RunFolder:
    """The folder of one training, held by one process at a time.

    Attributes:
        path: The folder.
        request: What was asked for.
        generator: The root of what is drawn beside training: held-out records, the noise of a score.
        is_resumed: Whether the run had begun before.
    """

    def __init__(
        self,
        path: Path,
        request: TrainRequest,
        data: str,
        key: bytes,
        lock: IO[bytes],
        *,
        resumed: bool,
    ) -> None:
        """Use `create` or `open`."""
        self.path, self.request, self.is_resumed = path, request, resumed
        self.generator = Generator(key, request.seed is None)
        self._data, self._lock = data, lock

    @classmethod
    def create(cls, path: Path, request: TrainRequest, data: str) -> "RunFolder":
        """A new folder, or an empty one, for a training on the records of this digest."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            is_run = (path / _SECRET).is_dir()
            hint = "resume it with --resume" if is_run else "choose another --out"
            raise StateError(f"{path} is there already: {hint}. Nothing was changed.")
        path.mkdir(parents=True, exist_ok=True)
        source = Generator.secure() if request.seed is None else Generator.seeded(request.seed)
        key = source.spawn("beside training").key
        fresh = path / f"{_NEW}{os.getpid()}"
        fresh.mkdir(mode=0o700)
        lock = locked(fresh / _LOCK, path)
        text = json.dumps({"asked": request.to_json(), "data": data, "key": key.hex()})
        write_whole(fresh / _ASKED, text, mode=0o600)
        try:
            fresh.rename(path / _SECRET)  # two processes: the second fails here
        except OSError:
            lock.close()
            shutil.rmtree(fresh)
            raise StateError(f"another process has begun a run in {path}.") from None
        return cls(path, request, data, key, lock, resumed=False)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of a run that was interrupted."""
        secret = path / _SECRET
        shutil.rmtree(path / _OLD, ignore_errors=True)  # of a run that ended while it was removed
        if not (secret / _ASKED).is_file():
            done = (path / "model.safetensors").is_file()
            what = "has ended: its model is there" if done else "is not there"
            raise StateError(f"the run in {path} {what}. Nothing is left to resume.")
        lock = locked(secret / _LOCK, path)
        try:
            values = json.loads((secret / _ASKED).read_text(encoding="utf-8"))
            request, key = (
                TrainRequest.from_json(values["asked"], secret),
                bytes.fromhex(values["key"]),
            )
            data = str(values["data"])
        except (KeyError, TypeError, ValueError):
            lock.close()
            raise StateError(
                f"{secret / _ASKED} is damaged: the run cannot be resumed. A new run costs a new ε."
            ) from None  # its words may quote a key
        return cls(path, request, data, key, lock, resumed=True)

    def check(self, data: str) -> None:
        """Raise unless the records are those with which the run began, held-out ones included."""
        # Another score, or another model, would be released for the same payment.
        if data != self._data:
            raise StateError(
                f"the run in {self.path} began with other records than those that are there now. Restore "
                "the table; a run on another one costs its own ε, in another --out."
            )
        if (self.path / "model.safetensors").is_file() and not self.has_begun:
            raise StateError(
                f"{self.path} has the model of a run, but not how it began. Nothing can be resumed; a new "
                "run costs a new ε, in another --out."
            )

    @property
    def checkpoint(self) -> Path:
        """Where the estimator keeps what it needs to resume."""
        return self.path / _SECRET / "fit"

    @property
    def has_begun(self) -> bool:
        """Whether something was released or paid for that a resumed run can use."""
        return (self.checkpoint / "start.json").is_file()

    def curve(self) -> dict[int, dict[str, float]]:
        """Scores on public records by step, as far as they were kept."""
        file = self.path / _SECRET / _CURVE
        if not file.is_file():
            return {}
        return {int(step): row for step, row in json.loads(file.read_text()).items()}

    def keep_curve(self, rows: Mapping[int, Mapping[str, float]]) -> None:
        """Keep them for a resumed run."""
        write_whole(self.path / _SECRET / _CURVE, json.dumps(rows), mode=0o600)

    def finish(self) -> None:
        """Everything is written: what is secret is not needed any more."""
        # Renamed first: a crash while it is removed must not leave half of what a resumed run reads.
        try:
            (self.path / _SECRET).rename(self.path / _OLD)
            shutil.rmtree(self.path / _OLD)
        finally:
            self.close()

    def discard(self) -> None:
        """Nothing was released: leave nothing behind."""
        shutil.rmtree(self.path / _SECRET, ignore_errors=True)
        self.close()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def close(self) -> None:
        """Let another process resume."""
        self._lock.close()
