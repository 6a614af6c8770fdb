"""Compiled loops: machine code that is kept on the disk where there is a place for it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit

__all__ = ["compiled"]


def compiled(kernel: Callable[..., Any], *signatures: str) -> Callable[..., Any]:
    """The kernel as machine code for the given signatures, which lets other threads run.

    Operations are those of IEEE 754, each rounded on its own: nothing is fused or reordered.
    """
    made = partial(njit, list(signatures), nogil=True, error_model="numpy")  # and not fastmath
    try:
        return made(cache=True)(kernel)
    except (OSError, RuntimeError):  # no place for the cache: compiled for this process alone
        return made()(kernel)
