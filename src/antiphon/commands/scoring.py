"""How good a trained model is: on public records for nothing, on held-out private ones for a share of ε."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from antiphon.numerics import Generator
from antiphon.plans import GaussianRelease
from antiphon.releases import private_accuracy, private_mean

__all__ = ["COMMONEST", "WHAT", "on_held_out", "on_public", "scores"]

WHAT = {
    "classification": "the accuracy on held-out {unit}s (their number is public)",
    "regression": "the mean absolute error on held-out {unit}s (their number is public)",
}
COMMONEST = "share of the commonest class"
_BINS = 10
_CONFIDENCE = 0.95
_POINTS = 500  # drawn at most
_FLOOR = 1e-6  # of probabilities, in the log loss


def scores(estimator: Any, X: Any, y: NDArray[Any]) -> dict[str, float]:
    """Of public records: accuracy and log loss, or R² and errors."""
    if hasattr(estimator, "classes_"):
        return _classification(estimator.classes_, estimator.predict_proba(X), y)
    return _regression(estimator.predict(X), y)


def _classification(
    classes: NDArray[Any], probability: NDArray[np.float64], y: NDArray[Any]
) -> dict[str, float]:
    right = classes[probability.argmax(1)] == y
    bounded = np.clip(probability, _FLOOR, 1.0)
    bounded /= bounded.sum(1, keepdims=True)
    found = {
        "accuracy": float(right.mean()),
        "log loss": float(log_loss(y, bounded, labels=classes)),
    }
    if len(classes) == 2 and len(np.unique(y)) == 2:
        found["area under the ROC curve"] = float(roc_auc_score(y == classes[1], probability[:, 1]))
    commonest = np.unique(y, return_counts=True)[1].max() / len(y)
    return {**found, COMMONEST: float(commonest)}


def _regression(predicted: NDArray[np.float64], y: NDArray[Any]) -> dict[str, float]:
    error = predicted - y
    spread = float(np.square(y - y.mean()).sum())
    found = {"R²": 1 - float(np.square(error).sum()) / spread} if spread else {}
    return {
        **found,
        "mean absolute error": float(np.abs(error).mean()),
        "root mean squared error": float(np.sqrt(np.square(error).mean())),
    }


def on_public(estimator: Any, X: Any, y: NDArray[Any]) -> dict[str, Any]:
    """The scores, and what a calibration curve or a picture of predictions needs."""
    pairs: dict[str, Any]
    if hasattr(estimator, "classes_"):
        pairs = {"bins": _bins(estimator.classes_, estimator.predict_proba(X), y)}
    else:
        shown = np.linspace(0, len(y) - 1, min(len(y), _POINTS)).astype(int)
        pairs = {"points": np.stack([estimator.predict(X), y], axis=1)[shown].tolist()}
    return {"kind": "public", "rows": len(y), "metrics": scores(estimator, X, y), "pairs": pairs}


def _bins(
    classes: NDArray[Any], probability: NDArray[np.float64], y: NDArray[Any]
) -> list[list[float]]:
    """Mean predicted probability, observed share and count: of the second class, or of the answer."""
    if len(classes) == 2:
        p, happened = probability[:, 1], y == classes[1]
    else:
        p, happened = probability.max(1), classes[probability.argmax(1)] == y
    place = np.minimum((p * _BINS).astype(int), _BINS - 1)
    return [
        [float(p[place == b].mean()), float(happened[place == b].mean()), int((place == b).sum())]
        for b in np.unique(place)
    ]


def on_held_out(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    users: NDArray[Any] | None,
    event: GaussianRelease,
    generator: Generator,
) -> dict[str, Any]:
    """The noisy score that ``event`` pays for.

    Guarantee:
        Exactly μ-GDP for the μ of the event: one record changes the number of right answers by at most 1,
        or the sum of errors by at most the target's range. Where users are protected, each counts with the
        mean over their records, which is within the same bounds.
    """
    is_classifier = hasattr(estimator, "classes_")
    predicted = estimator.predict(X)
    values = predicted == y if is_classifier else np.abs(predicted - y)
    if users is not None:
        values = _by_user(values.astype(float), users)
    common: dict[str, Any] = {
        "mu": event.mu,
        "generator": generator,
        "what": event.what,
        "confidence": _CONFIDENCE,
    }
    score: Any
    if is_classifier and users is None:
        score = private_accuracy(values, **common)
    else:
        most = 1.0 if is_classifier else estimator.target_.high - estimator.target_.low
        score = private_mean(values, (0.0, most), **common)
    name = "accuracy" if is_classifier else "mean absolute error"
    return {
        "kind": "paid",
        "rows": len(values),  # units: how many records a user has is not released
        "metrics": {name: score.value},
        "interval": {name: list(score.interval), "confidence": _CONFIDENCE},
    }


def _by_user(values: NDArray[np.float64], users: NDArray[Any]) -> NDArray[np.float64]:
    _, place = np.unique(users.astype(str), return_inverse=True)
    return np.bincount(place, weights=values) / np.bincount(place)
