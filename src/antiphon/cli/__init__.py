"""The command line: ``antiphon audit``."""

from antiphon.cli.main import main

__all__ = ["main"]
