"""Table 3: every mechanism measured: time to make it, time per step, memory, and error.

One participation, root-mean-square error of prefix sums at unit privacy (sensitivity × error). "Build" is
the time to find the best parameter and to compute sensitivity and error; "step" is the time of a
step half-way through a stream of 64 numbers, which is what a step costs beside work in proportion to the
model's size ("buffers" says how many tensors that is). Mechanisms whose matrices are dense stop at 4096
steps, the optimised one at 1024: beyond, they would take minutes and gigabytes, which is the point of the
table.

Errors fall in the order independent, tree, Honaker, full Honaker, FFT, Optimal CC, ν-FTRL, dense at every
T; a BLT of a few buffers lies between ν-FTRL and dense, at a cost per step that does not grow with T. Times
are of the machine that ran it, and the only numbers here that differ from run to run.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from antiphon.errors import PlanError
from antiphon.mechanisms import (
    FFT,
    AbstractMechanism,
    FullHonaker,
    Honaker,
    NoiseState,
    Tree,
    buffers_of,
    makers,
    optimize,
)
from antiphon.numerics import Generator
from antiphon.participation import Once
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.drawing import COLOURS, finish, panels
from antiphon_papers.common.experiment import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary", "tree_in_closed_form"]

_NUMBERS = 64
_WARM, _TIMED = 256, 64  # steps before the first, and steps that are timed
_STORED, _DENSE = 4096, 1024  # most steps of dense matrices that are given, and that are optimised
_CI = ("independent", "tree", "honaker", "full honaker", "fft", "optimal cc", "nu-ftrl", "dense")
# What the paper says: can it be made without knowing T, time to generate, time per step.
_PAPER = {
    "independent": (True, "1", "1"),
    "tree": (True, "1", "log T"),
    "honaker": (True, "1", "log T"),
    "optimal cc": (True, "1", "T"),
    "nu-ftrl": (True, "1", "T"),
    "fft": (False, "1", "T log² T"),
    "full honaker": (False, "T²", "T²"),
    "dense": (False, "T³", "T²"),
}


@final
@dataclass(frozen=True)
class Config:
    """One mechanism and one number of steps.

    Attributes:
        label: As in `antiphon.mechanisms.catalogue`.
        steps: T.
        seed: Repetition of the measurement.
    """

    label: str
    steps: int
    seed: int = 0


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All mechanisms that take no minutes, T = 256 to 16,384; T = 32 for ``ci``."""
    count = 1 if seeds is None else seeds
    sizes = (32,) if preset == "ci" else (256, 512, 1024, 2048, 4096, 8192, 16_384)
    return tuple(
        Config(label, steps, seed)
        for seed in range(count)
        for steps in sizes
        for label in _makers(steps)
        if preset != "ci" or label in _CI
    )


def _makers(steps: int) -> dict[str, Callable[[], AbstractMechanism]]:
    """Those of the comparison table, and dense ones up to where they take a minute."""
    found = makers(steps, Once())
    if steps <= _STORED:
        found |= {"honaker": Honaker, "full honaker": FullHonaker, "fft": FFT}
    if steps <= _DENSE:
        found["dense"] = lambda: optimize("dense", steps, Once()).mechanism
    return found


def run(config: Config) -> list[Row]:
    """Build it, stream it, and report."""
    found = _makers(config.steps)
    if config.label not in found:
        raise PlanError(
            f"no mechanism is called {config.label!r} at {config.steps} steps; there are "
            f"{', '.join(found)}."
        )
    began = time.perf_counter()
    mechanism = found[config.label]()
    sensitivity, error = _sensitivity_and_error(mechanism, config.steps)
    built = time.perf_counter() - began
    anytime, generation, step = _PAPER.get(config.label, (None, None, None))
    return [
        {
            "mechanism": config.label,
            "steps": config.steps,
            "seed": config.seed,
            "sensitivity": sensitivity,
            "error": error,
            "loss": sensitivity * error,
            "buffers": buffers_of(mechanism, config.steps),
            "build_seconds": built,
            "step_seconds": _seconds_per_step(mechanism, config),
            "paper_anytime": anytime,
            "paper_generation": generation,
            "paper_step": step,
        }
    ]


def _sensitivity_and_error(mechanism: AbstractMechanism, T: int) -> tuple[float, float]:
    """From the mechanism, or for long trees from their nodes: dense matrices would take hours."""
    if isinstance(mechanism, Tree) and T > _STORED:
        return tree_in_closed_form(T)
    return float(mechanism.sensitivity(T, Once())), mechanism.error(T)


def tree_in_closed_form(T: int) -> tuple[float, float]:
    """Sensitivity for one participation and error of plain tree aggregation, by counting nodes.

    Step 1 is in the nodes 1, 2, 4, ..., no other step is in more; prefix t is the sum of popcount(t) nodes.

    Example:
        >>> tree_in_closed_form(4)
        (1.7320508075688772, 1.118033988749895)
    """
    nodes = sum(t.bit_count() for t in range(1, T + 1))
    return math.sqrt(T.bit_length()), math.sqrt(nodes / T)


def _seconds_per_step(mechanism: AbstractMechanism, config: Config) -> float:
    """Of the steps around the middle of the run, which cost what a step costs on average."""
    like, T = torch.zeros(_NUMBERS), config.steps
    source = Generator.seeded(config.seed)
    white = [source.normal(like, 0), source.normal(like, 1)]
    state = mechanism.init(like, T)
    for step in range(min(T // 2, _WARM)):
        _, state = mechanism.correlate(white[step % 2].clone(), state)
    kept = state.buffers[0]
    if len(kept) == state.step < T // 2:
        # It keeps everything: its state half-way through has the shape, and the cost, of any other.
        many = (kept * (T // 2 // len(kept) + 1))[: T // 2]
        state = NoiseState(mechanism, T, T // 2, state.shapes, (many,))
    timed = min(_TIMED, T - state.step)
    began = time.perf_counter()
    for step in range(timed):
        _, state = mechanism.correlate(white[step % 2].clone(), state, donate=True)
    return (time.perf_counter() - began) / timed


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over repetitions, best error first for each T."""
    by = ["steps", "mechanism", "loss", "buffers", "paper_step"]
    table = averages(rows, by=by, of=["build_seconds", "step_seconds"])
    return sorted(table, key=lambda row: (row["steps"], row["loss"]))


def plot(rows: Sequence[Row]) -> "Figure":
    """Error, time to build and time per step against T."""
    figure, axes = panels(3, "One participation; dense mechanisms end where they take minutes")
    styles = ("-", "--")
    for i, ((name,), members) in enumerate(grouped(summary(rows), ["mechanism"]).items()):
        x = [row["steps"] for row in members]
        colour, style = COLOURS[i % len(COLOURS)], styles[i // len(COLOURS) % 2]
        for panel, y in zip(axes, ("loss", "build_seconds", "step_seconds"), strict=True):
            values = [row[y] for row in members]
            panel.plot(x, values, style, marker="o", ms=3, color=colour, label=str(name))
    titles = ("Sensitivity × error", "Seconds to build", "Seconds per step")
    for panel, title in zip(axes, titles, strict=True):
        finish(panel, title=title, xlabel="T", xscale="log", yscale="log")
    return figure
