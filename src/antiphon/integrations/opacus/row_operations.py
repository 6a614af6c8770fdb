"""Operations of which it is known what they do to the rows of every example: a closed list.

Rows are kept as (examples, places, ...), and shown as (examples × places, ...).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from antiphon.integrations.opacus.loader_rows import Rows, handled, unknown

__all__: list[str] = []


def _source(args: Sequence[Any]) -> Any:
    """The tensor that is operated on, if its rows are known and nothing else has rows."""
    found = args[0] if args else None
    is_only = not any(isinstance(thing, Tensor) for thing in args[1:])
    return found if isinstance(found, Rows) and unknown(found) is None and is_only else None


def _shown(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


@handled(
    Tensor.to, Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16, Tensor.long, Tensor.int,
    Tensor.bool, Tensor.type, Tensor.cpu, Tensor.cuda, Tensor.contiguous, Tensor.detach, Tensor.clone,
    torch.detach, torch.clone, torch.sigmoid, Tensor.sigmoid,
)  # fmt: skip
def _by_number(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What every number becomes depends on that number alone."""
    x = _source(args)
    if x is None:
        return NotImplemented
    shown = _shown(func, args, kwargs)
    if shown is x or not isinstance(shown, Tensor):
        return shown
    # An order in memory is for tensors of one number of axes, and changes no number.
    named = {name: value for name, value in kwargs.items() if name != "memory_format"}
    return x.batch.shown(func(x.batch.rows_of(x), *args[1:], **named), shown)


@handled(
    Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten, Tensor.unsqueeze,
    torch.unsqueeze, Tensor.squeeze, torch.squeeze,
)  # fmt: skip
def _by_shape(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Numbers keep their order, so those of an example stay together."""
    x = _source(args)
    if x is None:
        return NotImplemented
    if func in (Tensor.squeeze, torch.squeeze) and len(args) == 1 and not kwargs:
        args = (x, tuple(range(1, x.ndim)))  # a batch of one example is a batch
    shown, rows = _shown(func, args, kwargs), x.batch.rows_of(x)
    if not shown.ndim or shown.shape[0] % len(rows) or shown.dtype != rows.dtype:
        return NotImplemented
    places = shown.shape[0] // len(rows)
    return x.batch.shown(rows.reshape(len(rows), places, *shown.shape[1:]), shown)


@handled(Tensor.transpose, torch.transpose, Tensor.permute, torch.permute)
def _by_axes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The first axis stays where it is."""
    x = _source(args)
    if x is None or kwargs:
        return NotImplemented
    shown, rows = _shown(func, args, kwargs), x.batch.rows_of(x)
    axes = args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:]
    places = [axis % x.ndim for axis in axes]
    if func in (Tensor.permute, torch.permute):
        if places[0] != 0:
            return NotImplemented
        return x.batch.shown(rows.permute(0, *(axis + 1 for axis in places)), shown)
    if 0 in places:
        return NotImplemented
    return x.batch.shown(rows.transpose(places[0] + 1, places[1] + 1), shown)


@handled(
    F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, Tensor.softmax, Tensor.log_softmax
)
def _along(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Along an axis within a place."""
    x, named = _source(args), dict(zip(("dim",), args[1:], strict=False)) | dict(kwargs)
    axis = named.pop("dim", None)
    named.pop("_stacklevel", None)  # of a warning
    if x is None or named.pop("dtype", None) is not None or named or type(axis) is not int:
        return NotImplemented
    if len(args) > 2 or axis % x.ndim == 0:
        return NotImplemented
    shown = _shown(func, args, kwargs)
    return x.batch.shown(func(x.batch.rows_of(x), dim=axis % x.ndim + 1), shown)


@handled(Tensor.__getitem__)
def _selected(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Numbers, slices and new axes after the first axis."""
    x = _source(args)
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    kinds = (int, slice, type(None), type(Ellipsis))
    if x is None or not index or not all(type(part) in kinds for part in index):
        return NotImplemented
    first, rest = index[0], index[1:]
    if first is Ellipsis:
        if sum(part is not None for part in rest) >= x.ndim:
            return NotImplemented
        rows = x.batch.rows_of(x)[index]
    elif isinstance(first, slice) and first == slice(None):
        rows = x.batch.rows_of(x)[(slice(None), *index)]
    else:
        return NotImplemented
    return x.batch.shown(rows, _shown(func, args, kwargs))
