"""Tensors and arrays in memory as rows: row i is entry i of every column."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from antiphon.errors import PlanError

__all__ = ["Columns", "columns_of"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """Columns of equal length, which share the memory of what they were made of.

    Attributes:
        content: One column, or a tuple or a dict of columns: what is returned has the same form.
    """

    content: Tensor | tuple[Tensor, ...] | dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(_listed(self.content))))

    def __getitem__(self, row: int) -> Any:
        """One row: a view of every column's entry."""
        match self.content:
            case tuple() as columns:
                return tuple(column[row] for column in columns)
            case dict() as columns:
                return {name: column[row] for name, column in columns.items()}
            case column:
                return column[row]

    def select(self, rows: Tensor) -> Any:
        """Copies of these rows as batches of one: every column's entries in shape (rows, 1, ...)."""
        match self.content:
            case tuple() as columns:
                return tuple(_selected(column, rows) for column in columns)
            case dict() as columns:
                return {name: _selected(column, rows) for name, column in columns.items()}
            case column:
                return _selected(column, rows)


def columns_of(rows: Any) -> Columns | None:
    """The columns that ``rows`` consists of; None if it is a data set of another kind.

    Columns are a tensor or an array, a tuple of them, a mapping of them by name, or a `TensorDataset`.
    A list is never taken for columns: it is a list of records, also if these are tensors.
    """
    if type(rows) is TensorDataset:
        rows = rows.tensors
    if isinstance(rows, Tensor | np.ndarray):
        return Columns(_column("the data set", rows))
    if isinstance(rows, Mapping):
        if not all(isinstance(name, str) for name in rows):
            raise PlanError(
                "a mapping holds columns by name, and a name that is not a text was given. Give records "
                "as a list, and columns by the names of the loss function's arguments."
            )
        named = {name: _column(f"column {name!r}", part) for name, part in rows.items()}
        return Columns(_of_equal_length(named))
    if isinstance(rows, tuple):
        return Columns(
            _of_equal_length(tuple(_column(f"column {i}", part) for i, part in enumerate(rows)))
        )
    return None


def _column(name: str, part: Any) -> Tensor:
    if not isinstance(part, Tensor | np.ndarray):
        raise PlanError(
            f"{name} is of type {type(part).__name__}: a tuple or a mapping holds columns, which are "
            "tensors or arrays of equal length. Convert columns with torch.tensor(...) or .to_numpy(); "
            "give records as a list."
        )
    if not part.ndim:
        raise PlanError(f"{name} is a single number: a column has one entry for every row.")
    return part.detach() if isinstance(part, Tensor) else _from_array(name, part)


def _from_array(name: str, array: NDArray[Any]) -> Tensor:
    """A tensor of the array's memory, but for strides that tensors cannot have."""
    if min(array.strides) < 0:
        array = array.copy()
    try:
        with warnings.catch_warnings():
            # Of arrays that may not be written to, such as memory-mapped files: nothing is written here.
            warnings.simplefilter("ignore", UserWarning)
            return torch.as_tensor(array)
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"{name} is an array of {array.dtype}, which no tensor can hold. Convert it to numbers."
        ) from error


def _of_equal_length(columns: Any) -> Any:
    lengths = [len(column) for column in _listed(columns)]
    if not lengths:
        raise PlanError("the data set is empty: it has no columns.")
    if len(set(lengths)) > 1:
        raise PlanError(
            f"the arrays have different lengths: {lengths}. A tuple or a mapping holds columns, with one "
            "entry for every row; give records as a list."
        )
    return columns


def _listed(content: Any) -> list[Tensor]:
    if isinstance(content, Tensor):
        return [content]
    return list(content.values() if isinstance(content, dict) else content)


def _selected(column: Tensor, rows: Tensor) -> Tensor:
    """Several times quicker than by square brackets."""
    return column.index_select(0, rows.to(column.device)).unsqueeze(1)
