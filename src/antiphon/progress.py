"""A progress bar for what takes longer than two seconds, on a terminal or for a listener."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["bar", "heard_by"]

_PATIENCE = 2.0  # seconds before a bar appears

Listener = Callable[[str, int, int], None]  # what is done, how much of it, out of how much

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell the listener of every bar that moves within the block, terminal or not.

    Example:
        >>> with heard_by(print), bar("counting") as update:
        ...     update(1, 2)
        counting 1 2
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, all) that draws a bar on the terminal's error stream, if there is one."""
    began, console, listener = time.monotonic(), Console(stderr=True), _listener.get()
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
        if listener is not None:
            listener(what, done, total)
        if not console.is_terminal:
            return
        if not shown.live.is_started and time.monotonic() - began > _PATIENCE:
            shown.start()
        shown.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        if shown.live.is_started:
            shown.stop()
