"""The page of a reproduced experiment: its figure, its summary, its rows."""

import base64
import csv
import inspect
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.reports.axes import brief
from antiphon.reports.markup import Markup, document, download, join, table, tag
from antiphon.reports.plain import plain
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
    link = base64.b64encode(figure_svg.encode()).decode()
    # As an image it can neither run a script nor restyle the page.
    image = tag(
        "img",
        src=f"data:image/svg+xml;base64,{link}",
        alt=f"Figure of {id}: {title}",
        class_="plot",
    )
    picture = tag(
        "figure", tag("div", image, class_="panel"), tag("figcaption", f"{id}, preset {preset}.")
    )
    sections = [
        ("about", "About", "What is shown", _paragraphs(description, title)),
        ("figure", "Figure", "Figure", picture),
        ("summary", "Summary", "Summary", _summary(summary)),
        ("rows", "Rows", "All rows", _downloads(id, rows, figure_svg)),
    ]
    head = join(
        tag("p", "Antiphon · reproduced experiment", class_="eyebrow"),
        tag("h1", title.rstrip(".")),
        tag("p", tag("code", f"antiphon reproduce {id} --preset {preset}"), class_="lead"),
    )
    footer = tag("p", f"Written by antiphon {__version__}. The page is complete in itself.")
    return document(f"{id}: {title}", head, sections, footer)


def _paragraphs(description: str, title: str) -> Markup:
    blocks = [block.strip() for block in inspect.cleandoc(description).split("\n\n")]
    return join([tag("p", _flowing(block)) for block in blocks if block and block != title])


def _flowing(block: str) -> Any:
    """A paragraph without the breaks of its source; a list keeps one line for each item."""
    lines = block.splitlines()
    if not all(line.startswith(("- ", "* ", "  ")) for line in lines):
        return _with_code(" ".join(line.strip() for line in lines))
    return tag("span", _with_code(block), class_="description")


def _with_code(text: str) -> Markup:
    """What stands between backquotes as code."""
    parts = re.split("`+", text)
    return join([tag("code", part) if place % 2 else part for place, part in enumerate(parts)])


def _names(rows: _Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _summary(rows: _Rows) -> Markup:
    if not rows:
        return tag("p", "There is no summary.")
    names = _names(rows)
    lines = [[_cell(row.get(name)) for name in names] for row in rows]
    return table("Summary", names, lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return brief(value)
    return "–" if value is None else str(value)


def _downloads(id: str, rows: _Rows, figure_svg: str) -> Markup:
    text = io.StringIO()
    writer = csv.DictWriter(text, _names(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    whole = json.dumps([plain(row) for row in rows], indent=1)
    links = [
        download(text.getvalue(), f"{id}.csv", "text/csv", "Download CSV"),
        download(whole, f"{id}.json", "application/json", "Download JSON", "button quiet"),
        download(figure_svg, f"{id}.svg", "image/svg+xml", "Download the figure", "button quiet"),
    ]
    return join(
        tag("p", f"{len(rows):,} row{'' if len(rows) == 1 else 's'}, as they were computed."),
        tag("ul", [tag("li", link) for link in links], class_="downloads no-print"),
    )
