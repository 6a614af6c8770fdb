"""What several commands share: their parsers, and types of arguments.

Each type refuses with words that say what is allowed.
"""

import argparse
import errno
import math
from pathlib import Path

from antiphon.errors import PlanError

__all__ = [
    "RELATIONS",
    "Commands",
    "check_new",
    "command",
    "names",
    "natural",
    "number",
    "picture",
    "positive_number",
    "probability",
    "replacing",
    "whole",
]

RELATIONS = ("add-remove", "zero-out", "replace-one")  # `Relation` is imported when a command runs

_PICTURES = (".png", ".pdf", ".svg")

Commands = argparse._SubParsersAction  # to which a command adds its parser


def command(
    commands: "Commands[argparse.ArgumentParser]", name: str, text: str, more: str, examples: str
) -> argparse.ArgumentParser:
    """The parser of a command, with ``--json``; ``options.misused(text)`` ends with a usage error.

    Args:
        commands: Of the program.
        name: Its name.
        text: What it does, for the list of commands: no capital letter, no full stop.
        more: Further sentences for its own help, or nothing.
        examples: Lines that a user can copy.
    """
    parser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.{f' {more}' if more else ''}",
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines()),
        formatter_class=_Help,
        allow_abbrev=False,  # an option has one spelling
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.set_defaults(misused=parser.error)
    return parser


class _Help(argparse.RawDescriptionHelpFormatter):
    """Examples stay as they are written; the description is filled as usual."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def replacing(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``, for commands that write files: see `check_new`."""
    parser.add_argument("--force", action="store_true", help="replace files that are there already")


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


def names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    found = tuple(name.strip() for name in text.split(","))
    if "" in found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names between commas")
    return found


def check_new(*files: Path | None, force: bool) -> None:
    """Before anything is spent: is there a place for each file, and none like it yet?"""
    for file in files:
        if file is None:
            continue
        if not file.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(file.parent))
        if file.exists() and (file.is_dir() or not force):
            wanted = "name a file in it" if file.is_dir() else "give --force to replace it"
            raise PlanError(f"{file} exists already: {wanted}.")
