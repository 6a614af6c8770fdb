"""JSON values, and nothing else: what a report is made of."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["plain", "rounded"]


def plain(value: Any) -> Any:
    """The value as JSON types; what is not finite becomes None, as JSON has no name for it.

    Example:
        >>> plain({"a": (1, np.float64(0.5)), "b": float("nan"), 3: None})
        {'a': [1, 0.5], 'b': None, '3': None}
    """
    match value:
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case list() | tuple():
            return [plain(inner) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


def rounded(values: Any) -> list[float]:
    """Six digits of each number: enough for a picture."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=float)]
