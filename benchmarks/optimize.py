"""Time and value of the best mechanism of each family, beside JAX-Privacy.

JAX-Privacy runs in an environment of its own (``pip install jax-privacy``), given as

    python benchmarks/optimize.py --jax-python PATH/TO/python

with the same objective (root mean square prefix error × sensitivity) and the same T; one case at a
time, first theirs, then ours. Its mechanisms are valued by our code. Nothing passes or fails here.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from antiphon.mechanisms import AbstractMechanism, Banded, Dense, optimize
from antiphon.participation import AbstractParticipation, FixedEpochs, MinSeparation, Once

PEER = Path(__file__).with_name("optimize_jax_privacy.py")
GOALS = {  # seconds
    "banded 64, T = 10,000": 5.0,
    "blt, T = 10,000": 5.0,
    "blt, T = 10,000, 10 times": 5.0,
    "dense, T = 1,000": 60.0,
    "dense, T = 1,000, 10 epochs": 60.0,
}


class Case(NamedTuple):
    name: str
    family: str
    T: int
    participation: AbstractParticipation
    bands: int | None = None


CASES = [
    Case("banded 16, T = 1,000", "banded", 1000, Once(), 16),
    Case("banded 64, T = 1,000", "banded", 1000, Once(), 64),
    Case("banded 16, T = 10,000", "banded", 10_000, Once(), 16),
    Case("banded 64, T = 10,000", "banded", 10_000, Once(), 64),
    Case("blt, T = 1,000", "blt", 1000, Once()),
    Case("blt, T = 10,000", "blt", 10_000, Once()),
    Case("blt, T = 1,000, 10 times", "blt", 1000, MinSeparation(10, 100)),
    Case("blt, T = 10,000, 10 times", "blt", 10_000, MinSeparation(10, 1000)),
    Case("dense, T = 256", "dense", 256, Once()),
    Case("dense, T = 1,000", "dense", 1000, Once()),
    Case("dense, T = 1,000, 10 epochs", "dense", 1000, FixedEpochs(10, 100)),
]


class Result(NamedTuple):
    loss: float
    wall: float
    cpu: float


def ours(case: Case) -> tuple[Result, float | None]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = optimize(case.family, case.T, case.participation, bands=case.bands)
    result = Result(found.loss, time.perf_counter() - wall, time.process_time() - cpu)
    return result, found.gap


def theirs(case: Case, python: str, limit: float) -> Result | None:
    """JAX-Privacy's answer to the case, or None if it took too long or failed."""
    times = getattr(case.participation, "times", 1)
    question = {"family": case.family, "T": case.T, "times": times, "bands": case.bands}
    question["apart"] = getattr(case.participation, "apart", case.T)
    try:
        run = subprocess.run(
            [python, str(PEER), json.dumps(question)],
            capture_output=True,
            text=True,
            timeout=limit,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    mechanism: AbstractMechanism = (
        Dense(np.load(answer["C"])) if "C" in answer else Banded(tuple(answer["column"]))
    )
    loss = mechanism.loss(case.T, case.participation)
    return Result(loss, answer["wall"], answer["cpu"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jax-python", help="python of an environment with jax-privacy")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds given to each of its cases"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=options.json, width=120)
    rows = []
    cases = [case for case in CASES if options.only in case.name]
    for case in track(cases, "Optimising", console=console, transient=True):
        peer = theirs(case, options.jax_python, options.limit) if options.jax_python else None
        own, gap = ours(case)
        rows.append((case.name, own, gap, peer))
    if options.json:
        keys = ("loss", "wall", "cpu")
        records = [
            {
                "case": name,
                **dict(zip(keys, own, strict=True)),
                "gap": gap,
                "jax_privacy": dict(zip(keys, peer, strict=True)) if peer else None,
            }
            for name, own, gap, peer in rows
        ]
        print(json.dumps(records))
        return
    table = Table(title="Best mechanism: loss (rms prefix error × sensitivity) and seconds")
    for name in (
        "case",
        "loss",
        "gap ≤",
        "wall s",
        "CPU s",
        "goal s",
        "JAX loss",
        "JAX wall s",
        "JAX CPU s",
        "CPU ×",
    ):
        table.add_column(name, justify="left" if name == "case" else "right")
    for name, own, gap, peer in rows:
        other = ["", "", "", ""]
        if peer:
            other = [
                f"{peer.loss:.4f}",
                f"{peer.wall:.1f}",
                f"{peer.cpu:.1f}",
                f"{peer.cpu / own.cpu:.0f}",
            ]
        elif options.jax_python:
            other = ["none", f"> {options.limit:.0f}", "", ""]
        goal = f"{GOALS[name]:.0f}" if name in GOALS else ""
        bound = "" if gap is None else f"{gap:.2%}"
        table.add_row(
            name, f"{own.loss:.4f}", bound, f"{own.wall:.2f}", f"{own.cpu:.2f}", goal, *other
        )
    console.print(table)


if __name__ == "__main__":
    main()
