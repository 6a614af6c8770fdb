"""Results of long computations on disk, by the hash of all that they depend on.

The folder is ``ANTIPHON_CACHE`` if that is set (empty: nothing is kept), else ``antiphon`` in the user's
cache folder. An entry that cannot be read, or was changed, is computed again.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from antiphon.version import __version__

__all__ = ["folder", "load", "remembered", "store"]

# Raise it when entries change their form. Proofs are keyed by their accountants' source, too.
_EDITION = 1


def folder() -> Path | None:
    """Where entries are kept; None if nowhere."""
    named = os.environ.get("ANTIPHON_CACHE")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "antiphon"


def remembered(kind: str, key: dict[str, Any], compute: Callable[[], dict[str, Any]]) -> Any:
    """What ``compute`` gave for this key before, or gives now. Keys and results are JSON."""
    found = load(kind, key)
    if found is None:
        found = compute()
        store(kind, key, found)
    return found


def load(kind: str, key: dict[str, Any]) -> Any:
    """The entry, or None."""
    path = _path(kind, key)
    if path is None:
        return None
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        whole = entry["check"] == _digest(entry["key"], entry["value"])
        return entry["value"] if whole and entry["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(kind: str, key: dict[str, Any], value: Any) -> None:
    """Write an entry whole or not at all; a folder that cannot be written is no error."""
    path = _path(kind, key)
    if path is None:
        return
    text = json.dumps({"key": key, "value": value, "check": _digest(key, value)})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)


def _path(kind: str, key: dict[str, Any]) -> Path | None:
    home = folder()
    return None if home is None else home / kind / f"{_digest(key, None)}.json"


def _digest(key: Any, value: Any) -> str:
    text = json.dumps([_EDITION, __version__, key, value], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
