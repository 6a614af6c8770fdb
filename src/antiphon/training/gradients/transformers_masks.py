"""Models of Hugging Face's ``transformers`` under ``torch.func.vmap``.

They look at the values of a mask to find out whether it hides anything, which vmap cannot follow. Where
values cannot be read, because a graph is traced, they keep the mask: ``is_tracing(tensor)`` tells them.
Within `unread_masks` it is true of batched tensors too. Its code is exchanged rather than its name, since
dozens of modules import the function by name, some of them within an evaluation.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from torch._C._functorch import is_batchedtensor

__all__ = ["is_unreadable", "unread_masks"]

# What `is_tracing` does meanwhile, with the globals of its own module.
_CODE = (
    lambda *args, **kwargs: (
        __import__("sys")
        .modules["antiphon.training.gradients.transformers_masks"]
        .is_unreadable(*args, **kwargs)
    )
).__code__
_original: Callable[..., bool] = bool  # the function as its library wrote it, once it is known


@contextmanager
def unread_masks() -> Iterator[None]:
    """Within, ``transformers`` reads no values of batched tensors; does nothing if it is not imported.

    Guarantee:
        The answer for a tensor that is not batched stays as it is. A mask that hides nothing is kept
        rather than dropped, so results are the same up to rounding.
    """
    question = getattr(sys.modules.get("transformers.utils.import_utils"), "is_tracing", None)
    if (
        not isinstance(question, FunctionType)
        or question.__closure__ is not None  # another version
        or question.__code__ is _CODE  # within another evaluation
    ):
        yield
        return
    global _original
    before = question.__code__
    if _original is bool:
        _original = FunctionType(before, question.__globals__, "is_tracing", question.__defaults__)
    question.__code__ = _CODE
    try:
        yield
    finally:
        question.__code__ = before


def is_unreadable(*args: Any, **kwargs: Any) -> bool:
    """What ``is_tracing`` answers within `unread_masks`."""
    return any(map(is_batchedtensor, (*args, *kwargs.values()))) or _original(*args, **kwargs)
