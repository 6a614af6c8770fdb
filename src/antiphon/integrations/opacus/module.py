"""The model that comes back: the user's own, but for what a call of it does within a private step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from antiphon.integrations.opacus.batch import Batch
from antiphon.integrations.opacus.loader_rows import plain

__all__ = ["private_module"]


def _itself(module: nn.Module) -> nn.Module:
    return module


def private_module(module: nn.Module, at_hand: Callable[[], Batch | None]) -> Any:
    """A module that shares everything with the given one, its class's methods included.

    In training mode, with gradients on and a batch of the loader at hand, a call is computed for every
    example by itself. Otherwise it is a call of the module.

    Args:
        module: The user's.
        at_hand: The batch that was handed out and has had no step yet.
    """
    kind: Any = type(module)
    call = kind.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        batch = at_hand()
        is_same = self.__dict__ is module.__dict__  # a copy of it is a model of its own
        if batch is None or not is_same or not module.training or not torch.is_grad_enabled():
            args, kwargs = tree_map(plain, (args, kwargs))
            return call(module if is_same else self, *args, **kwargs)
        return batch.evaluate("the model", module, args, kwargs)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return _itself, (module,)

    members = {
        "__call__": __call__,
        "__reduce_ex__": __reduce_ex__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    wrapper: Any = object.__new__(type(kind.__name__, (kind,), members))
    object.__setattr__(wrapper, "__dict__", module.__dict__)
    return wrapper
