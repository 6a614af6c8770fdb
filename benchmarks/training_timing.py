"""How ``training.py`` and its peers time steps and measure memory, by Python's own library alone."""

import argparse
import ctypes
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

Step = Callable[[], object]
BATCHES = (64, 256, 2048)
SECONDS = 1.0  # a block ends after these, or after its steps


class Row(NamedTuple):
    case: str
    batch: int
    library: str
    variant: str
    best_ms: float | None = None  # None: not possible, or too large
    median_ms: float | None = None
    memory_mb: float | None = None
    best_wall_ms: float | None = None
    median_wall_ms: float | None = None


class Protocol(NamedTuple):
    warm_up: int = 5
    blocks: int = 7
    steps: int = 15

    @property
    def most(self) -> int:
        """No variant takes more steps."""
        return self.warm_up + self.blocks * self.steps


def timed(variants: dict[str, Step], protocol: Protocol) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds per step of every block, interleaved: of CPU, and by the clock.

    Other work on the machine hardly counts in the first, and does in the second.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    counts = {}
    for name, step in variants.items():
        for _ in range(protocol.warm_up - 1):
            step()
        began = time.process_time()
        step()
        one = time.process_time() - began
        counts[name] = max(1, min(protocol.steps, int(SECONDS / one)))
    for _ in range(protocol.blocks):
        for name, step in variants.items():
            began, clock = time.process_time(), time.perf_counter()
            for _ in range(counts[name]):
                step()
            spent = time.process_time() - began, time.perf_counter() - clock
            cpu, wall = (seconds * 1e3 / counts[name] for seconds in spent)
            found[name].append((cpu, wall))
    return found


def peak(make: Callable[[], Step], steps: int = 3) -> float:
    """Megabytes that a variant needs beyond what the process holds now: model, gradients, noise, steps.

    The resident size after ``make`` and its steps, at its highest, less that before. Linux only: the
    mark of the highest size is set back in between, so that what ``make`` needs for a moment (proofs,
    compilation) does not count; memory that was freed is given back to the system before.
    """
    _give_back()
    before = _resident("VmRSS")
    step = make()
    _give_back()
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(steps):
        step()
    return (_resident("VmHWM") - before) / 1024


def rows(
    library: str,
    case: str,
    batch: int,
    times: dict[str, list[tuple[float, float]]],
    memory: dict[str, float],
) -> list[Row]:
    found = []
    for name, blocks in times.items():
        cpu, wall = zip(*blocks, strict=True)
        best, clock = (min(cpu), statistics.median(cpu)), (min(wall), statistics.median(wall))
        found.append(Row(case, batch, library, name, *best, memory.get(name), *clock))
    return found


def in_own_process(question: Iterable[object]) -> float | None:
    """What the running script prints when it is asked for one variant's memory."""
    command = [sys.executable, sys.argv[0], "--memory-of", *map(str, question)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


def parser(text: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", default="", help="cases, such as mlp,cnn")
    made.add_argument("--batches", default=",".join(map(str, BATCHES)))
    made.add_argument("--quick", action="store_true", help="few steps, and no memory")
    made.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    return made


def protocol_of(options: argparse.Namespace) -> Protocol:
    return Protocol(3, 3, 5) if options.quick else Protocol()


def chosen(
    options: argparse.Namespace, cases: Iterable[str], fixed: Mapping[str, int | None] | None = None
) -> list[tuple[str, int]]:
    """Pairs of a case and a batch size, which is ``fixed`` for some cases."""
    names = [name for name in cases if not options.only or name in options.only.split(",")]
    asked = [int(batch) for batch in options.batches.split(",")]
    pairs = []
    for name in names:
        own = None if fixed is None else fixed.get(name)
        pairs += [(name, batch) for batch in (asked if own is None else [own])]
    return pairs


def dump(found: Iterable[Row]) -> None:
    print(json.dumps([row._asdict() for row in found]))


def _give_back() -> None:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident(field: str) -> int:
    """Kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field + ":")))
