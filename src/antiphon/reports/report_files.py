"""Reports on disk."""

import json
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError

from antiphon.certificates import Certificate
from antiphon.errors import AntiphonError, DataError
from antiphon.reports.contents import FORMAT, KIND
from antiphon.reports.pages import page
from antiphon.reports.wording import as_json
from antiphon.writing import write_whole

__all__ = ["read", "write"]

_PARTS = (
    "date",
    "version",
    "trained",
    "certificate",
    "trade_off",
    "noise",
    "functions",
    "learning",
    "evaluation",
    "command",
)
_MALFORMED = (
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    StopIteration,
    TypeError,
    UndefinedError,
    ValueError,
)


def write(report: dict[str, Any], folder: str | PathLike[str]) -> None:
    """Write ``report.json`` and ``report.html``, each whole or not at all.

    Args:
        report: From `describe`.
        folder: Where; made if it is not there.
    """
    texts = {"report.json": as_json(report), "report.html": page(report)}
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(home / name, text)


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """The report that `write` has left in a file.

    Raises:
        DataError: If there is none, or it cannot be shown, with the reason.
    """
    try:
        found = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise DataError(f"{path} is no report: report.json of a training is one.")
    if found.get("format") != FORMAT:
        raise DataError(
            f"{path} is a report of format {found.get('format')!r}, written by another version of "
            f"antiphon; this one reads format {FORMAT}."
        )
    lacking = [part for part in _PARTS if part not in found]
    if lacking:
        raise DataError(f"{path} is not a whole report: it lacks {', '.join(lacking)}.")
    try:
        Certificate.from_json(json.dumps(found["certificate"]))
        page(found)  # what cannot be shown is no report
    except (*_MALFORMED, AntiphonError) as error:
        raise DataError(f"{path} is damaged: {type(error).__name__}, {error}") from error
    return found
