"""From what a user says of a table's columns to a schema, before any value is looked at."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from antiphon.errors import PlanError
from antiphon.tables.data import Column, Schema

__all__ = ["is_number", "schema_for"]


def schema_for(
    table: tuple[str, ...] | int, bounds: Any, categories: Any = None, missing: str = "raise"
) -> Schema:
    """The schema of a table.

    Args:
        table: Names of its columns in order, or how many there are if they have no names.
        bounds: "private": all bounds are unknown. A pair (low, high), each a number or one number for each
            column. A mapping from columns (names or places) to pairs: the others are unknown. Or a `Schema`
            of exactly these columns, which then says everything.
        categories: A mapping from columns (names or places) to the values that they may have.
        missing: "raise" or "middle", as in `Schema`.

    Guarantee:
        It depends on the columns' names and on what was declared, not on any value.

    Example:
        >>> schema_for(("age", "sex"), {"age": (0, 100)}, {1: ("f", "m")}).feature_names
        ('age', 'sex=f', 'sex=m')
    """
    if isinstance(bounds, Schema):
        if categories is not None:
            raise PlanError("bounds is a whole schema: declare the categories there.")
        return _in_order(bounds, table)
    names = tuple(f"x{i}" for i in range(table)) if isinstance(table, int) else table
    declared = _by_name(names, categories or {}, "categories")
    numbers = [name for name in names if name not in declared]
    limits = _limits(names, numbers, bounds)
    return Schema(
        tuple(Column(name, limits.get(name), declared.get(name)) for name in names), missing=missing
    )


def is_number(schema: Schema) -> list[bool]:
    """Of each feature, whether it is a number; the others are indicators of categories."""
    return [column.kind == "number" for column in schema.columns for _ in column.feature_names]


def _in_order(schema: Schema, table: tuple[str, ...] | int) -> Schema:
    """The schema with its columns in the table's order."""
    if isinstance(table, int):
        if table != len(schema.columns):
            raise PlanError(
                f"the schema has {len(schema.columns)} columns, {list(schema.names)}, the table {table}."
            )
        return schema
    if sorted(schema.names) != sorted(table):
        raise PlanError(
            f"the schema has the columns {list(schema.names)}, the table {list(table)}. Each must have the "
            "other's."
        )
    by_name = dict(zip(schema.names, schema.columns, strict=True))
    return replace(schema, columns=tuple(by_name[name] for name in table))


def _limits(names: tuple[str, ...], numbers: list[str], bounds: Any) -> dict[str, Any]:
    if isinstance(bounds, str):
        if bounds != "private":
            raise PlanError(f"bounds is 'private', a pair, a mapping or a schema; got {bounds!r}.")
        return {}
    if isinstance(bounds, Mapping):
        return _by_name(names, bounds, "bounds")
    try:
        low, high = (np.broadcast_to(np.asarray(b, float), (len(names),)) for b in bounds)
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"bounds is a pair (low, high), each a number or one number for each of the {len(names)} "
            f"columns; got {bounds!r}."
        ) from error
    pairs = dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    return {name: pairs[name] for name in numbers}


def _by_name(names: tuple[str, ...], values: Any, what: str) -> dict[str, Any]:
    """The mapping with columns by name, whether it has names or places."""
    if not isinstance(values, Mapping):
        raise PlanError(f"{what} is a mapping from columns to values; got {values!r}.")
    found = {}
    for key, value in values.items():
        is_place = isinstance(key, int | np.integer) and str(key) not in names
        if is_place and not -len(names) <= key < len(names):
            raise PlanError(f"{what} name column {key}, but the table has {len(names)} columns.")
        name = names[key] if is_place else str(key)
        if name not in names:
            raise PlanError(f"{what} name column {key!r}; the table's columns are {list(names)}.")
        found[name] = value
    return found
