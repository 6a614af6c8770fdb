"""The page of a reproduced experiment: its figure, its summary, its rows."""

import csv
import inspect
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.reports import brief, plain, render
from antiphon.version import __version__

__all__ = ["experiment_page"]

_Rows = Sequence[Mapping[str, Any]]


def experiment_page(
    *,
    id: str,
    title: str,
    description: str,
    preset: str,
    rows: _Rows,
    summary: _Rows,
    figure_svg: str,
) -> str:
    """A self-contained page of a reproduced experiment.

    Args:
        id: Of the experiment.
        title: In a line.
        description: The text of its module: paragraphs, the first of which may be the title.
        preset: "ci" or "full".
        rows: All results.
        summary: What is shown as a table.
        figure_svg: An SVG file, as matplotlib writes it.
    """
    names = _names(summary)
    return render(
        "experiment.html",
        package="antiphon_papers.common",
        id=id,
        title=title,
        preset=preset,
        paragraphs=_paragraphs(description, title),
        figure_svg=figure_svg,
        names=names,
        summary=[[_cell(row.get(name)) for name in names] for row in summary],
        rows=len(rows),
        csv=_csv(rows),
        json=json.dumps([plain(row) for row in rows], indent=1),
        version=__version__,
    )


def _paragraphs(description: str, title: str) -> list[list[str]]:
    """Without the breaks of their source, but those of lists; each second part is code."""
    blocks = [block.strip() for block in inspect.cleandoc(description).split("\n\n")]
    found = []
    for block in blocks:
        lines = block.splitlines()
        is_list = all(line.startswith(("- ", "* ", "  ")) for line in lines)
        if block and block != title:
            flowing = block if is_list else " ".join(line.strip() for line in lines)
            found.append(re.split("`+", flowing))
    return found


def _names(rows: _Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return brief(value)
    return "–" if value is None else str(value)


def _csv(rows: _Rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _names(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
