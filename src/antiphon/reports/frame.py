"""The room of a chart between its axes, and the marks of SVG that fill it; all texts are escaped."""

from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from antiphon.reports.axes import Axis, brief

__all__ = ["Frame", "circle", "path", "rect", "text"]

_NOTHING = Axis("", 0, 1, brief)


@final
@dataclass(frozen=True)
class Frame:
    """Two axes, the size of the picture, and the room around them for labels."""

    x_axis: Axis
    y_axis: Axis = _NOTHING
    width: int = 560
    height: int = 330
    left: int = 66
    right: int = 30
    top: int = 44
    bottom: int = 58

    @property
    def east(self) -> int:
        """Where the axis to the right ends."""
        return self.width - self.right

    @property
    def south(self) -> int:
        """Where the upward axis starts."""
        return self.height - self.bottom

    def x(self, value: float) -> float:
        """From the left, for a value."""
        return round(self.left + self.x_axis.place(value) * (self.east - self.left), 2)

    def y(self, value: float) -> float:
        """From the top, for a value."""
        return round(self.south - self.y_axis.place(value) * (self.south - self.top), 2)

    def grid(self, *, across: bool = True, upright: bool = True) -> Markup:
        """Faint lines at the labelled values."""
        lines = [f"M{self.x(t)} {self.south}V{self.top}" for t in self.x_axis.ticks() if upright]
        lines += [f"M{self.left} {self.y(t)}H{self.east}" for t in self.y_axis.ticks() if across]
        return path("".join(lines), "grid")

    def sides(self) -> Markup:
        """The two axes with their values and names; that of the upward one stands above it, to be read."""
        labels = [
            text(self.left - 9, self.y(t) + 4.5, self.y_axis.show(t), "end")
            for t in self.y_axis.ticks()
        ]
        name = text(4, 20, self.y_axis.label, "start", "label")
        corner = path(f"M{self.left} {self.top}V{self.south}H{self.east}", "axis")
        return corner + Markup().join(labels) + name + self.below()

    def below(self) -> Markup:
        """The values and the name of the axis to the right."""
        labels = [
            text(self.x(t), self.south + 21, self.x_axis.show(t), "middle")
            for t in self.x_axis.ticks()
        ]
        return Markup().join(labels) + text(
            self.east, self.height - 8, self.x_axis.label, "end", "label"
        )

    def draw(self, key: str, title: str, description: str | None, *marks: Markup) -> Markup:
        """The picture.

        Args:
            key: Unique on the page.
            title: What is to be seen, for those who do not see it.
            description: What it says; None if the title says it all: then it is one of many small ones.
            *marks: Later ones lie above.
        """
        names, kind, told = f"{key}-title", "chart small", Markup()
        if description is not None:
            names, kind = f"{key}-title {key}-desc", "chart"
            told = Markup('<desc id="{}-desc">{}</desc>').format(key, description)
        return Markup(
            '<svg viewBox="0 0 {} {}" role="img" aria-labelledby="{}" class="{}">'
            '<title id="{}-title">{}</title>{}{}</svg>'
        ).format(self.width, self.height, names, kind, key, title, told, Markup().join(marks))


def text(x: float, y: float, shown: str, anchor: str, kind: str = "tick soft") -> Markup:
    """A text at a place."""
    mark = Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>')
    return mark.format(round(x, 2), round(y, 2), anchor, kind, shown)


def path(d: str, kind: str) -> Markup:
    """A line."""
    return Markup('<path d="{}" class="{}"></path>').format(d, kind)


def rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    """A bar."""
    places = (round(value, 2) for value in (x, y, width, height))
    mark = Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"></rect>')
    return mark.format(*places, kind)


def circle(x: float, y: float, radius: float) -> Markup:
    """A dot."""
    return Markup('<circle cx="{}" cy="{}" r="{}"></circle>').format(x, y, round(radius, 2))
