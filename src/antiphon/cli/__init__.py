"""The command line: ``antiphon audit``, ``antiphon explore``."""

from antiphon.cli.main import main

__all__ = ["main"]
