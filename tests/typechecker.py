"""The run-time checker of types and shapes: beartype, with every int also a float (PEP 484)."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(thing: Callable[..., Any]) -> Callable[..., Any]:
    """Check calls, but of functions within others: those are made, and would be decorated, in each call."""
    return thing if "<locals>" in getattr(thing, "__qualname__", "") else _check(thing)
