"""Tables as columns: Parquet files and NumPy archives, which say themselves what their values are."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import DataError

__all__ = ["header_of_npz", "header_of_parquet", "read_npz", "read_parquet"]

_KINDS = "fiubUS"  # of NumPy: numbers, truth values and texts


def header_of_parquet(path: Path) -> tuple[str, ...]:
    """The names in the file's schema, which stands at its end."""
    with _parquet(path) as file:
        return tuple(file.schema_arrow.names)


def read_parquet(path: Path) -> Any:
    """The table as a data frame. An integer stays one beside missing values."""
    with _parquet(path) as file:
        table = file.read()
        # Arrow gives every column away as soon as pandas has it: not two tables in memory at once.
        return table.to_pandas(
            ignore_metadata=True, integer_object_nulls=True, split_blocks=True, self_destruct=True
        )


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f'{path} is a Parquet file: pip install "antiphon[parquet]" to read it.'
        ) from error
    try:
        with path.open("rb") as opened, parquet.ParquetFile(opened) as file:
            schema = file.schema_arrow
            nested = [field.name for field in schema if pyarrow.types.is_nested(field.type)]
            if nested:
                raise DataError(
                    f"{path} has columns of lists or records, {nested}: a table has one value per cell."
                )
            yield file
    except (pyarrow.ArrowException, EOFError, OSError):  # what they say may come from the file
        raise DataError(
            f"{path} is not a sound Parquet file: it is cut short, damaged or of another kind. Write or "
            "copy it again."
        ) from None


def header_of_npz(path: Path) -> tuple[str, ...]:
    """The names of the columns; of the arrays no more than their shapes is read."""
    with _npz(path) as archive:
        shapes = {key: _shape(archive, key) for key in archive.files}
        return tuple(_layout(path, archive, shapes))


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The columns by name: of the arrays ``X``, ``y`` and perhaps ``columns``, or one array each."""
    with _npz(path) as archive:
        shapes = {key: _shape(archive, key) for key in archive.files}
        layout = _layout(path, archive, shapes)
        lengths = {shapes[key][0] for key in {key for key, _ in layout.values()}}
        if len(lengths) > 1:
            raise DataError(
                f"{path} has arrays of different length, {sorted(lengths)}: each row of the table needs a "
                "value in each. Save them again."
            )
        arrays = {key: _values(path, key, archive[key]) for key in {k for k, _ in layout.values()}}
    return {
        name: arrays[key] if place is None else arrays[key][:, place]
        for name, (key, place) in layout.items()
    }


@contextmanager
def _npz(path: Path) -> Iterator[Any]:
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as archive:
            yield archive
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile, zlib.error):
        raise DataError(
            f"{path} is not a sound NumPy archive: it is cut short, damaged, of another kind or holds "
            "Python objects, which are not read since they could run code. Save plain arrays of numbers or "
            "texts with numpy.savez."
        ) from None


def _shape(archive: Any, key: str) -> tuple[int, ...]:
    """From the array's header."""
    with archive.zip.open(f"{key}.npy") as file:
        read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
            np.lib.format.read_magic(file), np.lib.format.read_array_header_2_0
        )
        return tuple(read(file)[0])


def _layout(
    path: Path, archive: Any, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[str, int | None]]:
    """Every column's array, and its place there if the array has several columns."""
    X = shapes.get("X", ())
    if len(X) != 2:
        wrong = [key for key, shape in shapes.items() if len(shape) != 1]
        if wrong or not shapes:
            raise DataError(
                f"{path} holds no table: {wrong or 'it'} should have one dimension. Save X of rows and "
                "columns with y and, if there are any, the names as columns; or one array per column."
            )
        return {key: (key, None) for key in shapes}
    if unknown := sorted(set(shapes) - {"X", "y", "columns"}):
        raise DataError(
            f"{path} holds {unknown} beside X: save X, y and columns, or one array per column."
        )
    names = [str(name) for name in archive["columns"]] if "columns" in shapes else None
    names = [f"x{place}" for place in range(X[1])] if names is None else names
    if len(names) != X[1] or len(set(names)) < X[1] or ("y" in shapes and "y" in names):
        raise DataError(
            f"{path} names {len(names)} columns for {X[1]} in X: they need a name each, no two the same"
            f"{', and none of them y' if 'y' in shapes else ''}."
        )
    if "y" in shapes and len(shapes["y"]) != 1:
        raise DataError(f"y in {path} should have one dimension; its shape is {shapes['y']}.")
    layout: dict[str, tuple[str, int | None]] = {name: ("X", i) for i, name in enumerate(names)}
    return layout | ({"y": ("y", None)} if "y" in shapes else {})


def _values(path: Path, key: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in _KINDS:
        raise DataError(f"{key} in {path} is of type {array.dtype}: save numbers or texts.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return array.astype(object) if array.dtype.kind == "U" else array
