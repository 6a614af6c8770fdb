"""``antiphon schema``: a bounds file to fill in, from the header, or filled privately."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from antiphon.commands.arguments import (
    RELATIONS,
    Commands,
    check_new,
    command,
    names,
    positive_number,
    probability,
    replacing,
)
from antiphon.writing import write_whole

__all__ = ["add", "run"]

_DELTA = 1e-6  # of private bounds; n^-1.1 would tell the number of records


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "schema",
        "write a bounds file for a table, to be filled in from public knowledge",
        "Reads the names of the columns and no record. With --private it reads the numbers, and writes "
        "bounds with noise that costs ε: the file says how much, FILE.certificate.json proves it. A column "
        "that holds no numbers then gets bounds of noise alone: name it in --categories.",
        """
antiphon schema patients.csv --target outcome --out bounds.toml
antiphon schema patients.csv --target outcome --out bounds.toml \\
    --private --epsilon 0.5 --categories sex,ward --ledger patients.ledger""",
    )
    parser.add_argument(
        "table", metavar="TABLE", type=Path, help=".csv, .tsv (also .gz), .parquet or .npz"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="the file (standard output)")
    replacing(parser)
    parser.add_argument("--target", metavar="COLUMN", help="what is to be predicted: left out")
    parser.add_argument(
        "--categories", metavar="A,B", type=names, default=(), help="columns that are categories"
    )
    private = parser.add_argument_group("private bounds")
    private.add_argument("--private", action="store_true", help="find the bounds of all numbers")
    private.add_argument("--epsilon", metavar="E", type=positive_number, help="ε to spend")
    private.add_argument("--delta", metavar="D", type=probability, help=f"δ to spend ({_DELTA:g})")
    private.add_argument("--relation", choices=RELATIONS, help="how neighbours differ (add-remove)")
    private.add_argument("--ledger", metavar="FILE", type=Path, help="a ledger that pays first")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    _check(options)
    from antiphon.tables.data import columns_of_file

    certificate = _certificate_path(options.out) if options.private else None
    check_new(options.out, certificate, force=options.force)
    columns = _columns(columns_of_file(options.table), options)
    found: dict[str, Any] = {"table": str(options.table), "columns": columns}
    text = _private(options, columns, found) if options.private else _header(options, columns)
    if certificate is not None:
        write_whole(certificate, json.dumps(found["certificate"]) + "\n")
    if options.out is not None:
        write_whole(options.out, text)
    _show(options, found, text)
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.private:
        given = [n for n in ("epsilon", "delta", "relation", "ledger") if getattr(options, n)]
        if given:
            options.misused(f"--{given[0]} belongs to --private")
    elif options.epsilon is None or options.out is None:
        options.misused("--private needs --epsilon and --out: what it finds is paid for once")


def _certificate_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.certificate.json")


def _columns(found: tuple[str, ...], options: argparse.Namespace) -> tuple[str, ...]:
    """All names, the target's last, if all that were named are there."""
    from antiphon.tables.data import check_columns

    target = () if options.target is None else (options.target,)
    check_columns((*target, *options.categories), found)
    rest = tuple(name for name in found if name not in target)
    check_columns(options.categories, (*rest, *target))
    return (*rest, *target)


def _header(options: argparse.Namespace, columns: tuple[str, ...]) -> str:
    from antiphon.tables.data import template

    head = [*_about(options), "From the names of the columns alone: no record was read."]
    return template(columns, head=head, categories=options.categories)


def _about(options: argparse.Namespace) -> list[str]:
    about = [f"Bounds of the columns of {json.dumps(options.table.name)}."]
    if options.target is not None:
        about.append(
            f"{json.dumps(options.target)} is to be predicted: declare its classes in [categories], or the "
            "bounds of a number."
        )
    return about


def _private(options: argparse.Namespace, columns: tuple[str, ...], found: dict[str, Any]) -> str:
    """The text with bounds of all numbers, and their certificate in ``found``."""
    from antiphon.accounting import gaussian_mu
    from antiphon.certificates import round_up
    from antiphon.commands.single_release import certificate_of, pay
    from antiphon.errors import PlanError
    from antiphon.plans import GaussianRelease
    from antiphon.releases import private_bounds
    from antiphon.tables.data import Column, Schema, read_table, template

    numbers = [n for n in columns if n not in (*options.categories, options.target)]
    if not numbers:
        raise PlanError("all columns are categories: there is no number to find bounds of.")
    delta, relation = options.delta or _DELTA, options.relation or RELATIONS[0]
    mu = gaussian_mu(options.epsilon, delta)
    schema = Schema(tuple(Column(name) for name in numbers))
    values = schema.numbers(read_table(options.table)[numbers])
    what = f"bounds of the columns of {options.table.name}"
    if options.ledger is not None:  # before anything is released
        pay(options.ledger, GaussianRelease(mu, what, relation))
    low, high, (event,) = private_bounds(values, mu=mu, relation=relation)
    bounds = dict(zip(numbers, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    found["bounds"] = bounds
    found["certificate"] = certificate_of(event, options.epsilon, delta)
    cost = f"({round_up(options.epsilon)}, {delta:g})-differential privacy under {relation}"
    head = [
        *_about(options),
        "Bounds of numbers were found privately, and cost, beside any training on the same table,",
        f"{cost} (μ = {mu:.6g}).",
        f"{json.dumps(_certificate_path(options.out).name)} proves it.",
        "A column that holds no numbers has bounds of noise: move it to [categories].",
    ]
    released = {key: value for key, value in event.to_dict().items() if value is not None}
    return template(
        columns, head=head, categories=options.categories, bounds=bounds, released=released
    )


def _show(options: argparse.Namespace, found: dict[str, Any], text: str) -> None:
    if options.json:
        out = None if options.out is None else str(options.out)
        print(json.dumps({**found, "out": out, "toml": text}))
    elif options.out is None:
        sys.stdout.write(text)
    else:
        print(f"bounds file: {options.out}, {len(found['columns'])} columns")
        if options.private:
            from antiphon.certificates import round_up

            certificate = found["certificate"]
            print(f"cost: ε = {round_up(certificate['epsilon'])}, δ = {certificate['delta']:g}")
            print(f"certificate: {_certificate_path(options.out)}")
