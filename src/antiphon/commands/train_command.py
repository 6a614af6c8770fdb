"""``antiphon train``: from a table to a private model, its certificate and a report page."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.commands.arguments import (
    Commands,
    command,
    natural,
    number,
    positive_number,
    probability,
    whole,
)
from antiphon.errors import PlanError, RunError

if TYPE_CHECKING:
    from antiphon.commands.job import Result

__all__ = ["add", "run"]

_OUT = Path("antiphon-run")
_MORE = (
    "Without TABLE it trains on the breast-cancer data of scikit-learn. `antiphon schema` writes a bounds "
    "file to be filled in; --resume continues after Ctrl-C or a crash. "
    "No score is shown unless the records that it is computed on are public (--test) or it is paid for "
    "(--evaluate). Exit code: 0 if all is well, 1 after an error, 2 after wrong usage, 130 if interrupted."
)
_EXAMPLES = """
antiphon train
antiphon train patients.csv --target ill --epsilon 1 --bounds bounds.toml --out model
antiphon train --resume --out model"""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    text = "train a private model on a table, with a certificate and a report page"
    parser = command(commands, "train", text, _MORE, _EXAMPLES)
    parser.add_argument(
        "table", metavar="TABLE", nargs="?", help=".csv, .csv.gz, .tsv, .parquet or .npz"
    )
    option = parser.add_argument
    option("--target", metavar="COLUMN", help="what is to be predicted")
    option("--epsilon", metavar="E", type=positive_number, help="ε of everything that is released")
    option("--delta", metavar="D", type=probability, help="δ (n^-1.1)")
    option("--model", choices=("kan", "mlp", "logistic", "relu"), default="kan", help="(kan)")
    option("--task", choices=("classification", "regression"), help="(as the target is declared)")
    option(
        "--bounds",
        metavar="FILE",
        default="private",
        help="TOML with [bounds] and [categories], or 'private': found for a tenth of the budget (private)",
    )
    option(
        "--target-bounds",
        metavar=("LOW", "HIGH"),
        nargs=2,
        type=number,
        help="of a number to be predicted",
    )
    option("--missing", choices=("raise", "middle"), help="what a missing number does (raise)")
    option("--user", metavar="COLUMN", help="protect all records of a user together")
    option("--mechanism", metavar="NAME", default="auto", help="auto, independent, blt, … (auto)")
    option("--steps", metavar="N", type=whole, help="noisy steps (the estimator's own)")
    option("--batch-size", metavar="N", type=whole, help="expected (half of the records at most)")
    option("--test", metavar="FILE", help="a table that is declared public: scores and pictures")
    option(
        "--evaluate",
        metavar="SHARE",
        type=probability,
        help="hold so many records out and release a noisy score, paid for in the certificate",
    )
    option("--ledger", metavar="FILE", help="the ledger that pays for the run")
    option("--seed", metavar="S", type=natural, help="reproducible, hence not for release")
    option("--out", metavar="DIR", type=Path, default=_OUT, help=f"new folder ({_OUT})")
    option("--resume", action="store_true", help="resume the interrupted run in DIR")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, or resume a training."""
    from antiphon.commands.job import train
    from antiphon.commands.train_request import TrainRequest

    if options.target_bounds is not None:
        options.target_bounds = tuple(options.target_bounds)
    request = None if options.resume else TrainRequest.of(options)
    if options.resume:
        _check_alone(options)
    try:
        result = train(request, options.out, _tell)
    except (KeyboardInterrupt, RunError):
        if (options.out / "secret").is_dir():
            _tell(f"the run can be resumed: antiphon train --resume --out {options.out}")
        raise
    _show(result, is_json=options.json)
    return 0


def _check_alone(options: argparse.Namespace) -> None:
    """A resumed run keeps its options: it takes no other ones."""
    names = {
        "table",
        "target",
        "epsilon",
        "delta",
        "task",
        "target_bounds",
        "missing",
        "user",
        "steps",
    }
    names |= {"batch_size", "test", "evaluate", "ledger", "seed"}
    given = sorted(name for name in names if getattr(options, name) is not None)
    if given or options.bounds != "private":
        raise PlanError(
            f"--resume uses the options that the run began with; leave out "
            f"{', '.join(given) or 'bounds'}. Another training needs another --out, and costs its own ε."
        )


def _tell(text: str) -> None:
    print(f"antiphon: note: {text}", file=sys.stderr)


def _show(result: "Result", *, is_json: bool) -> None:
    files = {name: str(result.folder / name) for name in _FILES}
    evaluation: Any = result.report.get("evaluation")
    certificate = result.estimator.certificate_
    if is_json:
        values = {
            "certificate": json.loads(certificate.to_json()),
            "evaluation": evaluation,
            "files": files,
        }
        print(json.dumps(values, ensure_ascii=False))
        return
    from rich.console import Console

    from antiphon.commands.score_table import score_table

    console = Console()
    console.print(certificate)
    console.print(score_table(evaluation))
    for name, text in _FILES.items():
        console.print(f"{text:12} {files[name]}", highlight=False, soft_wrap=True)


_FILES = {
    "report.html": "report",
    "model.safetensors": "model",
    "certificate.json": "certificate",
}
