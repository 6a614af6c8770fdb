"""How the site reads docstrings: doctests are code, wherever they stand."""

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["Doctests"]


class Doctests(Extension):
    """Shows doctests as code, not as quotations of quotations.

    griffe knows the section `Examples:`, ours is `Example:`; and a module's example may have no title.
    `Guarantee:` needs nothing: an unknown section is an admonition of its own kind, which the site's style
    sheet colours.
    """

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rename the section, and put a fence around examples without a title."""
        if obj.docstring:
            text = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M)
            paragraph = re.compile(r"^(>>> .*(?:\n.+)*)", flags=re.M)
            obj.docstring.value = paragraph.sub(r"```pycon\n\1\n```", text)
