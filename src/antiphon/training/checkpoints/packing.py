"""Nested states (of optimizers, schedulers, ...) as named tensors and JSON, and back. No pickle."""

from typing import Any

import torch
from torch import Tensor

from antiphon.errors import StateError

__all__ = ["pack", "unpack"]

_TENSOR, _PAIRS, _TUPLE = "$tensor", "$pairs", "$tuple"


def pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """``value`` as JSON; its tensors go to ``tensors`` under names that start with ``name``."""
    match value:
        case Tensor():
            tensors[name] = value.detach()
            return {_TENSOR: name}
        case None | bool() | int() | float() | str():
            return value
        case dict():
            pairs = enumerate(value.items())
            return {_PAIRS: [[pack(k, f"{name}.{i}k", tensors), pack(v, f"{name}.{i}", tensors)]
                             for i, (k, v) in pairs]}  # fmt: skip
        case list():
            return [pack(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
        case tuple():
            return {_TUPLE: [pack(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]}
        case torch.dtype():
            raise StateError(f"{name} holds {value}, which a checkpoint cannot keep.")
    if hasattr(value, "items"):  # an OrderedDict's kin
        return pack(dict(value.items()), name, tensors)
    raise StateError(
        f"{name} holds a {type(value).__name__}, which a checkpoint without pickle cannot keep. It keeps "
        "tensors, numbers, texts, lists, tuples and dictionaries of them."
    )


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What `pack` was given."""
    match value:
        case {"$tensor": name}:
            return tensors[name]
        case {"$pairs": pairs}:
            return {unpack(k, tensors): unpack(v, tensors) for k, v in pairs}
        case {"$tuple": items}:
            return tuple(unpack(v, tensors) for v in items)
        case list():
            return [unpack(v, tensors) for v in value]
    return value
