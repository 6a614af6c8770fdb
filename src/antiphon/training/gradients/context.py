"""The settings under which a loss is evaluated, for one example or for many under ``torch.func.vmap``.

Under vmap every tensor says ``requires_grad=False``, so libraries take paths that are for inference, or
that look at values. This module holds all that is changed about torch meanwhile, and what is refused there
because vmap does not keep examples apart in it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch._C import _functorch as functorch
from torch._C._functorch import TransformType
from torch._functorch.autograd_function import custom_function_call, has_overridden_vmap_rule
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.distributions import Distribution
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch as python_dispatch
from torch.utils import checkpoint
from torch.utils._device import DeviceContext

from antiphon.errors import UnsupportedError
from antiphon.models import FUNCTIONS
from antiphon.training.gradients.calls import Guard, own_rule
from antiphon.training.gradients.record_draws import RecordDraws
from antiphon.training.gradients.transformers_masks import unread_masks

__all__ = ["Seen", "evaluation"]

_lock = threading.RLock()
_OURS = (RecordDraws, DeviceContext)
_MODE = (
    "a mode with a __torch_dispatch__, or a __torch_function__ around training, sees all examples of a "
    "batch at once. Leave it out of the model, the loss, and what surrounds training."
)
_HOOKS = (
    "Hooks on saved tensors (torch.autograd.graph.saved_tensors_hooks, save_on_cpu) see all examples of a "
    "batch at once. Leave them out of the model and the loss."
)


@final
@dataclass
class Seen:
    """What was seen in an evaluation.

    Attributes:
        a_function: Whether an autograd function of a user was called, which hides what it calls.
    """

    a_function: bool = False


@contextmanager
def evaluation() -> Iterator[Seen]:
    """Within, a loss may be evaluated under ``torch.func.vmap``, with gradients on.

    Guarantee:
        Whatever keeps vmap from computing each example by itself raises `UnsupportedError`, or a
        ``RuntimeError`` of torch: batching rules that users wrote, hooks on saved tensors, modes below, and
        functions that unwrap a batched tensor.
    """
    seen = Seen()
    with _lock, ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_no_other_modes())
        stack.enter_context(_set(torch._C, "DisableTorchFunction", _refuse_hiding))
        stack.enter_context(_set(torch.func, "debug_unwrap", _refuse_unwrapping))
        stack.enter_context(_set(Distribution, "_validate_args", False))  # reads values
        stack.enter_context(_set(torch.backends.mha, "_is_fastpath_enabled", False))
        stack.enter_context(disable_saved_tensors_hooks(_HOOKS))
        # A checkpoint cannot compute again what vmap computed, so it keeps what it would have dropped.
        stack.enter_context(_set(checkpoint, "_checkpoint_without_reentrant_generator", _nothing))
        stack.enter_context(_set(checkpoint, "CheckpointFunction", _PlainCheckpoint))
        stack.enter_context(unread_masks())
        stack.enter_context(_no_fallback_warnings())
        rules = custom_function_call.functorch_table
        stack.enter_context(
            _entry(rules, TransformType.Vmap, _checked(rules[TransformType.Vmap], seen))
        )
        yield seen


def _checked(apply: Callable[..., Any], seen: Seen) -> Callable[..., Any]:
    """The batching of autograd functions, without rules that users wrote."""

    def batched(interpreter: Any, function: Any, *operands: Any, **options: Any) -> Any:
        if has_overridden_vmap_rule(function) and function not in FUNCTIONS:
            raise own_rule(function.__name__)
        if function in FUNCTIONS:
            return apply(interpreter, function, *operands, **options)
        seen.a_function = True
        with Guard():
            return apply(interpreter, function, *operands, **options)

    return batched


@contextmanager
def _no_other_modes() -> Iterator[None]:
    """Refuse modes below vmap but our own: they are given all examples at once."""
    modes = python_dispatch._get_current_dispatch_mode_stack()
    above = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    if not all(isinstance(mode, _OURS) for mode in (*modes, *above)):
        raise UnsupportedError(_MODE)
    push = python_dispatch._push_mode

    def checked(mode: Any) -> None:
        if not isinstance(mode, RecordDraws):
            raise UnsupportedError(_MODE)
        push(mode)

    with _set(python_dispatch, "_push_mode", checked):
        yield


def _refuse_hiding() -> Any:
    raise UnsupportedError("torch._C.DisableTorchFunction hides what the loss calls. Leave it out.")


def _refuse_unwrapping(tensor: Any, *, recurse: bool = True) -> Any:
    raise UnsupportedError(
        "torch.func.debug_unwrap shows all examples of a batch. Ask the tensor itself."
    )


def _nothing(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


class _PlainCheckpoint:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Call the function: what it computes is kept."""
        return function(*args)


@contextmanager
def _no_fallback_warnings() -> Iterator[None]:
    """Spare the user torch's remark that an operation is slow under vmap; torch's default afterwards."""
    enable: Any = functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    enable(False)
    try:
        yield
    finally:
        enable(True)


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _entry(table: dict[Any, Any], key: Any, value: Any) -> Iterator[None]:
    before = table[key]
    table[key] = value
    try:
        yield
    finally:
        table[key] = before
