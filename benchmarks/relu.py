"""Time of private passes of one ReLU neuron, next to what reading the records costs, in the same run.

"read" is a plain full step in NumPy, X @ w and X.T @ r without clipping and noise: two passes over memory.
Ratios to it are of the same rows, interleaved; nothing passes or fails here, the goal is printed.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from antiphon.mechanisms import BLT, AbstractMechanism, Independent, LambdaCGD, Tree
from antiphon.numerics import Generator
from antiphon.plans import AbstractSampling, FullBatch, Plan, Poisson, ShuffledEpochs
from antiphon.training.neuron import descend

GOAL = 10.0  # seconds for one pass over a million rows of 20 features


class Row(NamedTuple):
    what: str
    steps: int
    seconds: float  # per pass over the rows, best
    ratio: float  # to reading them


def passes(rows: int, columns: int) -> dict[str, tuple[int, float, Callable[[], object]]]:
    """What is timed: steps, passes over the rows, and the call."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    w = rng.normal(size=columns) / np.sqrt(columns)
    y = np.maximum(X @ w, 0) + 0.5 * rng.normal(size=rows)

    def private(
        sampling: AbstractSampling, steps: int, mechanism: AbstractMechanism
    ) -> Callable[[], object]:
        plan = Plan(
            n=rows,
            sampling=sampling,
            steps=steps,
            mechanism=mechanism,
            relation="replace-one",
            noise_multiplier=4.0,
        )
        secret = Generator.secure()
        return lambda: descend(X, y, plan, learning_rate=1e-3, generator=secret)

    def read() -> object:
        return X.T @ (np.maximum(X @ w, 0) - y)

    buffers = ((0.02, 0.1, 0.3), (0.999, 0.95, 0.6))
    single, batch = ShuffledEpochs(1), max(1, rows // 100)
    return {
        "read": (1, 1.0, read),
        "full batches": (10, 10.0, private(FullBatch(), 10, Independent())),
        "Poisson, a tenth": (10, 1.0, private(Poisson(0.1), 10, Independent())),
        "one pass, a hundredth": (100, 1.0, private(ShuffledEpochs(batch), 100, Independent())),
        "record by record": (rows, 1.0, private(single, rows, Independent())),
        "record by record, tree noise": (rows, 1.0, private(single, rows, Tree())),
        "record by record, λ-CGD": (rows, 1.0, private(single, rows, LambdaCGD(0.9))),
        "record by record, BLT": (rows, 1.0, private(single, rows, BLT(*buffers))),
    }


def measure(rows: int, columns: int, repeats: int) -> list[Row]:
    timed = passes(rows, columns)
    best = dict.fromkeys(timed, float("inf"))
    for _, _, call in timed.values():  # compile, and warm up
        call()
    for _ in range(repeats):
        for name, (_, share, call) in timed.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - start) / share)
    return [
        Row(name, steps, best[name], best[name] / best["read"])
        for name, (steps, _, _) in timed.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.rows, options.columns, options.repeats)
    if options.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    title = f"{options.rows:,} rows of {options.columns} features; goal {GOAL:g} s for one pass"
    view = Table(title=title, title_justify="left")
    for name in ("", "steps", "s per pass", "× reading"):
        view.add_column(name, justify="left" if not name else "right")
    for row in rows:
        view.add_row(row.what, f"{row.steps:,}", f"{row.seconds:.3f}", f"{row.ratio:.1f}")
    Console().print(view)


if __name__ == "__main__":
    main()
