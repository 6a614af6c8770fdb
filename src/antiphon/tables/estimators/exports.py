"""Fitted estimators in one safetensors file, without pickle: what may be shown, and nothing else."""

import json
import os
from typing import Any

import numpy as np

from antiphon.certificates import Certificate
from antiphon.errors import AntiphonError, StateError
from antiphon.tables.estimators.abstract_estimator import AbstractPrivateEstimator
from antiphon.tables.estimators.codec import from_json, schema_from_json, target_from_json
from antiphon.tables.estimators.kan_estimators import PrivateKANClassifier, PrivateKANRegressor
from antiphon.tables.estimators.logistic_regression import PrivateLogisticRegression
from antiphon.tables.estimators.mlp_estimators import PrivateMLPClassifier, PrivateMLPRegressor
from antiphon.tables.estimators.relu_regressor import PrivateReLURegressor
from antiphon.training.checkpoints import read_export

__all__ = ["load"]

_CLASSES: dict[str, type[AbstractPrivateEstimator]] = {
    kind.__name__: kind
    for kind in (
        PrivateKANClassifier,
        PrivateKANRegressor,
        PrivateLogisticRegression,
        PrivateMLPClassifier,
        PrivateMLPRegressor,
        PrivateReLURegressor,
    )
}


def load(path: str | os.PathLike[str]) -> Any:
    """The fitted estimator that ``estimator.save(path)`` wrote.

    Nothing in the file is executed. Its digest finds every accident, but it has no key: a certificate in
    a file from an unknown source is a claim, which ``antiphon audit`` can check.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
        >>> model = PrivateKANClassifier(bounds=(-1, 1), steps=10, random_state=0).fit(X, X[:, 0] > 0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.safetensors")
        ...     again = load(f"{folder}/model.safetensors")
        >>> bool((again.predict_proba(X) == model.predict_proba(X)).all()), again.random_state
        (True, None)
    """
    tensors, meta = read_export(path)
    kind = meta.get("estimator")
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise StateError(
            f"{os.fspath(path)} holds no estimator that this version knows: it was exported by something "
            "else, or by a newer version. training.read_export reads its tensors."
        )
    try:
        return _restored(_CLASSES[kind], tensors, meta)
    except (AntiphonError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise StateError(
            f"{os.fspath(path)} is undamaged, but not a {kind} that this version can read "
            f"({type(error).__name__}): another version or another program wrote it."
        ) from error


def _restored(
    kind: type[AbstractPrivateEstimator], tensors: dict[str, Any], meta: dict[str, Any]
) -> AbstractPrivateEstimator:
    estimator: Any = kind(**{k: from_json(v) for k, v in meta["parameters"].items()})
    estimator.schema_ = schema_from_json(meta["schema"])
    estimator.target_ = target_from_json(meta["target"])
    estimator.certificate_ = Certificate.from_json(json.dumps(meta["certificate"]))
    estimator.plan_ = estimator.certificate_.plan
    estimator.n_iter_ = estimator.plan_.steps
    estimator.learning_rate_ = float(meta["learning_rate"])
    estimator.n_features_in_ = len(estimator.schema_.columns)
    if meta["has_names"]:
        estimator.feature_names_in_ = np.array(estimator.schema_.names, dtype=object)
    model = estimator._network(estimator.schema_, estimator.target_.outputs).double()
    model.load_state_dict(tensors)
    estimator.model_ = model.eval().requires_grad_(False)
    return estimator
