"""``antiphon audit``: attack real runs of a certified plan."""

import argparse
import sys
from pathlib import Path

from antiphon.commands.arguments import (
    Commands,
    check_new,
    command,
    natural,
    picture,
    probability,
    replacing,
    whole,
)
from antiphon.commands.printing import show

__all__ = ["add", "run"]

_FEWEST = 20  # two-world runs: fewer may leave one of the worlds empty


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "audit",
        "attack real runs of a certified plan, and compare what is found with its ε",
        "Nothing in TARGET is changed. Exit code: 0 if the certificate is consistent with the attacks, 1 "
        "if it is refuted or cannot be audited, 2 after wrong usage.",
        "antiphon audit plan.json --delta 1e-5 --quick",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=Path,
        help="a run's folder, an exported .safetensors file, or the JSON of a certificate or a plan",
    )
    parser.add_argument("--quick", action="store_true", help="fewer canaries and runs")
    parser.add_argument(
        "--delta", metavar="D", type=probability, help="δ for a plan without certificate (n^-1.1)"
    )
    parser.add_argument(
        "--runs", metavar="N", type=_runs, help="two-world runs (as many as fit); 0 leaves them out"
    )
    parser.add_argument(
        "--seed", metavar="S", type=natural, default=0, help="of coins, noise and batches (0)"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=whole, default=1, help="processes for two-world runs (1)"
    )
    parser.add_argument(
        "--figure", metavar="FILE", type=picture, help="draw the audit: .png, .pdf or .svg"
    )
    replacing(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Audit the target. The exit code is 1 if its certificate is refuted."""
    check_new(options.figure, force=options.force)
    from antiphon.audits import audit
    from antiphon.commands.target import read

    certificate, notes = read(options.target, options.delta)
    for note in notes:
        print(f"antiphon: note: {note}", file=sys.stderr)
    report = audit(
        certificate,
        quick=options.quick,
        runs=options.runs,
        seed=options.seed,
        jobs=options.jobs,
    )
    show(report, is_json=options.json)
    if (
        options.figure is not None
    ):  # after the report: what took minutes is not lost with the figure
        report.plot().savefig(options.figure, dpi=150)
        print(f"figure: {options.figure}", file=sys.stderr if options.json else sys.stdout)
    return 1 if report.is_violation else 0


def _runs(text: str) -> int:
    if 0 < (value := natural(text)) < _FEWEST:
        raise argparse.ArgumentTypeError(f"0, or at least {_FEWEST}: fewer prove nothing")
    return value
