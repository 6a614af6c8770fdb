"""Time of a private step on a two-layer KAN whose both layers learn, against its goals, in one thread.

Private steps clip every example, add noise to both layers and update them, from inputs that were encoded
once. Plain steps are autograd on the same network: with splines by torch operations, as others write KANs;
with our fused splines; and with torch operations on features that were computed once. "Two products" are
Φ Wᵀ and Sᵀ Φ of the first layer's dense features, which no method with dense features can avoid.

    python benchmarks/kan.py --opacus-python PATH/TO/python

CPU time, best of interleaved blocks. The goals: at most half of a plain step of torch operations, at least
10 times as fast as the best mode of Opacus, and within 2 of the two products at d = 784.
"""

import argparse
import json
import subprocess
from functools import partial
from pathlib import Path

import torch
from kan_cases import CASES, WIDTH, data, draw, loss, plain_step, torch_model
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from training_cases import RATE
from training_timing import Protocol, Row, Step, dump, rows, timed

from antiphon.mechanisms import Independent
from antiphon.numerics import Generator
from antiphon.plans import FullBatch, Plan, ShuffledEpochs
from antiphon.training.run import make_private
from antiphon_papers.common.closed_form import ClosedForm
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

CLIP_NORM = 0.5
OURS = "private, closed form"


def closed_step(case: str, x: Tensor, y: Tensor, batch: int) -> Step:
    model = TwoLayerKAN(CASES[case].d, WIDTH, train="both")
    form = ClosedForm(model, x, y, background=-1.0 if CASES[case].background else None)
    noise = Generator.secure()
    layers, count = (model.first.coef, model.second.coef), 0

    @torch.no_grad()
    def step() -> None:
        nonlocal count
        chosen = None if batch == len(x) else torch.randint(len(x), (batch,)).numpy()
        sums = form.sums(chosen, CLIP_NORM)
        parts = [part for part in (sums.first, sums.second) if part is not None]
        for coef, total, z in zip(layers, parts, noise.normal(parts, count), strict=True):
            coef.sub_(total.add_(z, alpha=CLIP_NORM), alpha=RATE / batch)
        count += 1

    return step


def engine_step(case: str, x: Tensor, y: Tensor, batch: int) -> Step:
    """What `make_private` does with any model."""
    model = TwoLayerKAN(CASES[case].d, WIDTH, train="both")
    run = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=RATE),
        (x, y),
        lambda model, x, y: nn.functional.softplus(-y * model(x)),
        plan=Plan(
            n=len(x),
            sampling=FullBatch() if batch == len(x) else ShuffledEpochs(batch),
            steps=400,
            mechanism=Independent(),
            clip_norm=CLIP_NORM,
            relation="zero-out",
            noise_multiplier=1.0,
        ),
        delta=1e-6,
    )
    return partial(next, run.take(show=False))


def cached_step(case: str, x: Tensor, y: Tensor, batch: int) -> Step:
    """Plain, with the first layer's features computed once."""
    model = torch_model(case)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    with torch.no_grad():
        features = torch.cat([model._features(part) for part in torch.split(x, 1024)])

    def step() -> None:
        inputs, signs = draw(features, y, batch)
        optimizer.zero_grad()
        hidden = torch.tanh(model.first(inputs) / CASES[case].d ** 0.5)
        out = model.second(model._features(hidden)).squeeze(-1) / WIDTH**0.5
        loss(out, signs).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def two_products(case: str, batch: int) -> Step:
    features = torch.rand(batch, 8 * CASES[case].d)
    weight, slopes = torch.randn(WIDTH, features.shape[1]), torch.randn(batch, WIDTH)
    return lambda: (features @ weight.T, slopes.T @ features)


def measure(case: str, quick: bool) -> list[Row]:
    torch.manual_seed(0)
    (x, y), found = data(case), []
    for batch in (256, CASES[case].n):
        fused = TwoLayerKAN(CASES[case].d, WIDTH, train="both")
        steps = {
            "two products": two_products(case, batch),
            OURS: closed_step(case, x, y, batch),
            "private, make_private": engine_step(case, x, y, batch),
            "plain, torch operations": plain_step(torch_model(case), x, y, batch),
            "plain, fused splines": plain_step(fused, x, y, batch),
            "plain, torch, features once": cached_step(case, x, y, batch),
        }
        protocol = Protocol(3, 3, 5) if quick else Protocol(3, 7, 15)
        found += rows("antiphon", case, batch, timed(steps, protocol), {})
    return found


def theirs(python: str, options: argparse.Namespace) -> list[Row]:
    command = [python, str(Path(__file__).with_name("kan_opacus.py")), "--only", options.only]
    run = subprocess.run(
        command + ["--quick"] * options.quick, capture_output=True, text=True, check=True
    )
    return [Row(**row) for row in json.loads(run.stdout.splitlines()[-1])]


def show(found: list[Row], console: Console) -> None:
    table = Table(title="One step: CPU ms, and its time over that of our private step")
    for name in ("case", "batch", "library", "variant", "best ms", "median ms", "over ours"):
        table.add_column(name, justify="right" if "ms" in name or "ours" in name else "left")
    ours = {(row.case, row.batch): row.best_ms for row in found if row.variant == OURS}
    for row in found:
        base = ours.get((row.case, row.batch))
        if row.best_ms is None or row.median_ms is None or not base:
            continue
        numbers = f"{row.best_ms:.2f}", f"{row.median_ms:.2f}", f"{row.best_ms / base:.2f}"
        table.add_row(row.case, str(row.batch), row.library, row.variant, *numbers)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases, with commas: " + ", ".join(CASES))
    parser.add_argument("--opacus-python", help="python of an environment with opacus")
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for case in CASES if not options.only or case in options.only.split(",")]
    found = [row for case in cases for row in measure(case, options.quick)]
    if options.opacus_python:
        found += theirs(options.opacus_python, options)
    if options.json:
        dump(found)
        return
    show(found, Console(width=110))


if __name__ == "__main__":
    main()
