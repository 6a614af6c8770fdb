"""The command line: ``antiphon --help`` lists its commands."""

from antiphon.commands.arguments import Commands, command, whole
from antiphon.commands.main import main

__all__ = [
    "Commands",
    "command",
    "main",
    "whole",
]
