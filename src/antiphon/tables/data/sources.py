"""Well-known data sets by name: shipped with scikit-learn, from a folder of archives, or from OpenML.

The folder is named by the user, or by ``ANTIPHON_DATA``. It holds NumPy archives (``.npz``, no pickles)
with ``X_train``, ``y_train``, ``X_test``, ``y_test``, or ``X``, ``y`` where there is no standard split.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import DataError, PlanError
from antiphon.tables.data import known_columns as known
from antiphon.tables.data.archive_folder import (
    FOLDER,
    Arrays,
    archive,
    lacking,
    named_folder,
    needed_archive,
)
from antiphon.tables.data.known_table import Dataset
from antiphon.tables.data.schema import Schema

__all__ = ["datasets", "load"]

_TEST_SHARE = 0.2
_SPLIT_SEED = 0
# Rows and positive labels of the two parts of Adult, and the order in which OpenML joins them.
_ADULT_PARTS = {"test": (16_281, 3_846), "train": (32_561, 7_841)}


def datasets() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(_LOADERS)


def load(name: str, folder: str | PathLike[str] | None = None) -> Dataset:
    """A data set by its name.

    Args:
        name: "breast-cancer" is always there. "adult", "credit-default", "mnist", "mnist-01" (its digits
            0 and 1) and "fashion-mnist" are sought in the folder, then at OpenML; "gue-promoters" and
            "cifar-10-subset" in the folder alone.
        folder: Of the archives ``adult.npz``, ``credit_default.npz``, ``mnist.npz``,
            ``fashion_mnist.npz``, ``gue_human_core_promoter.npz``, ``cifar10_subset.npz``; unless given,
            the one that ``ANTIPHON_DATA`` names.

    Returns:
        Raw values with a schema of public bounds. Where there is no standard split, a fifth of the records
        is the test part, the same in every run.

    Raises:
        PlanError: If no data set has this name.
        DataError: If it is not where it was sought.

    Example:
        >>> data = load("breast-cancer")
        >>> data.X_train.shape, data.X_test.shape, data.features
        ((455, 30), (114, 30), 30)
    """
    if name not in _LOADERS:
        raise PlanError(f"no data set is called {name!r}; there are {', '.join(_LOADERS)}.")
    return _LOADERS[name](named_folder(folder))


def _breast_cancer(folder: Path | None) -> Dataset:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return _split("breast-cancer", X, y.astype(np.int64), known.breast_cancer())


def _adult(folder: Path | None) -> Dataset:
    arrays = archive(folder, "adult") or _adult_from_openml(folder)
    schema, names = known.adult(), [str(name) for name in arrays["columns"]]
    parts = {}
    for part in ("train", "test"):
        X = arrays[f"X_{part}"]
        table = np.empty((len(X), len(schema.columns)), dtype=object)
        for place, column in enumerate(schema.columns):
            values = X[:, names.index(column.name)]
            if column.kind != "number":
                values = _texts(arrays[f"cat_{column.name}"])[_codes(values)]
            table[:, place] = values
        parts[part] = (table, _labels(arrays[f"y_{part}"]))
    return Dataset("adult", *parts["train"], *parts["test"], schema)


def _adult_from_openml(folder: Path | None) -> Arrays:
    """As the archive has it: OpenML joins the test part and the train part, in this order."""
    bunch = _openml("adult", 2, "adult", folder)
    rich = np.array([str(label).startswith(">50K") for label in bunch.target])
    arrays: dict[str, Any] = {"columns": bunch.feature_names}
    arrays |= {f"cat_{name}": values for name, values in bunch.categories.items()}
    start = 0
    for part, (rows, positive) in _ADULT_PARTS.items():
        chosen = slice(start, start + rows)
        if rich[chosen].sum() != positive:
            raise DataError(
                f"OpenML's table 'adult' has {rich[chosen].sum()} labels above 50K among its rows {start} "
                f"to {start + rows}, not {positive}: its order is not the known one. Use the archive "
                f"adult.npz in the folder that {FOLDER} names."
            )
        arrays[f"X_{part}"], arrays[f"y_{part}"] = bunch.data[chosen], rich[chosen]
        start += rows
    return arrays


def _credit_default(folder: Path | None) -> Dataset:
    arrays = archive(folder, "credit_default")
    if arrays is None:
        bunch = _openml("default-of-credit-card-clients", 1, "credit_default", folder)
        arrays = {"X": bunch.data, "y": bunch.target}
    X = np.asarray(arrays["X"], dtype=np.float64)
    return _split("credit-default", X, _labels(arrays["y"]), known.credit_default())


def _mnist(folder: Path | None) -> Dataset:
    return _pictures(folder, "mnist", "mnist", "mnist_784")


def _fashion_mnist(folder: Path | None) -> Dataset:
    return _pictures(folder, "fashion-mnist", "fashion_mnist", "Fashion-MNIST")


def _pictures(folder: Path | None, name: str, stem: str, table: str) -> Dataset:
    """70 000 pictures of 28 by 28 in ten classes, the last 10 000 to test on."""
    arrays = archive(folder, stem)
    if arrays is None:
        bunch = _openml(table, 1, stem, folder)
        X, y, split = bunch.data, bunch.target, 60_000
        arrays = {
            "X_train": X[:split],
            "y_train": y[:split],
            "X_test": X[split:],
            "y_test": y[split:],
        }
    return Dataset(
        name,
        *_images(arrays, "train"),
        *_images(arrays, "test"),
        known.pixels(784),
        tuple(range(10)),
    )


def _cifar_10(folder: Path | None) -> Dataset:
    """10 000 colour pictures of 32 by 32 to learn from and 5000 to test on, pixel by pixel, red first."""
    arrays = needed_archive(folder, "cifar10_subset")
    parts = (*_images(arrays, "train"), *_images(arrays, "test"))
    return Dataset("cifar-10-subset", *parts, known.pixels(3072), tuple(range(10)))


def _images(arrays: Arrays, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    X, y = np.asarray(arrays[f"X_{part}"]), arrays[f"y_{part}"]
    return X.reshape(len(X), -1).astype(np.uint8), _labels(y)


def _mnist_01(folder: Path | None) -> Dataset:
    whole = _mnist(folder)
    train, test = whole.y_train <= 1, whole.y_test <= 1
    return Dataset(
        "mnist-01",
        whole.X_train[train],
        whole.y_train[train],
        whole.X_test[test],
        whole.y_test[test],
        whole.schema,
    )


def _promoters(folder: Path | None) -> Dataset:
    arrays = needed_archive(folder, "gue_human_core_promoter")
    bases = np.array(list(str(arrays["alphabet"])), dtype=object)
    train, test = (bases[arrays[f"X_{part}"]] for part in ("train", "test"))
    y_train, y_test = _labels(arrays["y_train"]), _labels(arrays["y_test"])
    schema = known.promoters(train.shape[1])
    return Dataset("gue-promoters", train, y_train, test, y_test, schema)


def _openml(name: str, version: int, stem: str, folder: Path | None) -> Any:
    """OpenML's table, kept by scikit-learn in its own folder; columns of texts come as codes."""
    from sklearn.datasets import fetch_openml

    try:
        return fetch_openml(name, version=version, as_frame=False, parser="liac-arff")
    except (OSError, ValueError) as error:
        reason = f" OpenML's table {name!r} cannot be had either: {error}."
        raise DataError(lacking(stem, folder) + reason) from error


def _split(name: str, X: NDArray[Any], y: NDArray[np.int64], schema: Schema) -> Dataset:
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(X))
    test, train = np.split(order, [round(_TEST_SHARE * len(X))])
    return Dataset(name, X[train], y[train], X[test], y[test], schema)


def _labels(values: Any) -> NDArray[np.int64]:
    return np.asarray(values).astype(np.int64)


def _codes(values: Any) -> NDArray[np.int64]:
    """Places of categories; a missing one, NaN, is the last, which `_texts` calls "?"."""
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _texts(categories: Any) -> NDArray[Any]:
    return np.array([*map(str, categories), "?"], dtype=object)


_LOADERS: dict[str, Callable[[Path | None], Dataset]] = {
    "breast-cancer": _breast_cancer,
    "adult": _adult,
    "credit-default": _credit_default,
    "mnist": _mnist,
    "mnist-01": _mnist_01,
    "fashion-mnist": _fashion_mnist,
    "gue-promoters": _promoters,
    "cifar-10-subset": _cifar_10,
}
