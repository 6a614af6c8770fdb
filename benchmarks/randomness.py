"""Time of a standard normal from each generator, next to torch.randn (float32) in the same run.

"float64" are the numbers that training draws; "release" adds them to a float32 sum on the public grid.
The goals are printed beside the ratios; nothing passes or fails here.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from antiphon.numerics import Generator
from antiphon.numerics.grid import add_noise

GOALS = {
    "seeded": 1.2,
    "secure": 1.2,
    "float64": 1.2,
    "release": 0.5,
}  # times torch.randn, for many numbers


class Row(NamedTuple):
    numbers: int
    form: str
    generator: str
    best_ns: float  # per number
    median_ns: float
    best_ratio: float  # to torch.randn
    median_ratio: float
    goal: float | None


def draws(numbers: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What is timed: by form (fresh or in place), then by generator."""
    out, long = torch.empty(numbers), torch.zeros(numbers, dtype=torch.float64)
    sums = torch.ones(numbers)
    seeded, secure = Generator.seeded(0), Generator.secure()
    return {
        "fresh": {
            "torch.randn": lambda: torch.randn(numbers),
            "seeded": lambda: seeded.normal(out, step=1),
            "secure": lambda: secure.normal(out, step=1),
        },
        "in place": {
            "torch.randn": lambda: torch.randn(numbers, out=out),
            "seeded": lambda: seeded.normal_(out, step=1),
            "secure": lambda: secure.normal_(out, step=1),
            "float64": lambda: seeded.normal_(long, step=1),
            "release": lambda: add_noise(sums, long, 1.0, out),
        },
    }


def measure(numbers: int, repeats: int) -> list[Row]:
    calls = max(1, 10_000 // numbers)  # a clock is too coarse for one small draw
    rows = []
    for form, functions in draws(numbers).items():
        times: dict[str, list[float]] = {name: [] for name in functions}
        for function in functions.values():
            function()
        # Interleaved, so that a busy moment of the machine hits all of them.
        for _ in range(repeats):
            for name, function in functions.items():
                start = time.perf_counter_ns()
                for _ in range(calls):
                    function()
                times[name].append((time.perf_counter_ns() - start) / (calls * numbers))
        best = {name: min(values) for name, values in times.items()}
        median = {name: statistics.median(values) for name, values in times.items()}
        rows += [
            Row(
                numbers,
                form,
                name,
                best[name],
                median[name],
                best[name] / best["torch.randn"],
                median[name] / median["torch.randn"],
                GOALS.get(name) if numbers >= 1_000_000 else None,
            )
            for name in functions
        ]
    return rows


def table(rows: list[Row], repeats: int) -> Table:
    title = f"Standard normals, float32, {torch.get_num_threads()} threads, {repeats} repeats"
    result = Table(
        title=title, caption="best and median: ns per number; ×: relative to torch.randn"
    )
    for heading in ("numbers", "draw"):
        result.add_column(heading, no_wrap=True)
    for heading in ("best", "median", "best ×", "median ×", "goal"):
        result.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        figures = (row.best_ns, row.median_ns, row.best_ratio, row.median_ratio)
        result.add_row(
            f"{row.numbers / 1e6:g} M" if row.numbers >= 1e6 else f"{row.numbers}",
            f"{row.generator}, {row.form}",
            *(f"{figure:.4g}" for figure in figures),
            "" if row.goal is None else f"{row.goal:g}",
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print rows as JSON, not as a table")
    parser.add_argument("--repeats", type=int, default=15, help="of each draw (default 15)")
    parser.add_argument("--numbers", type=int, nargs="+", default=[10_000_000, 10])
    arguments = parser.parse_args()
    rows = [row for n in arguments.numbers for row in measure(n, arguments.repeats)]
    if arguments.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
    else:
        Console().print(table(rows, arguments.repeats))


if __name__ == "__main__":
    main()
