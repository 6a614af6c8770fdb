"""A line on the terminal that tells how far a run is. It shows nothing of the data."""

import time
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from antiphon.training.run.private_run import Run

__all__ = ["Display"]


@final
class Display:
    """Steps, ε, steps per second, and what the callback returned (of public data).

    ε is the plan's: it is spent when the run begins, since an early stop does not lower it. Beside it
    stands the share of the steps that were taken.
    """

    def __init__(self, run: "Run", last: int, *, is_shown: bool) -> None:
        self._run, self._last = run, last
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("training privately"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
            disable=not (is_shown and console.is_terminal),
        )
        self._task = self._progress.add_task("", total=last, completed=run.steps_taken, text="")
        self._began, self._first = time.monotonic(), run.steps_taken

    def __enter__(self) -> "Display":
        """Begin."""
        if not self._progress.disable:
            self._progress.start()
        return self

    def __exit__(self, *details: object) -> None:
        """Leave the terminal as it was."""
        if not self._progress.disable:
            self._progress.stop()

    def update(self) -> None:
        """Show the run as it is now."""
        if self._progress.disable:
            return
        run = self._run
        speed = (run.steps_taken - self._first) / max(time.monotonic() - self._began, 1e-9)
        shown = "  ".join(f"{name} {value:.4g}" for name, value in run.shown.items())
        text = f"ε {run.certificate.epsilon:.3g} (planned)  {speed:.3g} steps/s  {shown}"
        self._progress.update(self._task, completed=run.steps_taken, text=text)
