"""Parameters, schemas and targets as JSON, and back: what a file without pickle keeps of an estimator."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import StateError
from antiphon.mechanisms import AbstractMechanism
from antiphon.mechanisms import from_dict as mechanism_from_dict
from antiphon.plans import AbstractSampling, sampling_from_dict
from antiphon.tables.data import Column, Schema
from antiphon.tables.estimators.targets import AbstractTarget, Classes, Interval

__all__ = ["from_json", "schema_from_json", "target_from_json", "to_json"]

_ARRAY, _PAIRS, _TUPLE = "$array", "$pairs", "$tuple"
_SCHEMA, _MECHANISM, _SAMPLING = "$schema", "$mechanism", "$sampling"
_CLASSES, _INTERVAL = "$classes", "$interval"
_KINDS = "biufUO"  # of arrays: truth values, numbers, texts, and objects that are such


def to_json(name: str, value: Any) -> Any:
    """``value`` as JSON types that `from_json` turns back; ``name`` says in an error what it is.

    Lists and other iterables come back as tuples, data frames' columns as arrays.

    Example:
        >>> to_json("hidden", (16, 8))
        {'$tuple': [16, 8]}
        >>> from_json(to_json("bounds", {"age": (0, 100)}))
        {'age': (0, 100)}
    """
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case np.generic():
            return to_json(name, value.item())
        case Schema():
            return {_SCHEMA: _schema(value)}
        case AbstractMechanism():
            return {_MECHANISM: value.to_dict()}
        case AbstractSampling():
            return {_SAMPLING: value.to_dict()}
        case Classes():
            return {_CLASSES: [_array(name, value.labels), value.is_declared]}
        case Interval():
            return {_INTERVAL: [value.low, value.high]}
        case Mapping():
            return {_PAIRS: [[to_json(name, k), to_json(name, v)] for k, v in value.items()]}
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return {_ARRAY: _array(name, np.asarray(value))}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return {_TUPLE: [to_json(name, inner) for inner in value]}
    raise StateError(
        f"{name} holds a {type(value).__name__}, which a file without pickle cannot keep. It keeps "
        "numbers, texts, lists, arrays, mappings, schemas, mechanisms and samplings."
    )


def from_json(value: Any) -> Any:
    """What `to_json` was given."""
    match value:
        case {"$array": array}:
            return _from_array(array)
        case {"$pairs": pairs}:
            return {from_json(k): from_json(v) for k, v in pairs}
        case {"$tuple": items}:
            return tuple(from_json(item) for item in items)
        case {"$schema": schema}:
            return schema_from_json({_SCHEMA: schema})
        case {"$mechanism": mechanism}:
            return mechanism_from_dict(mechanism)
        case {"$sampling": sampling}:
            return sampling_from_dict(sampling)
        case dict():
            raise StateError(f"nothing known is written as {sorted(value)}.")
    return value


def schema_from_json(value: Any) -> Schema:
    """The schema that `to_json` was given."""
    values = dict(value[_SCHEMA])
    return Schema(tuple(Column(*column) for column in values.pop("columns")), **values)


def target_from_json(value: Any) -> AbstractTarget:
    """The target that `to_json` was given."""
    match value:
        case {"$classes": [array, bool(is_declared)]}:
            return Classes(_from_array(array), is_declared)
        case {"$interval": [low, high]}:
            return Interval(float(low), float(high))
    raise StateError("the target is neither a list of classes nor an interval.")


def _schema(schema: Schema) -> dict[str, Any]:
    columns = [[c.name, c.bounds, c.categories] for c in schema.columns]
    return {"columns": columns, "missing": schema.missing, "outside": schema.outside}


def _array(name: str, array: NDArray[Any]) -> list[Any]:
    """The array's dtype, and its values with the types that they have."""
    values = array.tolist()
    plain = all(isinstance(v, str | int | float) for v in np.ravel(array).tolist())
    if array.dtype.kind not in _KINDS or not plain:
        raise StateError(
            f"{name} holds an array of {array.dtype}, of which a file without pickle keeps truth values, "
            "numbers and texts only."
        )
    return [array.dtype.str, values]


def _from_array(array: Any) -> NDArray[Any]:
    dtype, values = array
    if np.dtype(dtype).kind not in _KINDS:
        raise StateError(f"an array of {dtype} is none that an estimator has.")
    return np.array(values, dtype=dtype)
