"""``antiphon plan``: how much noise a training needs, and which mechanism adds the least."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.commands.arguments import (
    RELATIONS,
    Commands,
    check_new,
    command,
    names,
    picture,
    positive_number,
    probability,
    replacing,
    whole,
)
from antiphon.commands.printing import show
from antiphon.writing import write_whole

if TYPE_CHECKING:
    from antiphon.plans import AbstractSampling, Plan

__all__ = ["add", "run"]

# Those of `antiphon.plans`, which is imported when the command runs.
_SAMPLINGS = (
    "poisson, cyclic-poisson, fixed-size, shuffled, reshuffled, one-pass, balls-in-bins or "
    "full-batch"
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
antiphon plan --n 60000 --batch-size 600 --epochs 10 --epsilon 2 --quick
antiphon plan --n 455 --sampling full-batch --steps 100 --epsilon 1 --delta 1e-4 --out plan.json
antiphon plan --n 50000 --batch-size 500 --epochs 20 --epsilon 8 --sampling shuffled \\
    --relation zero-out --mechanisms independent,blt,banded --figure plan.svg""",
    )
    parser.add_argument("--n", metavar="N", type=whole, required=True, help="number of records")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--batch-size", metavar="N", type=whole, help="records per step (expected)")
    size.add_argument("--rate", metavar="R", type=positive_number, help="or their share of all")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", metavar="T", type=whole, help="noisy steps")
    length.add_argument("--epochs", metavar="K", type=positive_number, help="or passes of the data")
    parser.add_argument("--epsilon", metavar="E", type=positive_number, required=True, help="ε")
    parser.add_argument("--delta", metavar="D", type=probability, help="δ (n^-1.1)")
    parser.add_argument(
        "--sampling",
        metavar="NAME",
        default="poisson",
        help=f"how batches are drawn: {_SAMPLINGS} (poisson)",
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
    replacing(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare mechanisms for the plan."""
    check_new(options.out, options.figure, force=options.force)
    plan = _plan(options)
    from antiphon.accounting import compare
    from antiphon.plans import delta_of

    delta = delta_of(options.delta, options.n)
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
    show(found, is_json=options.json)
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
    from antiphon.plans import Plan, steps_of

    sampling = _sampling(options)
    steps = steps_of(options.epochs, options.steps, options.n, sampling.expected_batch(options.n))
    return Plan(options.n, sampling, steps, "auto", relation=options.relation)


def _sampling(options: argparse.Namespace) -> "AbstractSampling":
    """As the options say; wrong usage if they do not go together."""
    from antiphon.errors import PlanError
    from antiphon.plans import SAMPLINGS, sampling_of

    is_sized = options.batch_size is not None or options.rate is not None
    if (options.cycle is None) == (options.sampling == "cyclic-poisson"):
        options.misused("--cycle and --sampling cyclic-poisson belong together")
    if is_sized and options.sampling == "full-batch":
        options.misused("full batches have no --batch-size and no --rate")
    if not is_sized and options.sampling in {*SAMPLINGS} - {"full-batch"}:
        options.misused(f"--sampling {options.sampling} needs --batch-size or --rate")
    size = {"rate": options.rate, "cycle": options.cycle}
    try:
        return sampling_of(options.sampling, options.n, options.batch_size, **size)
    except PlanError as error:
        options.misused(str(error))
        raise  # which the line above has done
