"""Parse, call, print; every error that is expected is one line."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any, NoReturn

from antiphon.commands import audit_command as audit
from antiphon.commands import certify_command as certify
from antiphon.commands import explore_command as explore
from antiphon.commands import ledger_command as ledger
from antiphon.commands import plan_command as plan
from antiphon.commands import predict_command as predict
from antiphon.commands import report_command as report
from antiphon.commands import schema_command as schema
from antiphon.commands import train_command as train
from antiphon.errors import AntiphonError
from antiphon.version import __version__

__all__ = ["main"]

# A command is a module with `add`, which makes its parser, and `run`, which returns the exit code.
# Commands import what they need when they run, so that help is quick.
# They are listed in the order in which somebody with a table needs them.
_COMMANDS = (train, predict, report, schema, plan, explore, certify, ledger, audit)
_GROUP = "antiphon.commands"  # entry points of other packages that are such modules, too


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
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = int(options.run(options))
        sys.stdout.flush()  # an error of the last lines is one line, too
        return code
    except KeyboardInterrupt:
        print("antiphon: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output has closed it, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (AntiphonError, OSError) as error:
        print(f"antiphon: error: {_one_line(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="antiphon",
        description="Differentially private learning with correlated noise, for PyTorch and tables.",
    )
    parser.add_argument("--version", action="version", version=f"antiphon {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (*_COMMANDS, *(found.load() for found in entry_points(group=_GROUP))):
        command.add(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line, too."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is."""
        self.exit(2, f"antiphon: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    print(f"antiphon: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _one_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split())
