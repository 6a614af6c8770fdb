"""What all estimators ask of a table before it is learned from or predicted for."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from antiphon.certificates import Certificate
from antiphon.errors import PlanError
from antiphon.plans import Plan
from antiphon.tables.data import Schema
from antiphon.tables.estimators.scaling import warn_if_scaled

__all__ = ["AbstractTableEstimator", "Data", "encoded", "parts"]

_ROWS = 4096  # that are encoded and predicted at once


class Data(NamedTuple):
    """A checked table, still as it was given, with its targets.

    Attributes:
        table: The records.
        y: Their targets.
        columns: Names of the columns, or how many there are if they have none.
    """

    table: Any
    y: NDArray[Any]
    columns: tuple[str, ...] | int


class AbstractTableEstimator(BaseEstimator):  # type: ignore[misc]
    """Checks tables as scikit-learn does, and those with texts beside; errors never quote a record."""

    # Parameters, which subclasses have as fields.
    bounds: Any
    categories: Any
    missing: str
    # What fit leaves.
    n_features_in_: int
    model_: nn.Module
    schema_: Schema
    target_: Any
    certificate_: Certificate
    plan_: Plan
    n_iter_: int
    learning_rate_: float

    @abstractmethod
    def _checked_y(self, y: Any) -> NDArray[Any]:
        """The targets as an array of one dimension."""

    def _checked(self, X: Any, y: Any) -> Data:
        if y is None:
            raise PlanError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        table = self._checked_X(X, reset=True)
        targets = self._checked_y(column_or_1d(y, warn=True))
        check_consistent_length(table, targets)
        warn_if_scaled(table)
        names = getattr(self, "feature_names_in_", None)
        columns = self.n_features_in_ if names is None else tuple(map(str, names))
        return Data(table, targets, columns)

    def _checked_X(self, X: Any, *, reset: bool) -> Any:
        if self._has_categories():
            return self._checked_frame(X, reset=reset)
        finite = "allow-nan" if self._allows_missing() else True
        try:
            return validate_data(
                self,
                X,
                reset=reset,
                dtype=np.float64,
                ensure_all_finite=finite,
                ensure_min_samples=2 if reset else 1,
            )
        except ValueError as error:
            if "could not convert string" in str(error):
                # Not the original error: it quotes a record.
                raise PlanError(
                    "a column holds texts. Declare its values from public knowledge, "
                    "categories={column: [...]}, or leave the column out."
                ) from None
            if "contains NaN" in str(error):
                raise PlanError(
                    "Input X contains NaN: values are missing. missing='middle' puts them into the middle "
                    "of their bounds; an imputer that looks at the data is not paid for."
                ) from None
            raise

    def _checked_frame(self, X: Any, *, reset: bool) -> Any:
        """A table with texts, which scikit-learn's checks of arrays would refuse."""
        if issparse(X) or not hasattr(X, "shape"):
            raise PlanError(
                f"a table with categories is a data frame or an array of objects; got {type(X).__name__}."
            )
        if not all(isinstance(name, str) for name in getattr(X, "columns", ())):
            X = X.set_axis([str(name) for name in X.columns], axis=1)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if len(X) < (least := 2 if reset else 1):
            raise PlanError(f"at least {least} records are needed; got {len(X)} sample(s).")
        return X

    def _allows_missing(self) -> bool:
        given = self.bounds.missing if isinstance(self.bounds, Schema) else self.missing
        return given == "middle"

    def _has_categories(self) -> bool:
        if isinstance(self.bounds, Schema):
            return any(column.kind == "category" for column in self.bounds.columns)
        return bool(self.categories)

    def __sklearn_tags__(self) -> Any:
        """No claim on the score of small tables, where noise may dominate."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self._allows_missing()
        tags.input_tags.string = tags.input_tags.categorical = self._has_categories()
        return tags


def parts(table: Any) -> Iterator[Any]:
    """The table in pieces, so that it need not fit into memory twice."""
    rows = len(table)
    for start in range(0, rows, _ROWS):
        piece = slice(start, start + _ROWS)
        yield table.iloc[piece] if hasattr(table, "iloc") else table[piece]


def encoded(schema: Schema, table: Any) -> Tensor:
    """The table's features, one row per record, as the network sees them."""
    # By NumPy: torch shares conversions with threads, and waits for them on a busy machine.
    features = [np.asarray(schema.encode(part), dtype=np.float32) for part in parts(table)]
    return torch.from_numpy(np.concatenate(features))
