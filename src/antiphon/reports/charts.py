"""Charts as SVG without a script: lines, bars, dots, with the classes of ``base.css``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from antiphon.reports.axes import Axis
from antiphon.reports.frame import Frame, circle, path, rect, text

__all__ = ["Dots", "Line", "bars", "columns", "legend", "plot", "small", "span"]

Point = Sequence[float | None]

_STYLES = 8  # colours and dashes that base.css and report.css tell apart


@final
@dataclass(frozen=True)
class Line:
    """Points that are joined; with ``is_filled``, over a shade down to the axis. Style 0 is a guide."""

    name: str
    points: Sequence[Point]
    style: int = 1
    is_filled: bool = False


@final
@dataclass(frozen=True)
class Dots:
    """Single points of style 1; ``sizes`` are their radii."""

    name: str
    points: Sequence[Point]
    sizes: Sequence[float]


def plot(
    key: str, title: str, description: str, x: Axis, y: Axis, parts: Sequence[Line | Dots]
) -> Markup:
    """Lines and dots over two axes; later ones lie above."""
    f = Frame(x, y)
    return f.draw(key, title, description, f.grid(), f.sides(), *(_part(f, p) for p in parts))


def small(key: str, title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> Markup:
    """One of many small charts on the same vertical scale."""
    f = Frame(x, y, width=220, height=130, left=34, right=10, top=8, bottom=24)
    base = path(f"M{f.left} {f.south}H{f.east}", "axis")
    if y.low <= 0 <= y.high:
        base = path(f"M{f.left} {f.y(0.0)}H{f.east}", "grid") + base
    ticks = y.ticks()
    few = {*ticks[:1], *ticks[-1:], *(t for t in ticks if t == 0)}  # there is room for three
    sides = [text(f.left - 5, f.y(t) + 4, y.show(t), "end") for t in sorted(few)]
    ends = [
        text(f.x(value), f.height - 6, x.show(value), anchor)
        for value, anchor in ((x.low, "start"), (x.high, "end"))
    ]
    return f.draw(key, title, None, base, *sides, *ends, *(_part(f, line) for line in lines))


def columns(
    key: str, title: str, description: str, x: Axis, y: Axis, points: Sequence[Sequence[float]]
) -> Markup:
    """Upright bars from 0, one for each point."""
    f = Frame(x, y)
    width = min(0.62 * (f.east - f.left) / max(1.0, x.high - x.low), 46.0)
    zero = f.y(0.0)
    drawn = [
        rect(f.x(across) - width / 2, min(f.y(up), zero), width, abs(f.y(up) - zero), "f1")
        for across, up in points
    ]
    base = path(f"M{f.left} {zero}H{f.east}", "axis")
    return f.draw(key, title, description, f.grid(upright=False), f.sides(), *drawn, base)


def bars(
    key: str, title: str, description: str, x: Axis, rows: Sequence[tuple[str, Sequence[float]]]
) -> Markup:
    """Lying bars from 0, one row of them for each name."""
    outputs = max(len(values) for _, values in rows)
    thick = 14 if outputs == 1 else 8
    pitch = 14 + thick * outputs
    f = Frame(x, height=pitch * len(rows) + 74, left=214, top=8)
    zero = f.x(0.0)
    drawn = []
    for place, (name, values) in enumerate(rows):
        top = f.top + place * pitch + 7
        shown = name if len(name) <= 21 else f"{name[:20]}…"
        drawn.append(text(f.left - 12, top + thick * outputs / 2 + 4.5, shown, "end", "tick"))
        for part, value in enumerate(values):
            left, width = min(zero, f.x(value)), max(1.0, abs(f.x(value) - zero))
            kind = f"f{_style(part + 1)}"
            drawn.append(rect(left, top + part * thick, width, thick - 1.5, kind))
    back = f.grid(across=False) + path(f"M{f.left} {f.south}H{f.east}", "axis")
    base = path(f"M{zero} {f.south}V{f.top}", "axis")
    return f.draw(key, title, description, back, *drawn, base, f.below())


def span(
    key: str, title: str, description: str, x: Axis, low: float, high: float, value: float
) -> Markup:
    """A value with its interval on one axis."""
    f = Frame(x, height=110, top=14, left=30)
    line = (f.south + f.top) / 2
    left, right, up, down = f.x(low), f.x(high), line - 9, line + 9
    return f.draw(
        key,
        title,
        description,
        f.grid(across=False),
        path(f"M{f.left} {line}H{f.east}", "axis"),
        rect(left, up, right - left, 18, "band"),
        path(f"M{left} {up}V{down}M{right} {up}V{down}M{left} {line}H{right}", "line s1"),
        _group([circle(f.x(value), line, 6)], "f1"),
        f.below(),
    )


def legend(parts: Sequence[Line | Dots]) -> Markup | None:
    """The names of several parts beside their colours and dashes, as text that breaks where it must."""
    if len(parts) < 2:
        return None
    key = Markup('<li><span class="key {}" aria-hidden="true"></span>{}</li>')
    items = [
        key.format("dot k1" if isinstance(part, Dots) else f"k{_style(part.style)}", part.name)
        for part in parts
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup().join(items))


def _part(f: Frame, part: Line | Dots) -> Markup:
    places = [
        (f.x(across), f.y(up))
        for across, up in part.points
        if across is not None and up is not None
    ]
    if isinstance(part, Dots):
        sizes = zip(places, part.sizes, strict=False)
        return _group([circle(*place, radius) for place, radius in sizes], "dots f1")
    if len(places) < 2:
        return _group([circle(*place, 4) for place in places], "f1")
    drawn = "M" + "L".join(f"{left} {top}" for left, top in places)
    line = path(drawn, f"line s{_style(part.style)}" if part.style else "line guide")
    return path(f"{drawn}V{f.south}H{places[0][0]}Z", "band") + line if part.is_filled else line


def _group(marks: Sequence[Markup], kind: str) -> Markup:
    return Markup('<g class="{}">{}</g>').format(kind, Markup().join(marks))


def _style(style: int) -> int:
    return (style - 1) % _STYLES + 1 if style else 0
