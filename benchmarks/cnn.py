"""Time of one step of GD and DP-GD on the task of the CNN paper's Figure 1, in one thread.

d = 2000, n = 1000, m = 100. The yardstick of the simulator is the time of its two triangular products,
without which no exact simulation in these coordinates can do. "full" is the same step without any
reduction: two dense products of all patches with all filters, and everything else by torch.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from antiphon_papers.cnn import Dynamics, Setting, Span, TwoLayerCNN, signal_patches
from antiphon_papers.cnn.patch_form import PatchForm

STEPS = 6 * 20_000  # of the whole figure


class Row(NamedTuple):
    what: str
    name: str
    best_ms: float
    median_ms: float
    ratio: float  # of the best times, to the products
    figure_minutes: float  # six runs of 20 000 steps at the median


def times(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds, interleaved, so that a busy moment of the machine hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats + 3):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            found[name].append((time.perf_counter() - began) * 1e3)
    return {name: values[3:] for name, values in found.items()}


def measured(dtype: str, repeats: int, is_small: bool) -> list[Row]:
    size = {"d": 200, "n": 100, "m": 10} if is_small else {}
    noisy, quiet = Setting(**size), Setting(**size, noise=0.0)
    data = signal_patches(noisy.n, noisy.d, spread=noisy.spread, seed=0)
    span = Span(data, np.dtype(dtype))
    runs = {"DP-GD": Dynamics(span, noisy, seed=0), "GD": Dynamics(span, quiet, seed=0)}
    inner, out = runs["GD"].inner.copy(), np.empty((2 * noisy.m, noisy.n), dtype)
    model = TwoLayerCNN(noisy.d, noisy.m).to(torch.from_numpy(out).dtype)
    form = PatchForm(model, data.x, data.y)

    def products() -> None:
        span.combined(span.products(inner, out))

    functions: dict[str, Callable[[], object]] = {"the two products": products}
    functions |= {f"{name}, whole step": run.step for name, run in runs.items()}
    functions["GD, full"] = form.sums
    found = times(functions, repeats)
    floor = min(found["the two products"])
    return [
        Row(
            dtype,
            name,
            min(values),
            statistics.median(values),
            min(values) / floor,
            STEPS * statistics.median(values) / 60_000,
        )
        for name, values in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        rows = [
            row
            for dtype in ("float64", "float32")
            for row in measured(dtype, options.repeats, options.small)
        ]
    if options.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    table = Table(title="One thread: ms per step, ratio to the two products")
    for name in ("dtype", "what", "best ms", "median ms", "best ×", "figure, min"):
        table.add_column(name, justify="left" if name in ("dtype", "what") else "right")
    for row in rows:
        table.add_row(row.what, row.name, *(f"{value:.3f}" for value in row[2:]))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
