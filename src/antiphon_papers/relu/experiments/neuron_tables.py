"""Tables for regression by one ReLU neuron: public ones and a synthetic one, prepared as the paper does.

Features are standardised and targets divided by their largest absolute value, both over the *whole* table,
and a column of ones is added: a ReLU without intercept cannot fit positive targets of centred features.
Means, deviations and the largest target are thereby declared public, which they are not: the paper does not
pay for them either. The estimator `antiphon.PrivateReLURegressor` does.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import DataError
from antiphon.tables.data import named_folder, needed_archive

__all__ = ["TABLES", "Table", "table"]

Array = NDArray[np.float64]

TABLES = ("california", "gas-turbine-co", "gas-turbine-nox", "wine")
"""Those that are read from the folder that ANTIPHON_DATA names."""

_FILES = {
    "california": "california_housing",
    "gas-turbine-co": "gas_turbine",
    "gas-turbine-nox": "gas_turbine",
    "wine": "wine_quality_white",
}


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Four fifths to learn from, one fifth to test on."""

    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array


def table(name: str, seed: int, n: int = 2000) -> Table:
    """A table, split at random.

    Args:
        name: One of `TABLES`, or "synthetic": skewed features, a ReLU of some of them, and noise.
        seed: Of the split; of the synthetic records, too.
        n: Records of the synthetic table.
    """
    X, y = _synthetic(n) if name == "synthetic" else _read(name)
    X = (X - X.mean(0)) / X.std(0)
    X = np.column_stack([X, np.ones(len(X))])
    y = y / np.abs(y).max()
    order = np.random.default_rng((10, seed)).permutation(len(y))
    train, test = np.split(order, [round(0.8 * len(y))])
    return Table(X[train], y[train], X[test], y[test])


def _synthetic(n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    X = rng.gamma(4.0, size=(n, 5)) @ (np.eye(5) + 0.3)
    y = np.maximum(X @ [0.5, -0.2, 0.1, 0.0, 0.3] + rng.standard_normal(n), 0.0)
    return X, np.asarray(y)


@lru_cache(maxsize=2)
def _read(name: str) -> tuple[Array, Array]:
    if name not in _FILES:
        raise DataError(f"no table is called {name!r}; there are synthetic, {', '.join(TABLES)}.")
    arrays = needed_archive(named_folder(), _FILES[name])
    if "data" not in arrays:
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
    columns = arrays["columns"].tolist()
    target = columns.index("CO" if name.endswith("co") else "NOX")
    numbers = arrays["data"].astype(np.float64)
    return numbers[:, :9], numbers[:, target]
