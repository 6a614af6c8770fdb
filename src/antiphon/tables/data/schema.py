"""Which columns a table has, between which public bounds, and how it becomes numbers in [-1, 1]."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import PlanError
from antiphon.tables.data.bounds_file import read_toml, write_toml
from antiphon.tables.data.tables import columns_of, number_in, numbers_of, plain

__all__ = ["Column", "Schema"]


@final
@dataclass(frozen=True)
class Column:
    """One column of a table, as far as it is public.

    Attributes:
        name: Its name.
        bounds: Lowest and highest value of a number; None while they are unknown.
        categories: The values that a category may have, in the order of their features; None for a
            number. A text in the table is found among texts as it stands, and else among numbers as the
            number that it writes: a CSV cell "1" is the category 1.
    """

    name: str
    bounds: Any = None
    categories: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise PlanError(f"a column's name is a text of at least one letter; got {self.name!r}.")
        if self.categories is not None:
            if self.bounds is not None:
                raise PlanError(
                    f"column {self.name!r} has bounds and categories. Declare one of the two: bounds for a "
                    "number, categories for a category."
                )
            object.__setattr__(self, "categories", _checked_categories(self.name, self.categories))
        elif self.bounds is not None:
            object.__setattr__(self, "bounds", _checked_bounds(self.name, self.bounds))

    @property
    def kind(self) -> str:
        """Either "number" or "category"."""
        return "number" if self.categories is None else "category"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the column's features are called."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={value}" for value in self.categories)

    def matched(self, values: Iterable[Any]) -> NDArray[np.object_]:
        """Each value as the declared category that it is; what is none of them stays as it is."""
        place = _places(self.categories)
        found = [(value, place(plain(value))) for value in values]
        matched = np.empty(len(found), dtype=object)
        for row, (value, at) in enumerate(found):
            matched[row] = value if at < 0 else self.categories[at]
        return matched


@final
@dataclass(frozen=True)
class Schema:
    """The columns of a table in order, and what happens to values that were not declared.

    Attributes:
        columns: One `Column` each, of different names.
        missing: What a missing number becomes: "raise" refuses the table, "middle" makes it 0, the middle
            of the bounds. What is no number counts as missing.
        outside: What happens to a number beyond its bounds or a category that was not declared: "clamp"
            moves it to the nearest bound, or gives a row of zeros; "raise" refuses the table.

    Guarantee:
        A schema is fixed before the data are seen, and `encode` treats every row by itself: it maps
        neighbouring tables to neighbouring arrays, for every relation, and costs no privacy. With
        ``missing="middle"`` and ``outside="clamp"`` no value in the table can make it fail. Where it fails
        on a value, the error names the column and never the value or the row; that there is such a value is
        still a fact about the data, so show that error only to those who may see them.

    Example:
        >>> schema = Schema((Column("age", bounds=(0, 100)), Column("sex", categories=("f", "m"))))
        >>> schema.feature_names
        ('age', 'sex=f', 'sex=m')
        >>> schema.encode({"age": [50, 75], "sex": ["m", "?"]}).tolist()
        [[0.0, 0.0, 1.0], [0.5, 0.0, 0.0]]
    """

    columns: tuple[Column, ...]
    missing: str = "raise"
    outside: str = "clamp"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        names = self.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if not names or twice:
            raise PlanError(
                f"a schema needs at least one column, each of another name; got {list(names)}"
                f"{f', with {twice} more than once' if twice else ''}."
            )
        if self.missing not in ("raise", "middle"):
            raise PlanError(f"missing is 'raise' or 'middle'; got {self.missing!r}.")
        if self.outside not in ("clamp", "raise"):
            raise PlanError(f"outside is 'clamp' or 'raise'; got {self.outside!r}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the columns of the encoded array are."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The numbers whose bounds are still unknown."""
        return tuple(c.name for c in self.columns if c.kind == "number" and c.bounds is None)

    def with_bounds(self, bounds: Mapping[str, Any]) -> "Schema":
        """The same schema with these bounds of numbers, such as `private_bounds` has found."""
        unknown = sorted(set(bounds) - set(self.names))
        if unknown:
            raise PlanError(
                f"no such column: {unknown}. The schema has {list(self.names)}; correct the name, or add "
                "the column to the schema."
            )
        return replace(
            self,
            columns=tuple(replace(c, bounds=bounds.get(c.name, c.bounds)) for c in self.columns),
        )

    def numbers(self, table: Any, names: Iterable[str] | None = None) -> NDArray[np.float64]:
        """Columns of numbers as they are, unscaled: what private bounds are computed from.

        Args:
            table: As for `encode`.
            names: Which columns, in this order; those without bounds unless given.

        Returns:
            An array of one row per row of the table, NaN where a value is missing or no number.
        """
        chosen = self.unbounded if names is None else tuple(names)
        known = {column.name for column in self.columns if column.kind == "number"}
        wrong = [name for name in chosen if name not in known]
        if wrong:
            raise PlanError(f"no such columns of numbers: {wrong}; the schema has {sorted(known)}.")
        values = columns_of(table, self.names)
        rows = len(values[self.names[0]])
        stacked = [numbers_of(values[name]) for name in chosen]
        return np.stack(stacked, axis=1) if stacked else np.empty((rows, 0))

    def encode(self, table: Any) -> NDArray[np.float64]:
        """The table as an array with one column per feature, all of it within [-1, 1].

        Args:
            table: A data frame or a mapping from names to columns, in any order; or an array or a sequence
                of rows, in the schema's order.
        """
        if self.unbounded:
            raise PlanError(
                f"the bounds of {list(self.unbounded)} are unknown. Declare them from public knowledge, or "
                "pay for private ones: releases.private_bounds(schema.numbers(table), ...), then "
                "schema.with_bounds."
            )
        values = columns_of(table, self.names)
        parts = [
            self._scaled(c, values[c.name])
            if c.kind == "number"
            else self._one_hot(c, values[c.name])
            for c in self.columns
        ]
        return np.concatenate(parts, axis=1)

    def _scaled(self, column: Column, values: Any) -> NDArray[np.float64]:
        low, high = column.bounds
        x = numbers_of(values)
        is_missing = np.isnan(x)
        if self.missing == "raise" and is_missing.any():
            raise PlanError(
                f"column {column.name!r} has missing values. Give Schema(..., missing='middle') to put "
                "them in the middle of the bounds, or leave their rows out."
            )
        if self.outside == "raise" and ((x < low) | (x > high)).any():
            raise PlanError(_outside(column.name, f"the declared bounds [{low:g}, {high:g}]"))
        middle = low + (high - low) / 2
        inside = np.clip(np.where(is_missing, middle, x), low, high)
        scaled = np.clip(2 * ((inside - low) / (high - low)) - 1, -1.0, 1.0)
        return np.where(is_missing, 0.0, scaled)[:, None]

    def _one_hot(self, column: Column, values: Any) -> NDArray[np.float64]:
        place = _places(column.categories)
        found = np.array([place(plain(value)) for value in values], dtype=np.int64)
        if self.outside == "raise" and (found < 0).any():
            raise PlanError(_outside(column.name, f"the declared categories {column.categories}"))
        return (found[:, None] == np.arange(len(column.categories))).astype(np.float64)

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> "Schema":
        """Read a file with a ``[bounds]`` and a ``[categories]`` table.

        ``columns = [...]`` before them is the order, and may name numbers whose bounds are unknown;
        without it the bounds' columns come first. ``missing`` and ``outside`` may stand there, too.
        """
        values = read_toml(path)
        values.pop("released", None)  # what the bounds have cost: for the caller who pays
        bounds, categories = values.pop("bounds", {}), values.pop("categories", {})
        names = values.pop(
            "columns", [*bounds, *(name for name in categories if name not in bounds)]
        )
        unknown = [name for name in (*bounds, *categories) if name not in names]
        if unknown:
            raise PlanError(
                f"{path} has bounds or categories of {unknown}, which its list of columns, {names}, does "
                "not name. Add them there, or leave out the list."
            )
        columns = tuple(Column(name, bounds.get(name), categories.get(name)) for name in names)
        return cls(columns, **values)

    @staticmethod
    def lists_columns(path: str | PathLike[str]) -> bool:
        """Whether the file says which columns there are, or only what is known of some."""
        return "columns" in read_toml(path)

    def to_toml(self, path: str | PathLike[str]) -> None:
        """Write what `from_toml` reads."""
        top = {"columns": self.names, "missing": self.missing, "outside": self.outside}
        bounds = {c.name: c.bounds for c in self.columns if c.bounds is not None}
        categories = {c.name: c.categories for c in self.columns if c.categories is not None}
        write_toml(path, {**top, "bounds": bounds, "categories": categories})


def _places(categories: Sequence[Any]) -> Callable[[Any], int]:
    """The place of a value among the categories, -1 if it has none; each value by itself.

    A text that is no declared category is looked up as a number: cells of a CSV file are texts.
    """
    places = {value: place for place, value in enumerate(categories)}
    has_numbers = not all(isinstance(value, str) for value in categories)

    def place(value: Any) -> int:
        if value not in places and has_numbers and isinstance(value, str):
            value = number_in(value)
        return places.get(value, -1)

    return place


def _outside(name: str, declared: str) -> str:
    return (
        f"column {name!r} has values outside {declared}. Correct the table, declare them (from public "
        "knowledge, not from this table), or let them be moved: outside='clamp'."
    )


def _checked_bounds(name: str, bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"the bounds of column {name!r} are two numbers, [low, high]; got {bounds!r}."
        ) from error
    if not (low < high and math.isfinite(low) and math.isfinite(high - low)):
        raise PlanError(
            f"the bounds of column {name!r} must be finite, with low below high; got [{low}, {high}]. "
            "Leave them out if they are unknown."
        )
    return low, high


def _checked_categories(name: str, categories: Any) -> tuple[Any, ...]:
    is_list = isinstance(categories, Iterable) and not isinstance(categories, str | bytes | Mapping)
    values = tuple(plain(value) for value in categories) if is_list else ()
    fit = all(
        isinstance(v, str | int) or (isinstance(v, float) and math.isfinite(v)) for v in values
    )
    if not values or not fit or len(set(values)) < len(values):
        raise PlanError(
            f"the categories of column {name!r} are a list of different texts or numbers, at least one; "
            f"got {categories!r}."
        )
    return values
