"""Types of arguments that several commands take; each refuses with words that say what is allowed."""

import argparse
import errno
import math
from pathlib import Path

__all__ = [
    "check_folder",
    "natural",
    "number",
    "picture",
    "positive_number",
    "probability",
    "whole",
]

_PICTURES = (".png", ".pdf", ".svg")


def natural(text: str) -> int:
    """A whole number of at least 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def whole(text: str) -> int:
    """A whole number of at least 1."""
    if (value := natural(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return value


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def positive_number(text: str) -> float:
    """A finite number above 0."""
    if (value := number(text)) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


def probability(text: str) -> float:
    """A number strictly between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number strictly between 0 and 1")
    return value


def picture(text: str) -> Path:
    """The path of a figure."""
    path = Path(text)
    if path.suffix.lower() not in _PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in {', '.join(_PICTURES)}")
    return path


def check_folder(file: Path | None) -> None:
    """Before minutes are spent: is there a place for the file?"""
    if file is not None and not file.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(file.parent))
