"""The functions that a model has learned, as points in the columns' own units."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from antiphon.models import Edges, Levels
from antiphon.reports.plain import rounded
from antiphon.tables.estimators import AbstractPrivateEstimator

__all__ = ["Pictured", "functions_of"]

_MOST = 48
_EVERY = 2  # of the points of a curve

_Outputs = tuple[
    list[str], str | None, float
]  # their names, what they count, the factor to that unit


@runtime_checkable
class Pictured(Protocol):
    """A model that can show what it has learned, such as `antiphon.models.TableKAN`."""

    def functions(
        self, names: Sequence[str] | None, *, bounds: Mapping[str, tuple[float, float]] | None
    ) -> Sequence[Edges | Levels]:
        """The learned functions, from the inputs on; a title with "Effect" is a part of a sum."""
        ...


def functions_of(estimator: AbstractPrivateEstimator, target: Mapping[str, Any]) -> dict[str, Any]:
    """The learned functions, in groups: curves of numbers, levels of categories.

    ``is_sum`` says whether the model is the sum of all of them. Each of the ``groups`` has a ``title``, a
    ``kind`` ("curves" or "levels"), the ``unit`` and names of its ``outputs``, how many functions there
    are in ``total``, and ``items``, the largest effects first, at most 48 together.

    Args:
        estimator: After `fit`. There are no groups if its model has no pictures.
        target: What is predicted, as in a report.
    """
    model = estimator.model_
    if not isinstance(model, Pictured):
        return {"is_sum": False, "groups": []}
    schema = estimator.schema_
    bounds = {c.name: c.bounds for c in schema.columns if c.kind == "number"}
    layers = model.functions(schema.feature_names, bounds=bounds)
    is_sum = all(layer.title.startswith("Effect") for layer in layers)
    most = max(1, _MOST // max(1, len(layers)))
    groups = [
        _group(layer, _outputs(layer, target), is_sum, most)
        if is_sum or layer is layers[-1]
        else _group(layer, _hidden(layer), False, most)
        for layer in layers
    ]
    return {"is_sum": is_sum, "groups": groups}


def _group(layer: Edges | Levels, outputs: _Outputs, is_sum: bool, most: int) -> dict[str, Any]:
    names, unit, scale = outputs
    facts = {"title": layer.title, "unit": unit, "outputs": names, "total": len(layer.inputs)}
    if isinstance(layer, Levels):
        return facts | {"kind": "levels", "items": _levels(layer, scale, most)}
    if is_sum:
        return facts | {"kind": "curves", "items": _columns(layer, scale, most)}
    alone = {"kind": "curves", "outputs": [""], "total": len(layer.inputs) * len(names)}
    return facts | alone | {"items": _edges(layer, names, scale, most)}


def _hidden(layer: Edges | Levels) -> _Outputs:
    """Units of a hidden layer, which count nothing that has a name."""
    return [f"u{place + 1}" for place in range(len(layer.outputs))], None, 1.0


def _outputs(layer: Edges | Levels, target: Mapping[str, Any]) -> _Outputs:
    """What is predicted."""
    classes = target["classes"]
    if classes is None:
        low, high = target["bounds"] or (-1.0, 1.0)
        return [target["name"]], target["name"], (high - low) / 2
    if len(layer.outputs) == 1:
        name = f"{target['name']} = {classes[-1]}"
        return [name], f"log-odds of {name}", 1.0
    return [f"{target['name']} = {label}" for label in classes], "score of a class", 1.0


def _columns(layer: Edges, scale: float, most: int) -> list[dict[str, Any]]:
    """One item per input with the curves of all outputs."""
    order = list(dict.fromkeys(place for _, place in layer.ranked()))[:most]
    return [_item(layer, place, layer.inputs[place], slice(None), scale) for place in order]


def _edges(layer: Edges, names: list[str], scale: float, most: int) -> list[dict[str, Any]]:
    """One item per edge."""
    return [
        _item(layer, place, f"{layer.inputs[place]} → {names[out]}", slice(out, out + 1), scale)
        for out, place in layer.ranked()[:most]
    ]


def _item(layer: Edges, place: int, name: str, outputs: slice, scale: float) -> dict[str, Any]:
    curves = scale * layer.curves[outputs, place, ::_EVERY]
    points = layer.points(place)[::_EVERY]
    return {"name": name, "x": rounded(points), "y": [rounded(curve) for curve in curves]}


def _levels(layer: Levels, scale: float, most: int) -> list[dict[str, Any]]:
    order = np.argsort(-np.abs(layer.values).max(axis=0), kind="stable")[:most]
    return [
        {"name": layer.inputs[place], "y": rounded(scale * layer.values[:, place])}
        for place in order.tolist()
    ]
