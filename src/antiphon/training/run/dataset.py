"""A data set as a private run reads it: rows by number, each collated by itself."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, final

from torch.utils.data import DataLoader, IterableDataset, default_collate

from antiphon.errors import PlanError, UnsupportedError
from antiphon.training.run.in_memory import Columns, columns_of
from antiphon.training.run.padding import Padding

__all__ = ["Dataset", "as_dataset"]

_TABLES = (
    "pandas",
    "polars",
    "pyarrow",
)  # numbers in square brackets mean columns there, or nothing


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """The data of a run: rows, whose they are, and how one row becomes a batch of one.

    Attributes:
        rows: What is read by row number. A tuple, or a mapping by name, of tensors or arrays of equal
            length holds columns, and so does a single tensor or array. A list holds records. Any other
            map-style data set will do, such as torch's or Hugging Face's.
        user: The user of every row, as a sequence or an array. Then users are protected: they are drawn
            as a whole, and the mean gradient of a user's rows is clipped.
        collate: Makes a batch of one from a list of one row: tensors, numbers, texts and None in dicts,
            lists and tuples. Unless given, it is torch's `default_collate`. It never sees two rows.
        pad_to: Public length of the first axis after that of the batch: for every tensor that has such
            an axis, or by key or position of the collated batch. Shorter rows are filled up; longer ones
            are refused, never cut.
        pad_with: The number that is filled in, or numbers by key or position; 0 for those not named.

    Guarantee:
        `one` calls ``rows[i]`` and ``collate([rows[i]])`` for a single i, so the examples of a batch are
        independent if neither reads nor keeps anything of other rows. That condition cannot be checked.

    Example:
        >>> import torch
        >>> texts = [{"words": torch.tensor([1, 2, 3])}, {"words": torch.tensor([4])}]
        >>> Dataset(texts, pad_to={"words": 4}).one(1)
        {'words': tensor([[4, 0, 0, 0]])}
    """

    rows: Any
    _: KW_ONLY
    user: Any = None
    collate: Callable[[list[Any]], Any] | None = None
    pad_to: int | Mapping[Any, int] | None = None
    pad_with: float | Mapping[Any, float] = 0
    _columns: Columns | None = field(init=False)
    _padding: Padding | None = field(init=False)

    def __post_init__(self) -> None:
        _check_kind(self.rows)
        if self.pad_to is None and self.pad_with != 0:
            raise PlanError(
                "pad_with fills rows up to a length, and pad_to declares none. Give both."
            )
        padding = None if self.pad_to is None else Padding(self.pad_to, self.pad_with)
        object.__setattr__(self, "_columns", columns_of(self.rows))
        object.__setattr__(self, "_padding", padding)
        if not len(self):
            raise PlanError("the data set is empty.")

    def __len__(self) -> int:
        return len(self.rows if self._columns is None else self._columns)

    def __repr__(self) -> str:
        """Its size, and nothing of what it holds."""
        return f"<Dataset: {len(self)} rows{'' if self.user is None else ', with users'}>"

    @property
    def plain_columns(self) -> Columns | None:
        """Columns in memory, if their entries are the examples as they are."""
        return self._columns if self.collate is None and self._padding is None else None

    def one(self, row: int) -> Any:
        """The batch of one of this row, filled up to the declared lengths."""
        record = (self.rows if self._columns is None else self._columns)[row]
        batch = (self.collate or _default_collate)([record])
        return batch if self._padding is None else self._padding.filled(batch)


def as_dataset(data: Any) -> Dataset:
    """The data set itself, or one of these rows."""
    return data if isinstance(data, Dataset) else Dataset(data)


def _check_kind(rows: Any) -> None:
    """Refuse what has no rows by number."""
    name = type(rows).__name__
    if isinstance(rows, DataLoader):
        raise PlanError(
            "give the loader's data set, not the loader: batches are drawn by the run itself. "
            "PrivacyEngine.make_private takes loaders."
        )
    if isinstance(rows, Dataset):
        raise PlanError("a Dataset was given as the rows of another one. Give the rows themselves.")
    if type(rows).__module__.partition(".")[0] in _TABLES:
        raise UnsupportedError(
            f"a {name} has columns, not rows by number. Give its columns by name as arrays: "
            "{'x': table[inputs].to_numpy(), 'y': table[label].to_numpy()}."
        )
    if isinstance(rows, IterableDataset | str | bytes) or not _has_rows(rows):
        raise UnsupportedError(
            f"batches are drawn by row number, so the data set needs __len__ and __getitem__; {name} has "
            "not both, or not for rows (an IterableDataset cannot be sampled)."
        )


def _has_rows(rows: Any) -> bool:
    try:
        len(rows)
    except TypeError:
        return False
    return hasattr(rows, "__getitem__")


def _default_collate(rows: list[Any]) -> Any:
    try:
        return default_collate(rows)
    except TypeError as error:
        raise UnsupportedError(
            f"a row holds something of which no tensor is made unless told how: {error}. Give "
            "ap.Dataset(rows, collate=...), a function of a list of one row."
        ) from error
