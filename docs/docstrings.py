"""How the site reads docstrings: `Example:` holds doctests, as `Examples:` does for griffe."""

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["Sections"]


class Sections(Extension):
    """Names our one section that griffe knows under another name.

    `Guarantee:` needs nothing: an unknown section is an admonition of its own kind, which the site's style
    sheet colours.
    """

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rename the section, so that its lines are code and not quotations of quotations."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M)
