"""Axes of a chart: from values to places, and the few values that are worth a label."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

__all__ = ["Axis", "axis_over", "brief", "percent"]


@final
@dataclass(frozen=True)
class Axis:
    """One direction of a chart.

    Attributes:
        label: What is counted, with its unit.
        low: Value at its start.
        high: Value at its end.
        show: How a value is written.
        labels: How many values are labelled, about.
        is_log: Whether equal distances are equal factors; both ends are then positive.
    """

    label: str
    low: float
    high: float
    show: "Callable[[float], str]"
    labels: int = 5
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies, 0 at the start and 1 at the end; what is beyond counts as the end."""
        if self.is_log:
            share = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    def ticks(self) -> list[float]:
        """Round values to label.

        Example:
            >>> Axis("", 0, 0.93, brief).ticks()
            [0.0, 0.2, 0.4, 0.6, 0.8]
            >>> Axis("", 1, 300, brief, is_log=True).ticks()
            [1.0, 10.0, 100.0]
        """
        if self.is_log:
            return self._powers()
        step = _round_step((self.high - self.low) / self.labels)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(place * step, 12) + 0.0 for place in range(first, last + 1)]

    def _powers(self) -> list[float]:
        first, last = (math.log10(end) for end in (self.low, self.high))
        every = max(1, math.ceil((last - first) / self.labels))
        found = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1, every)
        return [10.0**power for power in found]


def axis_over(
    label: str,
    values: Iterable[float],
    show: "Callable[[float], str] | None" = None,
    *,
    zero: bool = False,
    labels: int = 5,
    is_log: bool = False,
    is_wide: bool = False,
) -> Axis:
    """An axis that spans these values.

    Args:
        label: What is counted.
        values: To be spanned; None and what is not finite is left out.
        show: How a value is written.
        zero: Whether 0 belongs to it.
        labels: How many values are labelled, about.
        is_log: Whether equal distances are equal factors.
        is_wide: Whether it extends to the next labelled values.

    Example:
        >>> axis_over("", [0.53, 0.97], is_wide=True).high
        1.0
    """
    found = [value for value in values if value is not None and math.isfinite(value)]
    if zero:
        found.append(0.0)
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    if low == high:
        low, high = (low / 2, high * 2) if is_log else (low - 0.5, high + 0.5)
    if is_wide and not is_log:
        step = _round_step((high - low) / labels)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(label, low, high, show or brief, labels, is_log)


def brief(value: float) -> str:
    """Three digits, with a true minus.

    Example:
        >>> brief(-0.25), brief(60000.0), brief(1e-5)
        ('−0.25', '60,000', '10⁻⁵')
    """
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.2e}".split("e")
        digits = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        factor = f"{float(mantissa):g}"
        text = f"10{digits}" if factor == "1" else f"{factor}·10{digits}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def percent(value: float) -> str:
    """A share in per cent."""
    return f"{brief(100 * value)} %"


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9))
