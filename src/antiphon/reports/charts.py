"""Charts as SVG without a script: lines, bars, dots, with the classes of ``base.css``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from antiphon.reports.axes import Axis
from antiphon.reports.markup import Markup, tag

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
    """Single points; ``sizes`` are their radii."""

    name: str
    points: Sequence[Point]
    style: int = 1
    sizes: Sequence[float] = ()


@final
@dataclass(frozen=True)
class _Frame:
    """The room of a chart, with that for its labels."""

    width: int = 560
    height: int = 330
    left: int = 66
    right: int = 30
    top: int = 44
    bottom: int = 58

    def x(self, share: float) -> float:
        """From the left, for a place on the axis."""
        return round(self.left + share * (self.width - self.left - self.right), 2)

    def y(self, share: float) -> float:
        """From the top."""
        return round(self.height - self.bottom - share * (self.height - self.top - self.bottom), 2)


_LARGE = _Frame()
_SMALL = _Frame(width=220, height=130, left=34, right=10, top=8, bottom=24)


def plot(
    key: str, title: str, description: str, x: Axis, y: Axis, parts: Sequence[Line | Dots]
) -> Markup:
    """Lines and dots over two axes.

    Args:
        key: Unique on the page.
        title: What is to be seen, for those who do not see it.
        description: What it says.
        x: To the right.
        y: Upwards.
        parts: Later ones lie above.
    """
    return _svg(
        key,
        title,
        description,
        _LARGE,
        _grid(_LARGE, x, y),
        _labels(_LARGE, x, y),
        [_part(_LARGE, x, y, part) for part in parts],
    )


def small(key: str, title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> Markup:
    """One of many small charts on the same vertical scale."""
    frame = _SMALL
    ends = [x.low, x.high]
    marks = [
        _text(frame.x(x.place(v)), frame.height - 6, x.show(v), ("start", "end")[i], "tick soft")
        for i, v in enumerate(ends)
    ]
    inside = [_part(frame, x, y, line) for line in lines]
    return _svg(key, title, None, frame, _grid(frame, x, y, across=False), marks, inside)


def columns(
    key: str, title: str, description: str, x: Axis, y: Axis, points: Sequence[Point]
) -> Markup:
    """Upright bars from 0, one for each point."""
    f = _LARGE
    width = 0.62 * (f.x(1) - f.x(0)) / max(1.0, x.high - x.low)
    width = min(width, 46.0)
    zero = f.y(y.place(0.0))
    drawn = []
    for across, up in points:
        top = f.y(y.place(up or 0.0))
        drawn.append(
            _rect(
                f.x(x.place(across or 0.0)) - width / 2,
                min(top, zero),
                width,
                abs(top - zero),
                "f1",
            )
        )
    base = tag("path", d=f"M{f.x(0)} {zero}H{f.x(1)}", class_="axis")
    return _svg(
        key, title, description, f, _grid(f, x, y, upright=False), _labels(f, x, y), drawn, base
    )


def bars(
    key: str, title: str, description: str, x: Axis, rows: Sequence[tuple[str, Sequence[float]]]
) -> Markup:
    """Lying bars from 0, one row of them for each name."""
    outputs = max(len(values) for _, values in rows)
    thick = 14 if outputs == 1 else 8
    pitch = 14 + thick * outputs
    f = _Frame(height=pitch * len(rows) + 74, left=214, top=8)
    zero = f.x(x.place(0.0))
    drawn: list[Any] = []
    for place, (name, values) in enumerate(rows):
        top = f.top + place * pitch + 7
        middle = top + thick * outputs / 2
        drawn.append(_text(f.left - 12, middle + 4.5, _short(name), "end", "tick"))
        for part, value in enumerate(values):
            end = f.x(x.place(value))
            drawn.append(
                _rect(
                    min(zero, end),
                    top + part * thick,
                    max(1.0, abs(end - zero)),
                    thick - 1.5,
                    f"f{part % _STYLES + 1}",
                )
            )
    flat = Axis("", 0, 1, x.show, labels=0)
    base = tag("path", d=f"M{zero} {f.y(0)}V{f.y(1)}", class_="axis")
    return _svg(
        key,
        title,
        description,
        f,
        _grid(f, x, flat, across=False, upright=True),
        drawn,
        base,
        _x_labels(f, x),
    )


def span(
    key: str, title: str, description: str, x: Axis, low: float, high: float, value: float
) -> Markup:
    """A value with its interval on one axis."""
    f = _Frame(height=110, top=14, left=30, right=30)
    line = (f.y(0) + f.top) / 2
    left, right, dot = (f.x(x.place(v)) for v in (low, high, value))
    return _svg(
        key,
        title,
        description,
        f,
        [tag("path", d=f"M{f.x(x.place(t))} {f.y(0)}V{f.top}", class_="grid") for t in x.ticks()],
        tag("path", d=f"M{f.x(0)} {line}H{f.x(1)}", class_="axis"),
        _rect(left, line - 9, right - left, 18, "band"),
        tag(
            "path",
            d=f"M{left} {line - 9}V{line + 9}M{right} {line - 9}V{line + 9}M{left} {line}H{right}",
            class_="line s1",
        ),
        tag("circle", cx=dot, cy=line, r=6, class_="f1"),
        _x_labels(f, x),
    )


def legend(parts: Sequence[Line | Dots]) -> Markup:
    """The names of all parts beside their colours and dashes, as text that breaks where it must."""
    items = []
    for part in parts:
        kind = "key dot" if isinstance(part, Dots) else "key"
        key = tag("span", class_=f"{kind} k{_style(part.style)}", aria_hidden="true")
        items.append(tag("li", key, part.name))
    return tag("ul", items, class_="legend")


def _svg(key: str, title: str, description: str | None, frame: _Frame, *children: Any) -> Markup:
    names = f"{key}-title" if description is None else f"{key}-title {key}-desc"
    described = None if description is None else tag("desc", description, id=f"{key}-desc")
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        described,
        *children,
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_labelledby=names,
        class_="chart small" if frame is _SMALL else "chart",
    )


def _grid(f: _Frame, x: Axis, y: Axis, *, across: bool = True, upright: bool = True) -> Markup:
    """Faint lines at the labelled values, and the two axes; only that of zero without ``across``."""
    lines = []
    if upright and f is not _SMALL:
        lines += [f"M{f.x(x.place(t))} {f.y(0)}V{f.y(1)}" for t in x.ticks()]
    if across:
        lines += [f"M{f.x(0)} {f.y(y.place(t))}H{f.x(1)}" for t in y.ticks()]
    elif f is _SMALL and y.low <= 0 <= y.high:
        lines.append(f"M{f.x(0)} {f.y(y.place(0.0))}H{f.x(1)}")
    axis = f"M{f.x(0)} {f.y(1)}V{f.y(0)}H{f.x(1)}" if across else f"M{f.x(0)} {f.y(0)}H{f.x(1)}"
    sides = []
    if f is _SMALL:
        sides = [
            _text(f.x(0) - 5, f.y(y.place(t)) + 4, y.show(t), "end", "tick soft") for t in _few(y)
        ]
    return tag(
        "g", tag("path", d="".join(lines), class_="grid"), tag("path", d=axis, class_="axis"), sides
    )


def _few(y: Axis) -> list[float]:
    """The outermost labels and zero: a small chart has room for three."""
    ticks = y.ticks()
    return sorted({ticks[0], ticks[-1], *(t for t in ticks if t == 0)}) if ticks else []


def _labels(f: _Frame, x: Axis, y: Axis) -> Markup:
    """The axes' values and names; that of the upward one stands above it, to be read without turning."""
    ups = [
        _text(f.left - 9, f.y(y.place(t)) + 4.5, y.show(t), "end", "tick soft") for t in y.ticks()
    ]
    return tag("g", ups, _text(4, 20, y.label, "start", "label"), _x_labels(f, x))


def _x_labels(f: _Frame, x: Axis) -> Markup:
    below = f.y(0) + 21
    ticks = [_text(f.x(x.place(t)), below, x.show(t), "middle", "tick soft") for t in x.ticks()]
    return tag("g", ticks, _text(f.x(1), f.height - 8, x.label, "end", "label"))


def _part(f: _Frame, x: Axis, y: Axis, part: Line | Dots) -> Markup:
    places = [
        (f.x(x.place(across)), f.y(y.place(up)))
        for across, up in part.points
        if across is not None and up is not None
    ]
    if isinstance(part, Dots):
        sizes = part.sizes or [4.0] * len(places)
        round_ = [
            tag("circle", cx=left, cy=top, r=round(r, 2))
            for (left, top), r in zip(places, sizes, strict=False)
        ]
        return tag("g", round_, class_=f"dots f{_style(part.style)}")
    if len(places) < 2:
        return tag("g", [tag("circle", cx=a, cy=b, r=4) for a, b in places], class_="f1")
    path = "M" + "L".join(f"{left} {top}" for left, top in places)
    shade = None
    if part.is_filled:
        shade = tag("path", d=f"{path}V{f.y(0)}H{places[0][0]}Z", class_="band")
    name = f"line s{_style(part.style)}" if part.style else "line guide"
    return tag("g", shade, tag("path", d=path, class_=name))


def _style(style: int) -> int:
    return (style - 1) % _STYLES + 1 if style else 0


def _text(x: float, y: float, text: str, anchor: str, class_: str) -> Markup:
    return tag("text", text, x=round(x, 2), y=round(y, 2), text_anchor=anchor, class_=class_)


def _rect(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    x, y, width, height = (round(v, 2) for v in (x, y, width, height))
    return tag("rect", x=x, y=y, width=width, height=height, class_=class_)


def _short(name: str, most: int = 21) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
