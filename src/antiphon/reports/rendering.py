"""Pages from the templates of a package: every text is escaped, and what is missing is refused."""

import base64
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Undefined

from antiphon.reports import numerals, wording
from antiphon.reports.axes import percent

__all__ = ["render"]

_FILTERS: dict[str, Callable[..., Any]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "compact_json": json.dumps,
    "exp": math.exp,
    "json": wording.as_json,
    "one_in": lambda probability: math.floor(1 / probability * (1 + 1e-12)),
    "percent": percent,
}


def render(template: str, *, package: str = "antiphon.reports", **values: Any) -> str:
    """A whole page.

    Args:
        template: Name of a file in the folder ``templates``.
        package: Which has that folder; what it lacks is taken from this package, such as ``page.html``
            with the look of all pages and ``parts.html`` with tables and downloads.
        **values: What the template names.
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> Environment:
    home = "antiphon.reports"
    folders = [(package, "templates"), (home, "templates"), (home, "assets")]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(*folder) for folder in folders]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    says = {name: getattr(each, name) for each in (numerals, wording) for name in each.__all__}
    environment.filters |= says | _FILTERS
    environment.globals |= says
    return environment


def _text(value: Any) -> Any:
    """What may stand on a page; of a damaged report there may be more."""
    if isinstance(value, str | int | float | Undefined):
        return value
    raise TypeError(f"no text: {value!r}")
