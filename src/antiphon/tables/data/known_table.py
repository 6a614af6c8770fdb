"""Data for training and for testing, with what is publicly known of their columns."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import DataError
from antiphon.tables.data.schema import Schema

__all__ = ["Dataset"]

_ROWS = 4096  # that are encoded at once: the whole in float64 may not fit into memory


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """A table in two parts; each row is one record with its label.

    Attributes:
        name: What it is called.
        X_train: Records to learn from, in the schema's columns: numbers, or objects where there are texts.
        y_train: Their labels, out of ``classes``.
        X_test: Records to test on.
        y_test: Their labels.
        schema: Bounds and categories, from public knowledge and not from these records.
        classes: The labels that can occur, in order.
    """

    name: str
    X_train: NDArray[Any]
    y_train: NDArray[np.int64]
    X_test: NDArray[Any]
    y_test: NDArray[np.int64]
    schema: Schema
    classes: tuple[int, ...] = (0, 1)

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            X, y = getattr(self, f"X_{part}"), getattr(self, f"y_{part}")
            width = len(self.schema.columns)
            if X.shape != (len(y), width) or not np.isin(y, self.classes).all():
                raise DataError(
                    f"{self.name}: the {part} part has records of shape {X.shape} for {len(y)} labels; it "
                    f"needs {width} columns, a record for each label, and labels out of {self.classes}."
                )

    @property
    def features(self) -> int:
        """Number of columns once encoded."""
        return len(self.schema.feature_names)

    @property
    def majority(self) -> float:
        """Share of the commonest label in the test part: what any accuracy is to be compared with."""
        return float(np.unique(self.y_test, return_counts=True)[1].max() / len(self.y_test))

    def encoded(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Train and test features within [-1, 1], each followed by its labels' places in ``classes``."""
        places = [np.searchsorted(self.classes, y) for y in (self.y_train, self.y_test)]
        return self._encode(self.X_train), places[0], self._encode(self.X_test), places[1]

    def _encode(self, X: NDArray[Any]) -> NDArray[np.float32]:
        out = np.empty((len(X), self.features), dtype=np.float32)
        for start in range(0, len(X), _ROWS):
            out[start : start + _ROWS] = self.schema.encode(X[start : start + _ROWS])
        return out
