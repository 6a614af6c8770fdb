"""``antiphon report``: write a run's page anew from its JSON."""

import argparse
import json
from pathlib import Path

from antiphon.cli.arguments import Commands, check_folder, command

__all__ = ["add", "run"]


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "report",
        "write the report page of a run anew",
        "It is one HTML file that needs no network.",
        """
antiphon report model
antiphon report model --out for-the-board.html""",
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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page, or print what stands on it."""
    from antiphon import reports
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
