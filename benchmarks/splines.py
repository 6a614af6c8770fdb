"""Time of B-spline features and of a Kolmogorov-Arnold network, in one thread.

The yardstick of the features is the time of writing their tensor once (``fill_``), the least that any
method pays; "torch" is the same by plain torch operations. The network, 64-64-10 with cubic splines on 5
intervals and batch 64, stands beside whole training steps of the peers, measured before on such a machine.
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
from torch import nn

from antiphon.models import KAN, spline_basis
from antiphon.models.splines import _basis_by_torch
from antiphon.numerics import UniformSplines

SHAPES = [(64, 64), (256, 784), (20_000, 10)]
PEERS = {"efficient-kan, whole step": 2.87, "fast-kan, whole step": 1.64}  # ms, best
SPLINES = UniformSplines()


class Row(NamedTuple):
    what: str
    name: str
    best_ms: float
    median_ms: float | None
    ratio: float | None  # of the best times, to the yardstick


def times(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds, interleaved, so that a busy moment of the machine hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats + 3):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            found[name].append((time.perf_counter() - began) * 1e3)
    return {name: values[3:] for name, values in found.items()}


def features(shape: tuple[int, int], repeats: int) -> list[Row]:
    x = torch.rand(shape) * 2 - 1
    leaf = x.clone().requires_grad_()
    weights = torch.randn(*shape, SPLINES.size)
    measured = times(
        {
            "fill_": lambda: torch.empty(*shape, SPLINES.size).fill_(1.0),
            "values": lambda: spline_basis(x, SPLINES),
            "values, torch": lambda: _basis_by_torch(x, SPLINES, 0),
            "values + gradient": lambda: torch.autograd.grad(
                spline_basis(leaf, SPLINES), leaf, weights
            ),
            "values + gradient, torch": lambda: torch.autograd.grad(
                _basis_by_torch(leaf, SPLINES, 0), leaf, weights
            ),
        },
        repeats,
    )
    floor = min(measured["fill_"])
    what = f"features {shape[0]} × {shape[1]} × {SPLINES.size}"
    return [
        Row(what, name, min(values), statistics.median(values), min(values) / floor)
        for name, values in measured.items()
    ]


def network(repeats: int) -> list[Row]:
    model, loss = KAN([64, 64, 10]), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.rand(64, 64) * 2 - 1, torch.randint(10, (64,))

    def gradient() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()

    def step() -> None:
        gradient()
        optimizer.step()

    measured = times({"forward + backward": gradient, "whole step": step}, 10 * repeats)
    what, floor = "KAN 64-64-10, batch 64", min(measured["whole step"])
    rows = [
        Row(what, name, min(values), statistics.median(values), min(values) / floor)
        for name, values in measured.items()
    ]
    return rows + [Row(what, name, best, None, best / floor) for name, best in PEERS.items()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [row for shape in SHAPES for row in features(shape, options.repeats)]
    rows += network(options.repeats)
    if options.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    table = Table(title="Float32, one thread: ms, and ratio to fill_ or to our whole step")
    for name in ("what", "name", "best ms", "median ms", "best ×"):
        table.add_column(name, justify="left" if name in ("what", "name") else "right")
    for row in rows:
        numbers = ("" if value is None else f"{value:.3f}" for value in row[2:])
        table.add_row(row.what, row.name, *numbers)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
