"""``antiphon predict``: apply a trained model to a table."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from antiphon.commands.arguments import Commands, check_new, command, replacing

__all__ = ["add", "run"]

_MODEL = "model.safetensors"


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "predict",
        "apply a trained model to a table",
        "One line per row, as CSV. Records that the model has not learned from cost no privacy of those "
        "that it has.",
        """
antiphon predict model new-patients.csv
antiphon predict model new-patients.csv --proba --out predicted.csv""",
    )
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="folder of `antiphon train`, or .safetensors"
    )
    parser.add_argument(
        "table",
        metavar="TABLE",
        help=".csv, .csv.gz, .tsv, .parquet or .npz, with the same columns",
    )
    parser.add_argument("--proba", action="store_true", help="probabilities of the classes, too")
    parser.add_argument("--out", metavar="FILE", type=Path, help="file to write (standard output)")
    replacing(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the model and the table, and write the predictions."""
    from antiphon.errors import PlanError
    from antiphon.tables.data import check_columns, read_table, typed
    from antiphon.tables.estimators import load
    from antiphon.writing import write_whole

    check_new(options.out, force=options.force)
    path = options.model / _MODEL if options.model.is_dir() else options.model
    estimator = load(path)
    if options.proba and not hasattr(estimator, "predict_proba"):
        raise PlanError("the model predicts numbers: it has no probabilities. Leave out --proba.")
    frame = read_table(Path(options.table))
    check_columns(estimator.schema_.names, frame.columns, options.table)
    predicted = _columns(estimator, typed(frame, estimator.schema_), options.proba)
    text = _json(predicted) if options.json else predicted.to_csv(index=False, lineterminator="\n")
    if options.out is None:
        sys.stdout.write(text)
        return 0
    write_whole(options.out, text)
    return 0


def _columns(estimator: Any, X: Any, proba: bool) -> Any:
    import pandas as pd

    predicted = pd.DataFrame({"prediction": estimator.predict(X)})
    if proba:
        names = [f"probability of {label}" for label in estimator.classes_]
        predicted[names] = estimator.predict_proba(X)
    return predicted


def _json(predicted: Any) -> str:
    return json.dumps(predicted.to_dict("list"), ensure_ascii=False) + "\n"
