"""A picture with its caption and its numbers; the templates show it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from markupsafe import Markup

__all__ = ["Figure", "thinned"]

_ROWS = 12


@final
@dataclass(frozen=True)
class Figure:
    """A picture, what it shows, and the same as a table for those who do not see it."""

    drawn: Markup
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None
    legend: Markup | None = None
    is_many: bool = False


def thinned(rows: Sequence[Any]) -> list[Any]:
    """About a dozen rows, the first and the last among them."""
    last = len(rows) - 1
    places = {round(last * i / (_ROWS - 1)) for i in range(_ROWS)}
    return [rows[place] for place in sorted(places)]
