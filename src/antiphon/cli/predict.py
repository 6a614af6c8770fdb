"""``antiphon predict``: apply a trained model to a table."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["add", "run"]

_MODEL = "model.safetensors"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    text = "apply a trained model to a table"
    parser = commands.add_parser(
        "predict",
        help=text,
        description=f"{text[0].upper()}{text[1:]}: one line per row, as CSV.",
        epilog="example:\n  antiphon predict model new-patients.csv --proba --out predicted.csv\n\n"
        "Predictions for records that are not the model's own training records cost no privacy of those.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    parser.add_argument("--json", action="store_true", help="print JSON instead of CSV")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the model and the table, and write the predictions."""
    from antiphon.cli.arguments import check_folder
    from antiphon.data.declared import check_columns, typed
    from antiphon.data.files import read_table
    from antiphon.errors import PlanError
    from antiphon.estimators import load
    from antiphon.writing import write_whole

    check_folder(options.out)
    path = options.model / _MODEL if options.model.is_dir() else options.model
    estimator = load(path)
    if options.proba and not hasattr(estimator, "predict_proba"):
        raise PlanError("the model predicts numbers: it has no probabilities. Leave out --proba.")
    frame = read_table(Path(options.table))
    check_columns(frame, estimator.schema_.names, options.table)
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
