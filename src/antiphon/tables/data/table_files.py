"""Tables in files, read without a look at what kind of values they hold."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from antiphon.errors import DataError, PlanError
from antiphon.tables.data import archives, delimited
from antiphon.tables.data.tables import numbers_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_columns", "columns_of_file", "read_table", "split_target"]


class _Format(NamedTuple):
    header: Callable[[Path], tuple[str, ...]]
    read: Callable[[Path], Any]


def _text(separator: str) -> _Format:
    return _Format(
        lambda path: delimited.header_of_text(path, separator),
        lambda path: delimited.read_text(path, separator),
    )


_FORMATS = {
    ".csv": _text(","),
    ".csv.gz": _text(","),
    ".tsv": _text("\t"),
    ".tsv.gz": _text("\t"),
    ".parquet": _Format(archives.header_of_parquet, archives.read_parquet),
    ".npz": _Format(archives.header_of_npz, archives.read_npz),
}


def read_table(path: str | PathLike[str]) -> "pd.DataFrame":
    r"""A table with a name for every column, one record per row.

    Args:
        path: ``.csv`` or ``.tsv`` in UTF-8 (both also as ``.gz``) with a first line of names; ``.parquet``
            (extra ``parquet``); or ``.npz`` with ``X``, ``y`` and, if need be, ``columns``, or one array
            per column.

    Returns:
        From CSV and TSV every cell is the text that stands there, spaces included; a blank line is no
        record. What is a number is decided by a `Schema`, cell by cell: "1.5", " 2 ", "1e3" and "inf" are
        numbers; "", "NA", "1,5" and "1.000,5" are not, and count as missing. Parquet files and archives say
        themselves of which type their columns are.

    Raises:
        DataError: If there is no such file, or it is not a whole table. It names the line, never a value.

    Guarantee:
        Each record is read as it would be without the others: no type is inferred from the column, so
        neighbouring files become neighbouring tables. The first line of a text is taken to be public.
        A text that was cut at a field's last character or later looks whole, as for any reader; compressed
        by gzip, every cut is found.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "people.csv")
        ...     _ = path.write_text("age,sex\n41,f\n,m\n")
        ...     print(columns_of_file(path), read_table(path).values.tolist())
        ('age', 'sex') [['41', 'f'], ['', 'm']]
    """
    import pandas as pd

    file, kind = _found(path)
    _checked_names(file, kind.header(file))
    values = kind.read(file)
    if isinstance(values, dict):
        # pandas would look for a type that fits the texts of a column.
        series = {name: pd.Series(cells, dtype=cells.dtype) for name, cells in values.items()}
        values = pd.DataFrame(series, copy=False)
    if not len(values):
        raise DataError(f"{file} names columns, but has no record.")
    return values


def columns_of_file(path: str | PathLike[str]) -> tuple[str, ...]:
    """The names of a table's columns, in order; no record is read.

    Args:
        path: As for `read_table`.

    Raises:
        DataError: If there is no such file, or it does not begin as a table does.
    """
    file, kind = _found(path)
    return _checked_names(file, kind.header(file))


def split_target(frame: "pd.DataFrame", target: str) -> "tuple[pd.DataFrame, pd.Series]":
    """The table without the column that is to be predicted, and that column.

    Raises:
        PlanError: If there is no such column, or no other.

    Example:
        >>> import pandas as pd
        >>> X, y = split_target(pd.DataFrame({"age": [41], "income": [7]}), "income")
        >>> list(X), y.tolist()
        (['age'], [7])
    """
    names = [str(name) for name in frame.columns]
    check_columns([target], names)
    if len(names) == 1:
        raise PlanError(
            f"the table has no column beside {target!r}: there is nothing to learn from."
        )
    frame = frame.set_axis(names, axis=1)
    return frame.drop(columns=target), frame[target]


def check_columns(wanted: Iterable[str], names: Iterable[Any], where: str = "the table") -> None:
    """Raise PlanError unless all wanted columns are among the names; it suggests the closest one."""
    found = [str(name) for name in names]
    for name in wanted:
        if name not in found:
            near = get_close_matches(name, found, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise PlanError(f"{where} has no column {name!r}; its columns are {found}.{hint}")


def _found(path: str | PathLike[str]) -> tuple[Path, _Format]:
    file = Path(path)
    kinds = [kind for suffix, kind in _FORMATS.items() if file.name.lower().endswith(suffix)]
    if file.is_dir():
        raise DataError(f"{file} is a folder: name the file of the table in it.")
    if not file.exists():
        raise DataError(f"there is no file {file}.")
    if not kinds:
        raise DataError(
            f"{file} is of an unknown kind: tables are read from {', '.join(_FORMATS)} files."
        )
    with file.open("rb") as opened:
        if not opened.read(1):
            raise DataError(f"{file} is empty.")
    return file, kinds[0]


def _checked_names(file: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The names of a table's columns; none of them is shown before they look like names."""
    if _is_record(names):
        raise DataError(
            f"the first line of {file} consists of numbers: it seems to be a record. Put a line with the "
            "columns' names above it."
        )
    if "" in names:
        raise DataError(
            f"column {names.index('') + 1} of {file} has no name. Name it in the first line, or leave the "
            "column out (pandas: to_csv(..., index=False))."
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{file} has several columns of one name: {twice}. Rename all but one.")
    return tuple(names)


def _is_record(names: Sequence[str]) -> bool:
    """Whether all names are numbers, and not those by which columns are counted."""
    numbers = numbers_of([name or "nan" for name in names])
    if not len(names) or np.isnan(numbers).any():
        return False
    return not any((numbers == np.arange(len(names)) + first).all() for first in (0, 1))
