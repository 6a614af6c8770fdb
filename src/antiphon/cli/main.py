"""Parse, call, print; every error that is expected is one line."""

import argparse
import sys
from collections.abc import Sequence

from antiphon.cli import audit, explore
from antiphon.errors import AntiphonError
from antiphon.version import __version__

__all__ = ["main"]

# A command is a module with `add`, which makes its parser, and `run`, which returns the exit code.
# Commands import what they need when they run, so that help is quick.
_COMMANDS = (audit, explore)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Without the program's name; unless given, those of the process.

    Returns:
        The exit code: 0 if all is well, 1 after an error (or a certificate that an audit refutes), 130 if
        interrupted. Wrong usage ends the process with 2.
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("antiphon: interrupted", file=sys.stderr)
        return 130
    except (AntiphonError, OSError) as error:
        print(f"antiphon: error: {_one_line(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="antiphon", description="Learning from sensitive data with noise that answers itself."
    )
    parser.add_argument("--version", action="version", version=f"antiphon {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


def _one_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split())
