"""The command line: ``antiphon --help`` lists its commands."""

from antiphon.cli.main import main

__all__ = ["main"]
