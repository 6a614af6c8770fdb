"""Time and memory of each mechanism's noise, as ratios to torch.randn in the same run.

A step draws white noise with our own generator and correlates it in float64, as a trainer pays it: "step"
gives up the state and the last row from step to step (donate), "pure" leaves all inputs untouched. The
first row is the yardstick, in float32. The goals are printed beside the ratios; nothing passes or fails
here.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from antiphon.mechanisms import (
    BLT,
    AbstractMechanism,
    Banded,
    BandedInverse,
    Independent,
    LambdaCGD,
    NuFTRL,
    Tree,
    redrawn,
)
from antiphon.randomness import Generator

T = 10_000
MECHANISMS: dict[str, AbstractMechanism] = {
    "independent": Independent(),
    "lambda-cgd": LambdaCGD(0.9),
    "banded, 8": Banded.square_root(8),
    "banded inverse, 8": BandedInverse(tuple(NuFTRL(0.0).inverse_column(8).tolist())),
    "blt, 2 buffers": BLT((0.25, 0.22), (0.57, 0.985)),
    "blt, 5 buffers": NuFTRL(0.001).buffered(T, 5),
    "tree": Tree(),
}
GOALS = {"lambda-cgd": 1.2, "banded, 8": 2.0, "blt, 5 buffers": 2.0}


class Row(NamedTuple):
    parameters: int
    name: str
    form: str
    best_ns: float  # per parameter and step
    median_ns: float
    best_ratio: float  # to torch.randn
    median_ratio: float
    goal: float | None
    state_bytes: float  # per parameter


def runner(
    mechanism: AbstractMechanism, like: torch.Tensor, donate: bool
) -> tuple[Callable[[], object], int]:
    """A function that takes one step, past the first steps in which buffers fill, and the state's bytes."""
    generator = Generator.seeded(0)
    state, row = mechanism.init(like, T), torch.empty_like(like)

    def step() -> None:
        nonlocal state, row
        z = generator.normal_(row, state.step) if donate else generator.normal(like, state.step)
        row, state = mechanism.correlate(z, state, donate=donate)

    for _ in range(16):
        step()

    return step, state.nbytes


def measure(parameters: int, repeats: int) -> list[Row]:
    like = torch.zeros(parameters, dtype=torch.float64)
    generator = Generator.seeded(0)
    functions: dict[tuple[str, str], Callable[[], object]] = {
        ("torch.randn", ""): lambda: torch.randn(parameters),
        ("lambda-cgd", "redrawn"): lambda: redrawn(MECHANISMS["lambda-cgd"], generator, like, 7),
    }
    sizes = {}
    for name, mechanism in MECHANISMS.items():
        for form in ("step", "pure"):
            functions[name, form], sizes[name] = runner(mechanism, like, donate=form == "step")
    times: dict[tuple[str, str], list[float]] = {key: [] for key in functions}
    # Interleaved, so that a busy moment of the machine hits all of them.
    for _ in range(repeats):
        for key, function in functions.items():
            began = time.perf_counter()
            function()
            times[key].append((time.perf_counter() - began) * 1e9 / parameters)
    yardstick = times["torch.randn", ""]
    rows = []
    for (name, form), values in times.items():
        best, median = min(values), statistics.median(values)
        ratios = best / min(yardstick), median / statistics.median(yardstick)
        state = sizes.get(name, 0) / parameters if form != "redrawn" else 0.0
        goal = GOALS.get(name) if form == "step" else None
        rows.append(Row(parameters, name, form, best, median, *ratios, goal, state))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=options.json, width=110)
    sizes = track([1_000_000, 10_000_000], "Timing", console=console, transient=True)
    rows = [row for size in sizes for row in measure(size, options.repeats)]
    if options.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    table = Table(title="One step of noise, float64: ns per parameter, and ratio to torch.randn")
    for name in (
        "parameters",
        "mechanism",
        "form",
        "best ns",
        "median ns",
        "best ×",
        "median ×",
        "goal ×",
        "state B",
    ):
        table.add_column(name, justify="left" if name in ("mechanism", "form") else "right")
    for row in rows:
        numbers = [f"{value:.2f}" for value in row[3:7]]
        goal = "" if row.goal is None else f"{row.goal:.1f}"
        table.add_row(
            f"{row.parameters:,}", row.name, row.form, *numbers, goal, f"{row.state_bytes:.0f}"
        )
    console.print(table)


if __name__ == "__main__":
    main()
