"""Tables as text, one record per line: CSV and TSV, plain or compressed by gzip.

The first line names the columns and is public; what follows is not, and no error quotes it.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import DataError

__all__ = ["header_of_text", "read_text"]

_ROWS = 2_048  # that are read before they are taken apart into columns
_LONGEST = 2**24  # characters in a line; without an end, a whole file could be one
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


def header_of_text(path: Path, separator: str) -> tuple[str, ...]:
    """The names in the first line. Nothing after it is read."""
    with _rows(path, separator) as rows:
        return _header(path, rows, separator)


def read_text(path: Path, separator: str) -> dict[str, NDArray[Any]]:
    """The columns by name, every cell the text that stands in the file.

    Equal texts near each other share memory, as they do in a column of categories.
    """
    with _rows(path, separator) as rows:
        names = _header(path, rows, separator)
        columns: list[list[NDArray[Any]]] = [[] for _ in names]
        while records := list(islice(_whole_rows(path, rows, len(names)), _ROWS)):
            for column, cells in zip(columns, zip(*records, strict=True), strict=True):
                known: dict[str, str] = {}
                column.append(np.array(list(map(known.setdefault, cells, cells)), dtype=object))
    empty = np.empty(0, dtype=object)
    return {name: np.concatenate([empty, *columns.pop(0)]) for name in names}


class _Rows:
    """The rows of an open file, and the line that the last one ended in."""

    def __init__(self, path: Path, file: TextIOWrapper, separator: str) -> None:
        self._path, self._file, self.line = path, file, 0
        self._parsed = csv.reader(self._lines(), delimiter=separator, strict=True)

    def __iter__(self) -> Iterator[list[str]]:
        return filter(None, self._parsed)  # a blank line is no record

    def _lines(self) -> Iterator[str]:
        while line := self._file.readline(_LONGEST):
            self.line += 1
            if "\0" in line or (len(line) == _LONGEST and not line.endswith(("\n", "\r"))):
                raise DataError(
                    f"{self._path} is no text: line {self.line} has a zero byte or no end. Is it another "
                    "kind of file, or UTF-16? Write the table as CSV in UTF-8."
                )
            yield line


@contextmanager
def _rows(path: Path, separator: str) -> Iterator[_Rows]:
    """The rows of the file. What is wrong with the file in any of them is an error that names its line.

    The errors that say so are not chained: some hold a record.
    """
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        rows = _Rows(path, file, separator)
        try:
            yield rows
        except UnicodeDecodeError:
            raise DataError(
                f"{path} is not UTF-8, at line {rows.line + 1} or soon after it. Save the table as UTF-8; "
                "from Latin-1, for instance: iconv -f LATIN1 -t UTF-8."
            ) from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise DataError(
                f"{path} is cut short or damaged: its gzip stream has no sound end after line {rows.line}. "
                "Copy or compress it again."
            ) from None
        except csv.Error:
            raise DataError(
                f"{path} is not well formed at line {rows.line}: a quotation mark without its partner, or "
                "a field too long. Is the file cut short? Quotation marks within a field are doubled."
            ) from None


def _header(path: Path, rows: _Rows, separator: str) -> tuple[str, ...]:
    names = tuple(next(iter(rows), ()))
    if not names:
        raise DataError(f"{path} is empty: the first line names the columns.")
    others = [mark for mark in _SEPARATORS if mark != separator and mark in names[0]]
    if len(names) == 1 and others:
        raise DataError(
            f"{path} seems to separate its columns by {_SEPARATORS[others[0]]}; by its name it should by "
            f"{_SEPARATORS[separator]}. Write it so, or rename it (.csv: commas, .tsv: tabs)."
        )
    return names


def _whole_rows(path: Path, rows: _Rows, width: int) -> Iterator[list[str]]:
    for row in rows:
        if len(row) != width:
            raise DataError(
                f"line {rows.line} of {path} has {len(row)} field{'s' * (len(row) > 1)}, but the first "
                f"line names {width} columns. Is the file cut short, or a separator in a field not quoted?"
            )
        yield row
