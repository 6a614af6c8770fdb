"""A figure with its caption and its numbers, and a list of facts."""

from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.reports.markup import Markup, table, tag

__all__ = ["facts", "figure"]


def figure(
    drawn: Markup,
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    legend: Markup | None = None,
    title: str | None = None,
    class_: str | None = None,
) -> Markup:
    """A picture, what it shows, and the same as a table for those who do not see it."""
    numbers = tag(
        "details", tag("summary", "The numbers"), table(title or "The numbers", head, rows)
    )
    heading = None if title is None else tag("h3", title)
    return tag("figure", heading, legend, drawn, tag("figcaption", caption), numbers, class_=class_)


def facts(lines: Iterable[tuple[str, Any]]) -> Markup:
    """Names with what is known under them."""
    return tag("dl", [(tag("dt", name), tag("dd", text)) for name, text in lines], class_="facts")
