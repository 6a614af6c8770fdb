"""``antiphon certify``: what is proved for a plan."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.commands.arguments import (
    Commands,
    check_new,
    command,
    positive_number,
    probability,
    replacing,
)
from antiphon.commands.printing import show

if TYPE_CHECKING:
    from antiphon.certificates import Certificate

from antiphon.writing import write_whole

__all__ = ["add", "run"]


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "certify",
        "prove ε for a plan, or for the plan of a certificate, a run or a model",
        "A certificate that claims less than is proved is refused.",
        """
antiphon certify plan.json --delta 1e-5
antiphon certify model.safetensors --json
antiphon certify plan.json --delta 1e-5 --epsilon 2 --out certificate.json""",
    )
    parser.add_argument(
        "target",
        metavar="PLAN",
        type=Path,
        help="the JSON of a plan or a certificate, a run's folder, or an exported .safetensors file",
    )
    parser.add_argument(
        "--delta",
        metavar="D",
        type=probability,
        help="δ (the certificate's own; for a plan n^-1.1)",
    )
    parser.add_argument(
        "--epsilon",
        metavar="E",
        type=positive_number,
        help="prove this ε (or a smaller one), or fail; without it the smallest is sought",
    )
    parser.add_argument(
        "--tight", action="store_true", help="ask slow accountants too, and draw more paths"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the certificate as JSON")
    replacing(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Certify the target."""
    check_new(options.out, force=options.force)
    certificate = _certificate(options)
    if options.out is not None:
        write_whole(options.out, certificate.to_json() + "\n")
    show(certificate, is_json=options.json)
    if options.out is not None and not options.json:
        print(f"certificate: {options.out}")
    return 0


def _certificate(options: argparse.Namespace) -> "Certificate":
    from antiphon.certificates import certify
    from antiphon.commands.target import checked, find
    from antiphon.plans import Plan, delta_of

    found, notes = find(options.target)
    asked = {"epsilon": options.epsilon, "tight": options.tight}
    if isinstance(found, Plan):
        _remark(notes)
        delta = delta_of(options.delta, found.n)
        return certify(found, delta, **asked)
    own, more = checked(found, anew=True)
    _remark((*notes, *more))
    delta = found.delta if options.delta is None else options.delta
    if delta != found.delta or any(asked.values()):
        own = certify(found.plan, delta, **asked)
    # Only the writer of the file knows what else was assumed, such as a seed.
    return replace(own, assumptions=tuple(dict.fromkeys((*own.assumptions, *found.assumptions))))


def _remark(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"antiphon: note: {note}", file=sys.stderr)
