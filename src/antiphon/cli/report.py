"""``antiphon report``: write a run's page anew from its JSON."""

import argparse
import json
from pathlib import Path

__all__ = ["add", "run"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    text = "write the report page of a run anew"
    parser = commands.add_parser(
        "report",
        help=text,
        description=f"{text[0].upper()}{text[1:]}: one HTML file that needs no network.",
        epilog="example:\n  antiphon report model --out for-the-board.html",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run_folder",
        metavar="RUN",
        type=Path,
        help="folder of `antiphon train`, or its report.json",
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="file to write (report.html in RUN)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report's JSON and nothing else"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page, or print what stands on it."""
    from antiphon import reports
    from antiphon.cli.arguments import check_folder
    from antiphon.writing import write_whole

    check_folder(options.out)
    source = options.run_folder
    source = source / "report.json" if source.is_dir() else source
    report = reports.read(source)
    if options.json:
        print(json.dumps(report, ensure_ascii=False))
        return 0
    out = options.out or source.with_name("report.html")
    write_whole(out, reports.page(report))
    print(f"report: {out}")
    return 0
