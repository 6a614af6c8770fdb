"""How the pages write numbers; every bound is rounded up."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from antiphon.certificates import round_up

__all__ = ["between", "bound", "bound_percent", "count", "digits", "number", "shortened"]


def number(report: dict[str, Any], path: str | Sequence[str], show: Callable[[Any], str]) -> str:
    """A number of the report as it is shown; the element holds every digit, and where it stands.

    Args:
        report: The report.
        path: Keys, or their names with dots between them where no key has one.
        show: How it is written.
    """
    keys = path.split(".") if isinstance(path, str) else list(path)
    value: Any = report
    for key in keys:
        value = value[key]
    if value is None:
        return "–"
    element = Markup('<data value="{!r}" data-path="{}" class="number">{}</data>')
    return element.format(value, json.dumps(keys), show(value))


def bound(value: float) -> str:
    """A bound, rounded up, without the notation of computers.

    Example:
        >>> bound(9.3111e-06)
        '9.312 × 10⁻⁶'
    """
    return _powers(round_up(value))


def bound_percent(value: float) -> str:
    """A bound that is a share, rounded up, in per cent."""
    return f"{bound(100 * value)} %"


def count(value: int) -> str:
    """A whole number."""
    return f"{value:,}"


def digits(value: float) -> str:
    """Four digits."""
    return _powers(f"{value:.4g}")


def _powers(text: str) -> str:
    mantissa, mark, exponent = text.partition("e")
    superscripts = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return f"{mantissa} × 10{str(int(exponent)).translate(superscripts)}" if mark else text


def shortened(text: str) -> str:
    """The same with four digits of each long number; all of them are in the JSON."""
    return re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def between(ends: Sequence[float] | None) -> str:
    """An interval."""
    return "–" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}"
