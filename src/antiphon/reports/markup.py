"""HTML from Python: elements whose texts are escaped, numbers that say where they stand in the report."""

import base64
import html
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, final

__all__ = [
    "Markup",
    "asset",
    "document",
    "download",
    "join",
    "number",
    "powers",
    "table",
    "tag",
]

_EMPTY = {"br", "img", "link", "meta"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Nothing is loaded, sent or run: the page is all there is.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


@final
class Markup(str):
    """Text that is HTML already; every other text is escaped."""


def tag(element: str, *children: Any, **attributes: Any) -> Markup:
    """An element; ``class_`` and the like lose their last ``_``, others become ``-``.

    Example:
        >>> tag("p", "a < b, ", tag("b", "c"), class_="note", data_x='"', hidden=None)
        '<p class="note" data-x="&quot;">a &lt; b, <b>c</b></p>'
    """
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if element in _EMPTY:
        return Markup(f"<{element}{shown}>")
    return Markup(f"<{element}{shown}>{join(*children)}</{element}>")


def join(*children: Any) -> Markup:
    """All children one after the other; None is left out, lists are taken apart."""
    parts: list[str] = []
    for child in children:
        match child:
            case None:
                continue
            case Markup():
                parts.append(child)
            case str() | int() | float():
                parts.append(html.escape(str(child)))
            case Iterable():
                parts.append(join(*child))
            case _:
                raise TypeError(f"no text: {child!r}")
    return Markup("".join(parts))


def number(report: dict[str, Any], path: str | Sequence[str], shown: str) -> Markup:
    """A number of the report as it is shown; the element holds every digit, and where it stands.

    Args:
        report: The report.
        path: Keys, or their names with dots between them where no key has one.
        shown: How it is written.
    """
    keys = path.split(".") if isinstance(path, str) else list(path)
    value: Any = report
    for key in keys:
        value = value[key]
    return tag(
        "data", powers(shown), value=repr(value), data_path=json.dumps(keys), class_="number"
    )


def powers(text: str) -> str:
    """The same number without the notation of computers.

    Example:
        >>> powers("9.32e-06")
        '9.32 × 10⁻⁶'
    """
    mantissa, mark, exponent = text.partition("e")
    if not mark:
        return text
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def table(
    caption: str,
    head: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    numbers: bool = True,
    label: str | None = None,
) -> Markup:
    """A table that scrolls by itself where it is too wide; the first cell of a row is its name."""
    kind = "num" if numbers else None
    names = [
        tag("th", cell, scope="col", class_=kind if place else None)
        for place, cell in enumerate(head)
    ]
    lines = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            [tag("td", cell, class_=kind) for cell in row[1:]],
        )
        for row in rows
    ]
    inner = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", names)), tag("tbody", lines)
    )
    # A region that scrolls must be within reach of the keyboard.
    return tag(
        "div", inner, class_="scroll", tabindex="0", role="region", aria_label=label or caption
    )


def download(text: str, name: str, kind: str, shown: str, class_: str | None = "button") -> Markup:
    """A link that holds a file."""
    data = base64.b64encode(text.encode()).decode()
    return tag("a", shown, href=f"data:{kind};base64,{data}", download=name, class_=class_)


def asset(name: str) -> str:
    """A file that is shipped with the package."""
    return files("antiphon.reports").joinpath("assets", name).read_text(encoding="utf-8")


def document(
    title: str, header: Markup, sections: Sequence[tuple[str, str, str, Markup]], footer: Markup
) -> str:
    """A whole page.

    Args:
        title: Of the window.
        header: With the only h1.
        sections: Each an id, a short name, a heading, and what stands below it.
        footer: The end.
    """
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name, _, _ in sections]
    parts = [
        tag(
            "section",
            tag("h2", heading, id=f"{key}-name"),
            body,
            id=key,
            aria_labelledby=f"{key}-name",
        )
        for key, _, heading, body in sections
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(asset("base.css") + asset("report.css"))),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("header", header, class_="top"),
        tag("nav", tag("ul", links), aria_label="Sections", class_="contents no-print"),
        tag("main", parts, id="content", tabindex="-1"),
        tag("footer", footer, class_="end"),
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'
