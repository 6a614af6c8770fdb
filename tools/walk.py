"""Which of our files and functions an action passes through: how much somebody has to read to follow it.

    python tools/walk.py [step|certify|make_private|train]

Prints the files of each action with the number of functions that were called, and totals. Modules count
when a function of theirs runs, not when they are imported.
"""

import argparse
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import antiphon as ap

SOURCE = Path(ap.__file__).parent
GOALS = {"step": 10, "certify": 10, "make_private": 25, "train": 60}
Seen = dict[str, set[str]]


@contextmanager
def walked() -> Iterator[Seen]:
    """The functions that are called, by file."""
    seen: Seen = defaultdict(set)

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            file = Path(code.co_filename)
            if file.is_relative_to(SOURCE):
                seen[str(file.relative_to(SOURCE))].add(code.co_qualname)

    sys.setprofile(hook)
    threading.setprofile(hook)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _run() -> ap.training.Run:
    torch.manual_seed(0)
    x, y = torch.randn(200, 8), torch.randint(0, 3, (200,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    return ap.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        (x, y),
        lambda model, x, y: nn.functional.cross_entropy(model(x), y),
        epsilon=4.0,
        delta=1e-5,
        epochs=2,
        batch_size=20,
        mechanism="independent",
    )


def step() -> Seen:
    """One step of a run of `make_private`."""
    steps = iter(_run())
    next(steps)
    with walked() as seen:
        next(steps)
    return seen


def certify() -> Seen:
    """`certify` of a DP-SGD plan."""
    plan = ap.Plan(
        n=1000,
        sampling=ap.Poisson(0.01),
        steps=100,
        mechanism=ap.mechanisms.Independent(),
        noise_multiplier=1.0,
    )
    with walked() as seen:
        ap.certify(plan, delta=1e-5)
    return seen


def make_private() -> Seen:
    """`make_private` with a new plan."""
    with walked() as seen:
        _run()
    return seen


def train() -> Seen:
    """``antiphon train`` on the data that scikit-learn ships."""
    from antiphon.commands import main

    with tempfile.TemporaryDirectory() as folder, walked() as seen:
        main(["train", "--out", f"{folder}/model", "--seed", "1"])
    return seen


ACTIONS: dict[str, Callable[[], Seen]] = {
    "step": step,
    "certify": certify,
    "make_private": make_private,
    "train": train,
}


def main() -> None:
    """Walk the actions that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("actions", nargs="*", default=list(ACTIONS), choices=[[], *ACTIONS])
    options = parser.parse_args()
    totals = {}
    for name in options.actions:
        seen = ACTIONS[name]()
        print(f"\n{name}")
        for file, functions in sorted(seen.items()):
            print(f"  {file}: {len(functions)}")
        totals[name] = len(seen), sum(map(len, seen.values()))
    print()
    for name, (files, count) in totals.items():
        print(f"{name}: {files} files (goal {GOALS[name]}), {count} functions")


if __name__ == "__main__":
    main()
