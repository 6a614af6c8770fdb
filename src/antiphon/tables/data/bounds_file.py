"""Bounds files: TOML, read by the standard library and written by hand."""

import json
import re
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from antiphon.errors import PlanError

__all__ = ["read_toml", "toml_key", "toml_value", "write_toml"]

_TEXTS = ("missing", "outside")
_KEYS = ("columns", *_TEXTS, "bounds", "categories", "released")


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """The keys of a bounds file, each of the right form."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not TOML: {error}.") from error
    unknown = sorted(set(values) - set(_KEYS))
    if unknown:
        raise PlanError(f"{path} has unknown keys {unknown}; a bounds file may have {list(_KEYS)}.")
    for key in ("bounds", "categories", "released"):
        if not isinstance(values.get(key, {}), dict):
            raise PlanError(f"{key} in {path} is a table, [{key}]; got {values[key]!r}.")
    names = values.get("columns", [])
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise PlanError(f"columns in {path} is a list of names; got {names!r}.")
    return values


def write_toml(path: str | PathLike[str], values: Mapping[str, Any]) -> None:
    """Write plain keys first, then one table for each mapping."""
    lines = [f"{key} = {toml_value(v)}" for key, v in values.items() if not isinstance(v, Mapping)]
    for key, table in values.items():
        if isinstance(table, Mapping):
            lines += [
                "",
                f"[{key}]",
                *(f"{toml_key(k)} = {toml_value(v)}" for k, v in table.items()),
            ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def toml_key(name: str) -> str:
    """A key, quoted if need be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def toml_value(value: Any) -> str:
    """A text, a number, a truth value or a list of them, on one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return _text(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for the character of code 127."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
