"""Bounds files for a user to fill in, written from nothing but the names of the columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.tables.data.bounds_file import toml_key, toml_value

__all__ = ["template"]

_RULES = """\
Write what is known without the table: what is read off the table tells something about single records.
A number needs its lowest and highest possible value in [bounds]; remove the # in front of it.
A category needs all values that it may have in [categories].
A column with neither is a number whose bounds are found privately, for a share of the budget."""


def template(
    names: Sequence[str],
    *,
    head: Sequence[str] = (),
    categories: Sequence[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    released: Mapping[str, Any] | None = None,
) -> str:
    """The text of a file that `Schema.from_toml` reads, also before it is filled in.

    Args:
        names: Of the columns, in order.
        head: Lines to stand above, as comments.
        categories: Those that are categories; any of them may be while none is named.
        bounds: Those that are known already.
        released: The event by which they were found, so that a training on the same table pays for it.

    Example:
        >>> print(template(["age"]).splitlines()[-1])
        # age = ["first", "second"]
    """
    known = bounds or {}
    numbers = [name for name in names if name not in categories]
    lines = [f"# {line}" for line in (*head, *_RULES.splitlines())]
    lines += ["", f"columns = {toml_value(list(names))}"]
    lines += [
        'missing = "raise"   # or "middle": a missing number becomes the middle of its bounds'
    ]
    lines += ['outside = "clamp"   # or "raise": a value that is not declared refuses the table']
    lines += ["", "[bounds]"]
    for name in numbers:
        values = toml_value(known[name]) if name in known else "[LOWEST, HIGHEST]"
        lines.append(f"{'' if name in known else '# '}{toml_key(name)} = {values}")
    lines += ["", "[categories]"]
    lines += [
        f'# {toml_key(name)} = ["first", "second"]'
        for name in categories or (name for name in names if name not in known)
    ]
    if released is not None:
        lines += [
            "",
            "# What these bounds have cost: trainings with this file count it in. Leave it here.",
        ]
        lines += ["[released]", *(f"{toml_key(k)} = {toml_value(v)}" for k, v in released.items())]
    return "\n".join(lines) + "\n"
