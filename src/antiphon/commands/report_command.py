"""``antiphon report``: write a run's page again from its JSON."""

import argparse
import json
from pathlib import Path

from antiphon.commands.arguments import Commands, check_new, command, replacing

__all__ = ["add", "run"]


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "report",
        "write the report page of a run again",
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
        "--out",
        metavar="FILE",
        type=Path,
        help="file to write (report.html in RUN, which is replaced)",
    )
    replacing(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page, or print its JSON."""
    from antiphon import reports
    from antiphon.writing import write_whole

    check_new(options.out, force=options.force)
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
