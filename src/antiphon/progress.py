"""A bar for what takes longer than two seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["bar"]

_PATIENCE = 2.0  # seconds before a bar appears


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, all) that draws a bar on the terminal's error stream, if there is one."""
    began, console = time.monotonic(), Console(stderr=True)
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = shown.add_task(what)

    def update(done: int, total: int) -> None:
        if not shown.live.is_started and time.monotonic() - began > _PATIENCE:
            shown.start()
        shown.update(task, completed=done, total=total)

    try:
        yield update if console.is_terminal else lambda done, total: None
    finally:
        if shown.live.is_started:
            shown.stop()
