"""The tensors that a loop handles: of each it is known which rows are whose, or that this is not known.

A tensor of the loader, or a result of the model, is shown to the loop as a copy. The rows of every example
are kept apart from it, where the loop cannot write to them. What follows from it by an operation on a
closed list has rows again; what follows by any other operation is a plain value: it may be printed, and is
refused where rows are needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import get_default_nowrap_functions
from torch.utils._pytree import tree_leaves, tree_map

from antiphon.errors import UnsupportedError

if TYPE_CHECKING:
    from antiphon.integrations.opacus.batch import Batch

__all__ = ["REMEDY", "Loss", "Rows", "closed_to_loops", "handled", "plain", "unknown"]

REMEDY = (
    "Give make_private criterion=, which is called for every example by itself, or use ap.make_private, "
    "whose loss may be any function of one example."
)
Handler = Callable[..., Any]
_HANDLERS: dict[Any, Handler] = {}
_is_closed = False


def handled(*functions: Any) -> Callable[[Handler], Handler]:
    """Let a handler answer calls of these functions with `Rows` among the arguments.

    It is given the function, its arguments and its named arguments. It returns ``NotImplemented``, or the
    reason as a text, for what is not to have rows.
    """

    def add(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(functions, handler))
        return handler

    return add


class Rows(Tensor):
    """A tensor that was computed from a batch.

    Attributes:
        batch: Where its rows are kept.
        place: Their number there; -1 if nothing is known of its rows.
        version: Of the tensor when it was handed out.
        why: What it was computed by, if nothing is known.
    """

    batch: "Batch | None" = None
    place = -1
    version = -1
    why = ""

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer a call that has such a tensor among its arguments."""
        named = dict(kwargs or {})
        if _is_closed:
            raise UnsupportedError(
                "a tensor of the whole batch, or one computed from it, is read within the model or the "
                "criterion without having been given as an argument. Each example would see the others. "
                "Give it as an argument."
            )
        handler = _HANDLERS.get(func)
        why = NotImplemented if handler is None else handler(func, args, named)
        if why is not NotImplemented and not isinstance(why, str):
            return why
        others = {id(t): (t, t._version) for t in tree_leaves((args, named)) if _is_other(t)}
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **named)
        if func in get_default_nowrap_functions():
            return out
        text = why if isinstance(why, str) else getattr(func, "__name__", str(func))
        for tensor, version in others.values():
            if tensor._version != version:
                _mark(tensor, text)
        return tree_map(lambda thing: _unknown(thing, text), out)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are plain tensors."""
        return plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        """As `__reduce_ex__`."""
        return plain(self).clone()


class Loss(Rows):
    """The mean or the sum of the losses of a batch's examples.

    Attributes:
        parts: Numbers of the losses that it is the sum of.
        is_mean: Whether it is a mean over the examples.
    """

    parts: frozenset[int] = frozenset()
    is_mean = True


def plain(thing: Any) -> Any:
    """The same tensor without any knowledge of rows; other things as they are."""
    if not isinstance(thing, Rows):
        return thing
    with torch._C.DisableTorchFunctionSubclass():
        return thing.as_subclass(Tensor)


def unknown(tensor: Tensor) -> str | None:
    """Why the rows of a tensor are not known; None if they are."""
    if not isinstance(tensor, Rows):
        return "is neither the loader's own nor a result of the model"
    if tensor.batch is None or tensor.place < 0:
        return f"was computed by {tensor.why or 'an operation'} from tensors of a batch"
    if not tensor.batch.is_open:
        return "belongs to a batch that has had its step"
    with torch._C.DisableTorchFunctionSubclass():
        is_same = tensor._version == tensor.version
    return None if is_same else "was changed in place"


@contextmanager
def closed_to_loops() -> Iterator[None]:
    """Within, tensors that a loop handles cannot be read: model and criterion get rows instead."""
    global _is_closed
    before, _is_closed = _is_closed, True
    try:
        yield
    finally:
        _is_closed = before


def _is_other(thing: Any) -> bool:
    is_other = isinstance(thing, Tensor) and not isinstance(thing, Rows)
    return is_other and not thing.is_inference()  # which has no version


def _mark(tensor: Tensor, why: str) -> None:
    """Remember that numbers of a batch were written to a tensor, such as a buffer of the model."""
    for thing in (tensor, tensor._base):
        if type(thing) is Tensor:
            thing.__class__ = Rows
            thing.why = why  # type: ignore[attr-defined]
        elif isinstance(thing, nn.Parameter):
            raise UnsupportedError(
                f"numbers of a batch are written to a parameter, by {why}: it would change without noise."
            )


def _unknown(thing: Any, why: str) -> Any:
    if not isinstance(thing, Tensor) or isinstance(thing, Rows):
        return thing
    found = thing.as_subclass(Rows)
    found.why = why
    return found


@handled(Tensor.backward)
def _backward(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    loss, names = args[0], ("gradient", "retain_graph", "create_graph", "inputs")
    given = dict(zip(names, args[1:], strict=False)) | dict(kwargs)
    for name in ("gradient", "create_graph", "inputs"):
        if given.get(name) not in (None, False):
            raise UnsupportedError(
                f"backward({name}=...) has no private counterpart. Leave it out."
            )
    if not isinstance(loss, Loss) or loss.batch is None:
        by = f" (it was computed by {loss.why})" if loss.why else ""
        raise UnsupportedError(
            "the loss is not one of torch's losses of the model's output and the loader's tensors, with "
            f"mean or sum and without weights{by}: it is not known what each example contributes. {REMEDY}"
        )
    loss.batch.backward(loss)


@handled(Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__, torch.add)
def _add(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The sum of two losses is a loss."""
    if kwargs or len(args) != 2:
        return NotImplemented
    one, other = args
    for zero, loss in ((one, other), (other, one)):
        if isinstance(loss, Loss) and type(zero) in (int, float) and zero == 0:
            return loss
    if not isinstance(one, Loss) or not isinstance(other, Loss):
        return NotImplemented
    if one.batch is None or one.batch is not other.batch:
        return "a sum of losses of different batches"
    return one.batch.sum_of(one, other)
