"""What users call a table, taken apart into columns: data frames, mappings, arrays, rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import PlanError

__all__ = ["columns_of", "number_in", "numbers_of", "plain"]


def columns_of(table: Any, names: Sequence[str]) -> dict[str, Any]:
    """The table's columns under these names, all equally long.

    A table with names (a mapping, or a data frame of pandas, polars or pyarrow) must have
    exactly these, in any order; one without has them in this order.
    """
    given = table if isinstance(table, Mapping) else _names(table)
    if given is None:
        return _columns_of_rows(table, names)
    found = [str(name) for name in given]
    if len(set(found)) < len(found):
        raise PlanError(f"the table has several columns of one name; its columns are {found}.")
    lacking = [name for name in names if name not in found]
    unknown = [name for name in found if name not in names]
    if lacking:
        raise PlanError(
            f"the table has no column {', '.join(map(repr, lacking))}; its columns are {found}. Add it, or "
            "leave it out of the schema."
        )
    if unknown:
        raise PlanError(
            f"the table has columns that the schema does not know: {unknown}. Drop them, or add them to "
            f"the schema, which has {list(names)}."
        )
    columns = {str(name): _values(table[name]) for name in given}
    if len({len(column) for column in columns.values()}) > 1:
        raise PlanError(
            "the table's columns have different lengths; each row needs a value in each."
        )
    return columns


def _values(column: Any) -> Any:
    """The column as an array in which every value is what it would be without the others."""
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype):
        return np.asarray(column)
    # Lists, and columns that know missing values: NumPy would look for one kind that fits all values, and
    # turn numbers into texts, or large integers into floats, for the sake of a single one.
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            column = getattr(column, name)()
            break
    values = list(column)
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def _names(table: Any) -> Any:
    """The names of a data frame's columns: pandas and polars call them so, pyarrow otherwise."""
    names = getattr(table, "column_names", None)
    return getattr(table, "columns", None) if names is None else names


def _columns_of_rows(table: Any, names: Sequence[str]) -> dict[str, Any]:
    if hasattr(table, "__array__"):
        array = np.asarray(table)
    else:
        rows = [list(row) if _is_row(row) else [row] for row in table]
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise PlanError(f"the table's rows have different lengths: {sorted(widths)}.")
        array = np.empty((len(rows), widths.pop() if widths else len(names)), dtype=object)
        for place, row in enumerate(rows):
            array[place] = row
    if array.ndim != 2 or array.shape[1] != len(names):
        raise PlanError(
            f"the schema has {len(names)} columns, {list(names)}; got a table of shape {array.shape}. Give "
            "rows with one value for each column, in this order."
        )
    return {name: array[:, place] for place, name in enumerate(names)}


def _is_row(row: Any) -> bool:
    return isinstance(row, Sequence | np.ndarray) and not isinstance(row, str | bytes)


def numbers_of(values: Any) -> NDArray[np.float64]:
    """The values as float64; NaN where one is missing or is not a number.

    Texts are numbers if Python reads them as such: "1.5", " 2 ", "1e3", "inf". An empty text, a decimal
    comma or anything else is not. Every value is read by itself.
    """
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    return np.array([_number(value) for value in array], dtype=np.float64)


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond float64
        return float("inf") if value > 0 else float("-inf")
    except (TypeError, ValueError):
        return float("nan")


def number_in(text: str) -> float | None:
    """The number that a text writes, whole ones with all their digits; None if it writes none."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def plain(value: Any) -> Any:
    """A NumPy scalar as Python's own; None in place of what cannot be a category."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float) else None
