"""Time and memory of a private training step, as ratios to the same model trained without privacy.

Torch computes in one thread; a private run draws the next step's noise in another one. So two times are
told, of CPU in all threads and by the clock, which needs two idle cores. 5 steps to warm up, 7 blocks of 15
steps (fewer if they take more than a second), interleaved: best and median block. All draw rows of a tensor
in memory and take steps of plain gradient descent. Memory is the highest resident size within three steps
less that before the model was made, in a process of its own for each variant, after a small run of the same
kind has loaded all code.

"Poisson" is what ``make_private`` does unless told otherwise; all others go through a shuffled order, for
which correlated noise is certified in no time. "torch.func" is DP-SGD written by hand with vmap. "torch
splines" is the same KAN as others compute it, not private. Peers run in environments of their own,

    python benchmarks/training.py --opacus-python PATH/TO/python --jax-python PATH/TO/python --out FILE

with their own baseline in the same run; ratios compare. The goals are printed beside the ratios; nothing
passes or fails here.
"""

import json
import math
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from training_cases import CASES, RATE, plain_step
from training_timing import (
    Row,
    Step,
    chosen,
    dump,
    in_own_process,
    parser,
    peak,
    protocol_of,
    rows,
    timed,
)

from antiphon.mechanisms import AbstractMechanism, Independent, LambdaCGD, NuFTRL
from antiphon.plans import Plan, Poisson, ShuffledEpochs
from antiphon.training.run import make_private
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

STEPS = 1000  # of the plan; fewer are taken
OURS: dict[str, tuple[AbstractMechanism, str]] = {
    "independent": (Independent(), "shuffled"),
    "independent, Poisson": (Independent(), "poisson"),
    "λ-CGD": (LambdaCGD(0.9), "shuffled"),
    "BLT, 5 buffers": (NuFTRL(0.001).buffered(STEPS, 5), "shuffled"),
}
GOALS = {
    "mlp": 2.2,
    "cnn": 1.5,
    "text": 2.2,
    "llama": 1.35,
    "lora": 1.1,
}  # CPU, batches of 64, or 8
WALL_GOALS = {"mlp": 1.6, "cnn": 1.4, "text": 1.7}
CORRELATED = 1.15  # goal for λ-CGD and BLT, to independent noise
MEMORY = 2.0  # goal, to plain, and the mechanism's buffers
BUFFERS = {"λ-CGD": 1, "BLT, 5 buffers": 5}
LARGEST = 1e9  # bytes of gradients of single examples, if a variant forms them all
LARGE = 5_000_000  # parameters from which on correlated noise and vmap by hand are left out


def model_of(case: str) -> nn.Module:
    match case:
        case "kan-10":
            return TwoLayerKAN(10, 32)
        case "kan-784":
            return TwoLayerKAN(784, 32)
    return CASES[case].model()


def size_of(case: str) -> int:
    return sum(p.numel() for p in model_of(case).parameters() if p.requires_grad)


def private_step(case: str, batch: int, variant: str, data: tuple[Tensor, Tensor]) -> Step:
    model, (mechanism, sampling) = model_of(case), OURS[variant]
    trained = [p for p in model.parameters() if p.requires_grad]
    loss, n, is_poisson = CASES[case].loss, len(data[0]), sampling == "poisson"
    plan = Plan(
        n=n,
        sampling=Poisson(batch / n) if is_poisson else ShuffledEpochs(batch),
        steps=STEPS,
        mechanism=mechanism,
        relation="add-remove" if is_poisson else "zero-out",
        noise_multiplier=1.0,
    )
    run = make_private(
        model,
        torch.optim.SGD(trained, lr=RATE),
        data,
        lambda model, x, y: loss(model(x), y),
        plan=plan,
        delta=1e-5,
    )
    return partial(next, run.take(show=False))


def vmap_step(case: str, batch: int, data: tuple[Tensor, Tensor]) -> Step:
    model = model_of(case)
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return CASES[case].loss(functional_call(model, parameters, (x[None],)), y[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        drawn = torch.randint(len(data[0]), (batch,))
        found = gradients(trained, data[0][drawn], data[1][drawn])
        norm = torch.stack([g.flatten(1).norm(dim=1) for g in found.values()]).norm(dim=0)
        weights = (1 / norm).clamp(max=1.0)
        for name, p in trained.items():
            total = torch.tensordot(weights, found[name], dims=1)
            p.sub_(total.add_(torch.randn_like(p)), alpha=RATE / batch)

    return step


def makers(case: str, batch: int, data: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """How to make the step of every variant."""
    loss = CASES[case].loss
    found: dict[str, Any] = {"plain": lambda: plain_step(model_of(case), loss, data, batch)}
    if case.startswith("kan"):
        found["plain, torch splines"] = lambda: plain_step(CASES[case].model(), loss, data, batch)
    size = sum(p.numel() for p in model_of(case).parameters())
    names = OURS if size <= LARGE else [name for name in OURS if name not in BUFFERS]
    found |= {name: partial(private_step, case, batch, name, data) for name in names}
    if size <= LARGE and 4 * batch * size_of(case) <= LARGEST:
        found["torch.func"] = lambda: vmap_step(case, batch, data)
    return found


def measure(case: str, batch: int, options: Any) -> list[Row]:
    torch.manual_seed(0)
    steps = makers(case, batch, CASES[case].data(CASES[case].n))
    times = timed({name: make() for name, make in steps.items()}, protocol_of(options))
    memory = {}
    if not options.quick:
        for name in steps:
            used = in_own_process((case, batch, name))
            if used is not None:
                memory[name] = used
    return rows("antiphon", case, batch, times, memory)


def memory_of(case: str, batch: int, variant: str) -> float:
    torch.manual_seed(0)
    data, small = CASES[case].data(CASES[case].n), CASES[case].data(64)
    for _ in range(2):
        step = makers(case, min(8, batch), small)[variant]()
        step()
    del step, small
    return peak(makers(case, batch, data)[variant])


def theirs(script: str, python: str, case: str, batch: int, options: Any) -> list[Row]:
    command = [python, str(Path(__file__).with_name(script)), "--only", case]
    command += ["--batches", str(batch)] + ["--quick"] * options.quick
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Row(**row) for row in json.loads(run.stdout.splitlines()[-1])]


def goal_of(row: Row, goals: dict[str, float]) -> float | None:
    if row.library != "antiphon" or not row.variant.startswith("independent"):
        return None
    return goals.get(row.case) if row.batch == (CASES[row.case].batch or 64) else None


def show(found: list[Row], console: Console) -> None:
    table = Table(title="One step: ms, ratio to the library's own plain step, and megabytes")
    names = ("case", "batch", "library", "variant", "CPU ms", "best ×", "median ×", "goal ×")
    wall = ("clock ms", "best ×", "median ×", "goal ×")
    for name in (*names, *wall, "to independent", "goal", "MB", "MB to plain", "goal"):
        table.add_column(
            name, justify="left" if name in ("case", "library", "variant") else "right"
        )
    by_key = {(row.case, row.batch, row.library, row.variant): row for row in found}
    for row in found:
        place = (row.case, row.batch, row.library)
        base, white = by_key[*place, "plain"], by_key.get((*place, "independent"))
        table.add_row(
            row.case, str(row.batch), row.library, row.variant,
            _text(row.best_ms),
            _text(_ratio(row.best_ms, base.best_ms)), _text(_ratio(row.median_ms, base.median_ms)),
            _text(goal_of(row, GOALS)),
            _text(row.best_wall_ms), _text(_ratio(row.best_wall_ms, base.best_wall_ms)),
            _text(_ratio(row.median_wall_ms, base.median_wall_ms)), _text(goal_of(row, WALL_GOALS)),
            *_correlated(row, white),
            _text(row.memory_mb, 0), _text(_ratio(row.memory_mb, base.memory_mb)),
            _text(_memory_goal(row, base)),
        )  # fmt: skip
    console.print(table)


def _correlated(row: Row, white: Row | None) -> tuple[str, str]:
    if row.variant not in BUFFERS or white is None:
        return "", ""
    return _text(_ratio(row.best_ms, white.best_ms)), _text(CORRELATED)


def _memory_goal(row: Row, base: Row) -> float | None:
    if row.library != "antiphon" or row.variant not in OURS or not base.memory_mb:
        return None
    buffers = 4e-6 * size_of(row.case) * BUFFERS.get(row.variant, 0)
    return MEMORY + buffers / base.memory_mb


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _text(value: float | None, digits: int = 2) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--opacus-python", help="python of an environment with opacus")
    made.add_argument("--jax-python", help="python of an environment with jax-privacy")
    made.add_argument("--json", action="store_true")
    made.add_argument("--out", help="file that keeps rows, so that a run can go on")
    options = made.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        case, batch, variant = options.memory_of
        print(memory_of(case, int(batch), variant))
        return
    console = Console(stderr=options.json, width=170)
    found = kept(options.out)
    libraries: dict[str, Callable[[str, int], list[Row]]] = {
        "antiphon": lambda case, batch: measure(case, batch, options)
    }
    for library, python in (("opacus", options.opacus_python), ("jax-privacy", options.jax_python)):
        if python:
            script = f"training_{library.replace('-', '_')}.py"
            libraries[library] = lambda case, batch, python=python, script=script: theirs(  # type: ignore[misc]
                script, python, case, batch, options
            )
    possible = {name: case for name, case in CASES.items() if case.is_possible}
    for name in CASES.keys() - possible.keys():
        console.print(f"{name} is left out: it needs {' and '.join(CASES[name].needs)}.")
    pairs = chosen(options, possible, {name: case.batch for name, case in possible.items()})
    places = [(library, *place) for library in libraries for place in pairs]
    for library, case, batch in track(places, "Timing", console=console, transient=True):
        if not any((r.library, r.case, r.batch) == (library, case, batch) for r in found):
            found += libraries[library](case, batch)
            keep(options.out, found)
    if options.json:
        dump(found)
        return
    show(found, console)


def kept(path: str | None) -> list[Row]:
    """Rows of a run that was broken off."""
    there = path is not None and Path(path).exists()
    return [Row(**row) for row in json.loads(Path(path).read_text())] if path and there else []


def keep(path: str | None, found: list[Row]) -> None:
    if path is not None:
        Path(path).write_text(json.dumps([row._asdict() for row in found]))


if __name__ == "__main__":
    main()
