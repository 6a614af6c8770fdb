"""Every mechanism beside every other, for one number of steps and one participation."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from rich.table import Table as RichTable

from antiphon.mechanisms.abstract_mechanism import AbstractMechanism, ErrorKind, check_steps
from antiphon.mechanisms.fft import FFT
from antiphon.mechanisms.full_honaker import FullHonaker
from antiphon.mechanisms.honaker import Honaker
from antiphon.mechanisms.independent import Independent
from antiphon.mechanisms.nu_ftrl import NuFTRL
from antiphon.mechanisms.optimization import lower_bound, optimize
from antiphon.mechanisms.tree import Tree
from antiphon.mechanisms.workload import PREFIX_SUMS, Workload
from antiphon.participation import AbstractParticipation, Reshuffled
from antiphon.plain_text import plain_text

__all__ = ["Row", "Table", "buffers_of", "makers", "table"]

# Mechanisms of O(T³) work are left out beyond these: they would take minutes.
_STORED_STEPS = 2048
_DENSE_STEPS = 512


@final
@dataclass(frozen=True)
class Row:
    """One mechanism.

    Attributes:
        label: What to call it.
        mechanism: The mechanism itself.
        sensitivity: Under the table's participation.
        is_exact: Whether some unit attains that sensitivity; else it is an upper bound.
        error: At unit noise.
        loss: Sensitivity × error.
        buffers: Tensors of the model's size that its noise keeps, at the most.
    """

    label: str
    mechanism: AbstractMechanism
    sensitivity: float
    is_exact: bool
    error: float
    loss: float
    buffers: int


@final
@dataclass(frozen=True)
class Table:
    """Rows in order of their loss, best first. Prints as text, renders in rich, exports as JSON."""

    T: int
    participation: AbstractParticipation
    kind: ErrorKind
    bound: float | None
    rows: tuple[Row, ...]

    def __rich__(self) -> RichTable:
        """For a rich console."""
        title = f"{self.T} steps, {self.participation}"
        notes = ["sensitivity: ≤ marks a proved upper bound, else it is exact"]
        if self.bound is not None:
            notes.append(f"no mechanism at all has a loss below {self.bound:.4g}")
        view = RichTable(title=title, caption="\n".join(notes), caption_justify="left")
        view.add_column("mechanism")
        for name in ("sensitivity", f"{self.kind} error", "loss", "vs best", "buffers"):
            view.add_column(name, justify="right")
        best = self.rows[0].loss
        for row in self.rows:
            sensitivity = f"{'' if row.is_exact else '≤ '}{row.sensitivity:.4g}"
            ratio = "best" if row.loss == best else f"+{row.loss / best - 1:.1%}"
            view.add_row(
                row.label,
                sensitivity,
                f"{row.error:.4g}",
                f"{row.loss:.4g}",
                ratio,
                f"{row.buffers}",
            )
        return view

    def __str__(self) -> str:
        return plain_text(self.__rich__())

    def to_json(self) -> str:
        """Everything in the table, mechanisms included."""
        rows = [{**vars(row), "mechanism": row.mechanism.to_dict()} for row in self.rows]
        head = {"T": self.T, "participation": self.participation.to_dict(), "kind": self.kind}
        return json.dumps({**head, "bound": self.bound, "rows": rows})


def table(
    steps: int,
    participation: AbstractParticipation,
    *,
    kind: ErrorKind = "rms",
    workload: Workload = PREFIX_SUMS,
    progress: Callable[[Sequence[str]], Iterable[str]] = lambda names: names,
) -> Table:
    """Compare all mechanisms, each at its best parameter.

    Args:
        steps: Number of steps T.
        participation: The steps in which one unit can take part.
        kind: Which error to compare.
        workload: What the error is of.
        progress: Wraps the list of names while they are worked through, such as ``rich.progress.track``.

    Example:
        >>> from antiphon.participation import Once
        >>> [row.label for row in table(64, Once()).rows][-3:]
        ['honaker', 'tree', 'independent']
    """
    check_steps(steps)
    participation.check(steps)
    found = makers(steps, participation, kind, workload)
    rows = []
    for label in progress(list(found)):
        mechanism = found[label]()
        sensitivity = mechanism.sensitivity(steps, participation)
        error = mechanism.error(steps, kind, workload)
        buffers = buffers_of(mechanism, steps)
        loss = float(sensitivity) * error
        rows.append(
            Row(label, mechanism, float(sensitivity), sensitivity.is_exact, error, loss, buffers)
        )
    rows.sort(key=lambda row: row.loss)
    bound = lower_bound(steps, participation, kind, workload, near=rows[0].mechanism)
    return Table(steps, participation, kind, bound, tuple(rows))


def makers(
    T: int,
    participation: AbstractParticipation,
    kind: ErrorKind = "rms",
    workload: Workload = PREFIX_SUMS,
) -> dict[str, Callable[[], AbstractMechanism]]:
    """By label, functions that make each mechanism at its best parameter, where that takes seconds."""

    def best(family: str, **options: int) -> AbstractMechanism:
        found = optimize(family, T, participation, kind=kind, workload=workload, **options)
        return found.mechanism

    def buffered() -> AbstractMechanism:
        nu = best("nu-ftrl")
        assert isinstance(nu, NuFTRL)
        return nu.buffered(T, 5)

    found: dict[str, Callable[[], AbstractMechanism]] = {
        "independent": Independent,
        "lambda-cgd": lambda: best("lambda-cgd"),
        "optimal cc": lambda: NuFTRL(0.0),
        "nu-ftrl": lambda: best("nu-ftrl"),
        "nu-ftrl, 5 buffers": buffered,
        "banded, 8": lambda: best("banded", bands=8),
        "banded": lambda: best("banded"),
        "blt": lambda: best("blt"),
        "tree": Tree,
    }
    if T <= _STORED_STEPS:
        found |= {"honaker": Honaker, "full honaker": FullHonaker, "fft": FFT}
    if T <= _DENSE_STEPS and not isinstance(participation, Reshuffled):
        found["dense"] = lambda: best("dense")
    return found


def buffers_of(mechanism: AbstractMechanism, T: int) -> int:
    """Most tensors kept between two steps: after the last but one step for those that store z."""
    scalar = torch.zeros(1)
    state = mechanism.init(scalar, T)
    most = 0
    for _ in range(min(T, 256)):
        _, state = mechanism.correlate(scalar, state)
        most = max(most, len(state.buffers[0]))
    # What still grows after 256 steps keeps everything.
    return T - 1 if most >= min(T, 256) > 1 else most
