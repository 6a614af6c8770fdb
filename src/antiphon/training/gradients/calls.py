"""Calls of torch that do not keep examples apart under ``torch.func.vmap``, or that draw random numbers.

Vmap has a rule for nearly every operation of torch. In torch 2.13 these few are wrong, or see the whole
batch: all functions that ``torch.testing`` knows were tried, by changing one example and comparing the
others bit by bit. They are refused, or answered in another way.
"""

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from antiphon.errors import UnsupportedError

if TYPE_CHECKING:
    from antiphon.training.gradients.taps import Taps

__all__ = ["CALLS", "DRAWING", "Guard", "check_call", "is_opaque", "own_rule", "wrong"]

_OPERATIONS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_TRUSTED = ("aten", "prim", "prims", "torchvision", "antiphon")  # namespaces of operations
_OURS = ("torch", "antiphon")  # modules of functions that modes may see as one call
_WRONG_METHODS = ("addbmm_", "as_strided_", "index_fill", "resize", "resize_", "resize_as", "resize_as_",
                  "set_", "untyped_storage")  # fmt: skip
_WRONG_FUNCTIONS = ("as_strided_", "index_fill", "quantize_per_tensor", "quantize_per_tensor_dynamic",
                    "triangular_solve")  # fmt: skip
_ANSWERED = ("_is_all_true", "_is_any_true", "embedding", "prod", "roll")
_LINEAR = ("_linalg_solve_ex", "linalg_lstsq", "linalg_solve", "linalg_solve_ex")
_DRAWN = (
    "bernoulli", "binomial", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
    "multinomial", "native_dropout", "normal", "poisson", "rand", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "randperm", "rrelu", "_sample_dirichlet", "_standard_gamma",
)  # fmt: skip
_DRAWN_IN_PLACE = (
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial",
    "normal_", "random_", "uniform_",
)  # fmt: skip
_DRAWN_BY_LAYERS = (
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
    "fractional_max_pool2d", "fractional_max_pool3d", "gumbel_softmax", "rrelu",
)  # fmt: skip

DRAWING: set[Any] = {
    *(getattr(torch, name) for name in _DRAWN),
    *(getattr(Tensor, name) for name in _DRAWN_IN_PLACE),
    *(getattr(F, name) for name in _DRAWN_BY_LAYERS),
}
"""Functions that draw. A ``generator`` among a call's arguments says it of others."""


_refused: set[Any] = {
    *(getattr(Tensor, name) for name in _WRONG_METHODS),
    *(getattr(torch, name) for name in _WRONG_FUNCTIONS),
    torch.linalg.lstsq,
    torch.linalg.solve_ex,
}
_refused_names = {
    f"aten::{name}" for name in (*_WRONG_METHODS, *_WRONG_FUNCTIONS, *_ANSWERED, *_LINEAR)
}
_checked: set[Any] = set()  # functions that keep examples apart
_kinds: set[type] = {Tensor, torch.nn.Parameter, torch.nn.Buffer}  # tensors that do


def check_call(func: Any) -> None:
    """Raise if vmap does not keep examples apart in a function or an operation of torch."""
    if func in _checked:
        return
    if isinstance(func, _OPERATIONS):
        _check_operation(func)
        return
    if func in _refused:
        raise wrong(func.__name__)
    module = getattr(func, "__module__", None) or ""
    if type(func) is FunctionType and module.partition(".")[0] not in _OURS:
        raise UnsupportedError(
            f"{func.__qualname__} hides what it calls, by torch.overrides.handle_torch_function. Call what "
            "it is made of, without that."
        )
    _checked.add(func)


def is_opaque(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call draws random numbers, or hides what it calls.

    Raises:
        UnsupportedError: if a tensor has operations of its own, which are given all examples at once.
    """
    if func in DRAWING or "generator" in kwargs:
        return True
    if any(isinstance(thing, Tensor) and _has_functions(thing) for thing in args):
        return True
    return type(func) is FunctionType and any(map(callable, (*args, *kwargs.values())))


def _has_functions(tensor: Tensor) -> bool:
    """Whether a tensor's class has functions of its own."""
    kind = type(tensor)
    if kind in _kinds:
        return False
    if kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        raise UnsupportedError(
            f"{kind.__name__} is a class of tensors with a __torch_dispatch__ of its own, which sees all "
            "examples of a batch at once."
        )
    return kind.__torch_function__ != Tensor.__torch_function__


def own_rule(name: str) -> UnsupportedError:
    """The error for a batching rule that a user wrote."""
    return UnsupportedError(
        f"{name} has a batching rule of its own (a vmap staticmethod, or register_vmap), which may mix "
        "examples. Use generate_vmap_rule = True, or plain torch operations."
    )


def _check_operation(func: Any) -> None:
    """Also of operations that are registered later, so nothing is remembered."""
    name = func._qualified_op_name if hasattr(func, "_qualified_op_name") else func.name()
    name = name.partition(".")[0]
    if name in _refused_names:
        raise wrong(name)
    if name.partition("::")[0] in _TRUSTED:
        return
    overloads = [func] if isinstance(func, torch._ops.OpOverload) else _overloads(func)
    for overload in overloads:
        if torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "FuncTorchBatched"):
            raise own_rule(overload.name())
    # Torch would call it for one example after another, within one evaluation.
    raise UnsupportedError(f"{name} does not have a batching rule.")


def _is_of_torch(func: Any) -> bool:
    return isinstance(func, torch._ops.OpOverload) and func.namespace in ("aten", "prim", "prims")


def _overloads(packet: Any) -> list[Any]:
    return [getattr(packet, name) for name in packet.overloads()]


def wrong(name: str) -> UnsupportedError:
    """The error for a call that torch answers wrongly."""
    return UnsupportedError(
        f"{name} does not keep examples apart under torch.func.vmap, or does so in one form only. Use "
        "another function of torch, or write it out by indices, torch.where and sums."
    )


def _all(taps: "Taps", tensor: Tensor) -> Tensor:
    """Torch answers for all examples at once."""
    return tensor.all()


def _any(taps: "Taps", tensor: Tensor) -> Tensor:
    return tensor.any()


def _roll(taps: "Taps", tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Torch rolls a number along the axis of the examples."""
    return NotImplemented if tensor.ndim else tensor.clone()


def _prod(
    taps: "Taps",
    tensor: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Torch's backward pass asks whether any example has a zero."""
    if taps.is_trained(tensor):
        tensor = taps.tapped(tensor)  # type: ignore[arg-type]
    if not tensor.is_floating_point() or not functorch.is_functorch_wrapped_tensor(tensor):
        return NotImplemented
    along = 0 if dim is None else dim
    parts = tensor.reshape(-1) if dim is None else tensor
    if not parts.ndim or not parts.shape[along]:
        return NotImplemented
    found = torch.cumprod(parts, along, dtype=dtype).select(along, -1)
    return found.unsqueeze(along) if keepdim and dim is not None else found


def _embedding(
    taps: "Taps",
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *options: Any,
    **named: Any,
) -> Any:
    """Torch reads, or pads, lines of another example's table if each has a table of its own."""
    if taps.is_trained(weight) and taps.is_plain(input):
        return NotImplemented  # one table, for which there is a rule
    table = taps.tapped(weight) if taps.is_trained(weight) else weight  # type: ignore[arg-type]
    if max_norm is not None or not functorch.is_functorch_wrapped_tensor(table):
        return NotImplemented
    lines = table[input]
    if padding_idx is None:
        return lines
    is_padding = input == padding_idx % len(table)
    return torch.where(is_padding[..., None], lines.detach(), lines)


def _solve(taps: "Taps", A: Tensor, B: Tensor, *, left: bool = True, out: None = None) -> Tensor:
    """Torch takes the axis of the examples for one of an example's own, if those of A and B differ."""
    a, b = (taps.tapped(t) if taps.is_trained(t) else t for t in (A, B))  # type: ignore[arg-type]
    if out is not None or not taps.is_plain(a, b):
        raise wrong("torch.linalg.solve")
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    b = b.unsqueeze(-1) if is_vector else b
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    a, b = (t.expand(*lead, *t.shape[-2:]) for t in (a, b))
    if taps.rows(a) is not None or taps.rows(b) is not None:
        a, b = (t if taps.rows(t) is not None else taps.repeated(t) for t in (a, b))
    found: Tensor = torch.linalg.solve(a, b, left=left)
    return found.squeeze(-1) if is_vector else found


def _copied(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give away a copy: what is written to the memory of a tensor by others moves no version."""

    def copied(taps: "Taps", tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if functorch.is_functorch_wrapped_tensor(tensor) or tensor.requires_grad:
            return NotImplemented
        return function(tensor.clone(), *args, **kwargs)

    return copied


def _text(taps: "Taps", tensor: Tensor, **options: Any) -> Any:
    """Torch shows all examples."""
    if not functorch.is_functorch_wrapped_tensor(tensor):
        return NotImplemented
    return f"<a tensor of one example, of shape {tuple(tensor.shape)}>"


CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch._is_all_true: _all,
    torch._is_any_true: _any,
    torch.roll: _roll,
    Tensor.roll: _roll,
    torch.prod: _prod,
    Tensor.prod: _prod,
    F.embedding: _embedding,
    torch.linalg.solve: _solve,
    **{f: _copied(f) for f in (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)},
    Tensor.__repr__: _text,
}
"""What is answered in another way; ``NotImplemented`` where torch is right."""


@final
class Guard(TorchFunctionMode):
    """Checks what is called where `Taps` does not see it: in autograd functions of users."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Pass on what keeps examples apart; an operation of torch itself is one below vmap."""
        if not _is_of_torch(func):
            check_call(func)
        if func in CALLS:
            raise wrong(func.__name__)
        return func(*args, **(kwargs or {}))
