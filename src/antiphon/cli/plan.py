"""``antiphon plan``: how much noise a training needs, and which mechanism adds the least."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.arguments import (
    RELATIONS,
    Commands,
    check_folder,
    check_new,
    command,
    names,
    picture,
    positive_number,
    probability,
    whole,
)

if TYPE_CHECKING:
    from antiphon.plan import Plan
    from antiphon.sampling import AbstractSampling

from antiphon.writing import write_whole

__all__ = ["add", "run"]

_SAMPLINGS = (
    "poisson",
    "cyclic-poisson",
    "fixed-size",
    "shuffled",
    "reshuffled",
    "one-pass",
    "balls-in-bins",
    "full-batch",
)


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "plan",
        "compare mechanisms for a training: certified noise, error, memory, and which to take",
        "No data are needed. Correlated noise under Poisson sampling and balls in bins is certified by "
        "Monte Carlo, which takes minutes and is then remembered; --quick leaves it out.",
        """
antiphon plan --n 60000 --batch 600 --epochs 10 --epsilon 2 --quick
antiphon plan --n 455 --sampling full-batch --steps 100 --epsilon 1 --delta 1e-4 --out plan.json
antiphon plan --n 50000 --batch 500 --epochs 20 --epsilon 8 --sampling shuffled \\
    --relation zero-out --mechanisms independent,blt,banded --figure plan.svg""",
    )
    parser.add_argument("--n", metavar="N", type=whole, required=True, help="number of records")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--batch", metavar="B", type=whole, help="records per step (expected)")
    size.add_argument("--rate", metavar="R", type=positive_number, help="or their share of all")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", metavar="T", type=whole, help="noisy steps")
    length.add_argument("--epochs", metavar="K", type=positive_number, help="or passes of the data")
    parser.add_argument("--epsilon", metavar="E", type=positive_number, required=True, help="ε")
    parser.add_argument("--delta", metavar="D", type=probability, help="δ (n^-1.1)")
    parser.add_argument(
        "--sampling", choices=_SAMPLINGS, default="poisson", help="how batches are drawn (poisson)"
    )
    parser.add_argument("--cycle", metavar="C", type=whole, help="groups of cyclic-poisson")
    parser.add_argument(
        "--relation",
        choices=RELATIONS,
        default=RELATIONS[0],
        help="how neighbours differ (add-remove)",
    )
    parser.add_argument(
        "--mechanisms", metavar="A,B", type=names, help="certify these (those that rank best)"
    )
    parser.add_argument("--quick", action="store_true", help="no Monte Carlo: seconds, more noise")
    parser.add_argument(
        "--figure", metavar="FILE", type=picture, help="draw it: .png, .pdf or .svg"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="write the recommended plan as JSON"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE of --out if it exists")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare mechanisms for the plan."""
    check_new(options.out, options.force)
    check_folder(options.figure)
    plan = _plan(options)
    from antiphon.accounting import compare

    delta = options.n**-1.1 if options.delta is None else options.delta
    found = compare(
        plan,
        options.epsilon,
        delta,
        options.mechanisms,
        quick=options.quick,
        announce=_announce,
    )
    if options.out is not None:
        write_whole(options.out, found.plan.to_json() + "\n")
    if options.json:
        print(found.to_json())
    else:
        from rich.console import Console

        Console().print(found)
    if options.figure is not None:
        found.plot().savefig(options.figure, dpi=150)
    written = {"plan": options.out, "figure": options.figure}
    for what, path in written.items() if not options.json else ():
        if path is not None:
            print(f"{what}: {path}")
    return 0


def _announce(name: str) -> None:
    if sys.stderr.isatty():
        print(f"certifying {name}", file=sys.stderr)


def _plan(options: argparse.Namespace) -> "Plan":
    from antiphon.plan import Plan

    batch = _batch(options)
    steps = options.steps or max(1, round(options.epochs * options.n / batch))
    sampling = _sampling(options, batch)
    return Plan(options.n, sampling, steps, "auto", relation=options.relation)


def _batch(options: argparse.Namespace) -> float:
    """The expected number of records per step."""
    if (options.cycle is None) == (options.sampling == "cyclic-poisson"):
        options.misused("--cycle and --sampling cyclic-poisson belong together")
    if options.sampling == "full-batch":
        if options.batch is not None or options.rate is not None:
            options.misused("full batches have no --batch and no --rate")
        return float(options.n)
    if options.batch is None and options.rate is None:
        options.misused(f"--sampling {options.sampling} needs --batch or --rate")
    batch = float(options.batch or options.rate * options.n)
    if batch > options.n:
        options.misused(f"a batch of {batch:g} is more than all {options.n} records")
    return batch


def _sampling(options: argparse.Namespace, batch: float) -> "AbstractSampling":
    from antiphon import sampling

    rate, whole_batch = batch / options.n, max(1, round(batch))
    match options.sampling:
        case "poisson":
            return sampling.Poisson(options.rate or rate)
        case "cyclic-poisson":
            return sampling.CyclicPoisson(min(1.0, rate * options.cycle), options.cycle)
        case "fixed-size":
            return sampling.FixedSize(whole_batch)
        case "shuffled" | "reshuffled":
            return sampling.ShuffledEpochs(whole_batch, reshuffle=options.sampling == "reshuffled")
        case "one-pass":
            return sampling.OnePass(whole_batch)
        case "balls-in-bins":
            return sampling.BallsInBins(max(1, round(options.n / batch)))
        case _:
            return sampling.FullBatch()
