"""The folder of a fit: what was fixed and paid for before the first step, and the run's own folder.

    ==========  ===================================================================================
    start.json  settings, certificate, released bounds and seed; written once, before the training
    training/   checkpoint, journal and lock of the run, as `make_private` keeps them
    ==========  ===================================================================================

Only the owner can read any of it. It is as secret as the data: it holds the key of the noise.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from antiphon.certificates import Certificate
from antiphon.errors import PlanError, StateError
from antiphon.tables.data import Schema
from antiphon.tables.estimators.codec import schema_from_json, to_json
from antiphon.training.checkpoints import holds_run
from antiphon.training.checkpoints import replace as replace_file

__all__ = ["FitFolder", "Start"]

_START, _TRAINING = "start.json", "training"
_FORMAT = 1
_SECRET = "As secret as the data: this folder holds the key of the noise."


@final
@dataclass(frozen=True)
class Start:
    """What a fit has fixed before its first step.

    Attributes:
        asked: Settings that a resumed fit must have again, as JSON types.
        certificate: Of the plan, which is not calibrated again.
        schema: With all bounds, declared or released.
        found: The target's bounds, if they were released.
        seed: Of noise and batches; None is secret.
        model_seed: Of the model's start, which is public.
        data: Digest of the encoded records.
        has_begun: Whether the training run has a checkpoint of its own.
    """

    asked: Mapping[str, Any]
    certificate: Certificate
    schema: Schema
    found: tuple[float, float] | None
    seed: int | None
    model_seed: int
    data: str = ""
    has_begun: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return vars(self) | {
            "certificate": json.loads(self.certificate.to_json()),
            "schema": to_json("the schema", self.schema),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Start":
        """What `to_dict` described."""
        found = values["found"]
        read = {
            "certificate": Certificate.from_json(json.dumps(values["certificate"])),
            "schema": schema_from_json(values["schema"]),
            "found": None if found is None else (float(found[0]), float(found[1])),
        }
        return cls(**values | read)

    def check_same(self, asked: Mapping[str, Any]) -> None:
        """Raise if another fit is asked for than the one that began."""
        asked = json.loads(json.dumps(asked))  # tuples come back from the file as lists
        for name in {**self.asked, **asked}:
            kept, given = self.asked.get(name), asked.get(name)
            if kept != given:
                raise PlanError(
                    f"the folder holds a fit with {name} = {_short(kept)}, but {name} = {_short(given)} "
                    "was given. A fit is resumed with its own settings; other ones need a new folder."
                )

    def check_data(self, digest: str) -> None:
        """Raise if the records are others than those with which the fit began."""
        if digest != self.data:
            raise PlanError(
                "the folder holds a fit to other records, targets or users, or to the same in another "
                "order. Give the same again; a fit to others is a new one, in another folder."
            )


@final
class FitFolder:
    """The folder of one fit.

    Args:
        path: Where it is, or is to be.

    Guarantee:
        `create` writes ``start.json`` whole or not at all, and never over another one, so that of two
        fits that begin in one folder at once one is refused. `read` verifies it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    @property
    def training(self) -> Path:
        """The folder of the training run."""
        return self._path / _TRAINING

    def prepare(self) -> None:
        """Make the folder of a new fit, or refuse one that is used for something else."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = [n for n in os.listdir(self._path) if not n.endswith(".unfinished")]
            if not names:
                self._path.chmod(0o700)
        except OSError as error:
            raise self._unusable(error) from error
        if _START in names:
            raise self._taken()
        if names:
            raise StateError(
                f"{self._path} is not empty: it holds {min(names)!r}. Choose an empty folder."
            )

    def create(self, start: Start) -> None:
        """Write down how the fit starts, once."""
        fresh = self._path / f".{_START}.{secrets.token_hex(4)}.unfinished"
        replace_file(fresh, _encoded(start), mode=0o600)
        try:
            os.link(fresh, self._path / _START)  # a rename would replace another fit's
        except FileExistsError:
            raise self._taken() from None
        except OSError as error:
            raise self._unusable(error) from error
        finally:
            fresh.unlink()

    def mark_begun(self, start: Start) -> None:
        """Write down that the training run has its own checkpoint from now on."""
        if not start.has_begun:
            replace_file(self._path / _START, _encoded(replace(start, has_begun=True)), mode=0o600)

    def read(self) -> Start:
        """How the fit started, verified."""
        path = self._path / _START
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            start = Start.from_dict(values["start"])
            is_whole = values["digest"] == _digest(values["start"]) and values["format"] == _FORMAT
        except FileNotFoundError:
            raise StateError(
                f"there is no fit to resume in {self._path}: it has no file {_START!r}. Check the path, or "
                "begin a new fit."
            ) from None
        except OSError as error:
            raise self._unusable(error) from error
        except (AttributeError, KeyError, TypeError, ValueError):
            is_whole = False
        if not is_whole:
            raise StateError(
                f"{path} is damaged, or another version wrote it. Restore the folder from a copy; a new "
                "fit costs a new ε."
            )
        if start.has_begun and not holds_run(self.training):
            # Another training would use the same payment for other noise.
            raise StateError(
                f"the training of this fit has begun, but {self.training} holds no checkpoint. Restore the "
                "folder as a whole; a new fit costs a new ε."
            )
        return start

    def has_training(self) -> bool:
        """Whether the training run is to be resumed, not begun."""
        return holds_run(self.training)

    def _taken(self) -> StateError:
        return StateError(
            f"{self._path} holds a fit already; resume it with resume=True, or choose another folder."
        )

    def _unusable(self, error: OSError) -> StateError:
        return StateError(
            f"{self._path} cannot be used as the folder of a fit ({error.strerror}). Choose a folder that "
            "you own, on a disk with room."
        )


def _encoded(start: Start) -> list[memoryview]:
    values = json.loads(json.dumps(start.to_dict()))
    written = {
        "secret": _SECRET,
        "format": _FORMAT,
        "digest": _digest(values),
        "start": values,
    }
    return [memoryview(json.dumps(written, indent=1).encode())]


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
