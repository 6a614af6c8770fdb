"""Time and memory of each mechanism's noise, as ratios to torch.randn in the same run.

A step draws white noise with our own generator and correlates it in float64, as a trainer pays it: "step"
gives up the state and the last row from step to step (donate), "pure" leaves all inputs untouched. The
first row is the yardstick, in float32. The goals are printed beside the ratios; nothing passes or fails
here.

With --ahead: how long a run waits for `Noise.draw` and `add_noise` where matrix products, in one thread,
lie between two draws: with rows drawn ahead by the background thread, and in place. The yardstick is
torch.randn in float32 into memory that is there.
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
from antiphon.numerics import Generator
from antiphon.numerics.grid import add_noise
from antiphon.training.run.noise import Noise

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


class Wait(NamedTuple):
    parameters: int
    name: str
    work_ms: float  # between two draws; 0: none
    form: str
    best_ratio: float  # the wait for draw and add_noise, to torch.randn
    median_ratio: float
    draw_ratio: float  # median, for draw alone
    work_taken_ms: float  # median
    step_ms: float  # median of work and wait


class Steps:
    """Steps of a run without its gradients: some work, then noise for a sum of zeros."""

    def __init__(self, mechanism: AbstractMechanism, parameters: int, ahead: bool) -> None:
        self._sums = torch.zeros(parameters)
        self._out = torch.empty_like(self._sums)
        self._noise = Noise(mechanism, Generator.seeded(0), self._sums, T)
        self._row: torch.Tensor | None = None
        if not ahead:
            self._noise.close()

    def step(self, work: Callable[[], object]) -> tuple[float, float, float]:
        """The times at which the work, the draw and all of it are done, from the start on."""
        began = time.perf_counter()
        work()
        worked = time.perf_counter()
        self._row = self._noise.draw(self._row)
        drawn = time.perf_counter()
        add_noise(self._sums, self._row, 1.0, self._out)
        return worked - began, drawn - began, time.perf_counter() - began

    def close(self) -> None:
        self._noise.close()


def products(ms: float) -> Callable[[], None]:
    """Matrix products that take about so long."""
    matrix, out = torch.ones(128, 128), torch.empty(128, 128)

    def work(count: int) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix, out=out)

    def timed(count: int) -> float:
        began = time.perf_counter()
        work(count)
        return (time.perf_counter() - began) / count

    count = round(ms * 1e-3 / min(timed(20) for _ in range(20)))
    return lambda: work(count)


def waits(parameters: int, name: str, ms: float, repeats: int) -> list[Wait]:
    """A step's waiting, with rows drawn ahead and in place, a few steps of each in turn."""
    work, out = products(ms), torch.empty(parameters)
    forms = {
        form: Steps(MECHANISMS[name], parameters, form == "ahead") for form in ("in place", "ahead")
    }
    times: dict[str, list[tuple[float, float, float]]] = {form: [] for form in forms}
    yardstick = []
    for _ in range(repeats):
        for form, steps in forms.items():
            for number in range(6):
                taken = steps.step(work)
                if number:  # before the first one, rows had other work's time to be drawn in
                    times[form].append(taken)
            time.sleep(parameters * 2e-8)  # until no row is being drawn
        for _ in range(3):
            began = time.perf_counter()
            torch.randn(parameters, out=out)
            yardstick.append(time.perf_counter() - began)
    rows = []
    for form, steps in forms.items():
        steps.close()
        wait = [whole - worked for worked, _, whole in times[form]]
        draw = [drawn - worked for worked, drawn, _ in times[form]]
        unit = statistics.median(yardstick)
        ratios = min(wait) / min(yardstick), statistics.median(wait) / unit
        whole_ms = [statistics.median(taken[i] for taken in times[form]) * 1e3 for i in (0, 2)]
        rows.append(
            Wait(parameters, name, ms, form, *ratios, statistics.median(draw) / unit, *whole_ms)
        )
    return rows


def show_waits(repeats: int, as_json: bool) -> None:
    torch.set_num_threads(1)
    console = Console(stderr=as_json, width=110)
    cases = [
        (parameters, name, ms)
        for parameters in (20_000, 200_000, 5_000_000)
        for name in ("independent", "lambda-cgd")
        for ms in (0.0, 1.0, 5.0, 20.0)
    ]
    rows = [
        row
        for case in track(cases, "Timing", console=console, transient=True)
        for row in waits(*case, repeats)
    ]
    if as_json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    table = Table(title="What a step waits for draw and add_noise, as ratios to torch.randn")
    for name in (
        "parameters",
        "mechanism",
        "work ms",
        "rows",
        "best ×",
        "median ×",
        "draw ×",
        "work ms",
        "step ms",
    ):
        table.add_column(name, justify="left" if name in ("mechanism", "rows") else "right")
    for row in rows:
        numbers = [f"{value:.2f}" for value in row[4:]]
        table.add_row(f"{row.parameters:,}", row.name, f"{row.work_ms:g}", row.form, *numbers)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ahead", action="store_true")
    options = parser.parse_args()
    if options.ahead:
        show_waits(options.repeats, options.json)
        return
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
