"""Where the gradients of single examples are caught: taps on the calls that read trained parameters.

The loss is evaluated once under ``torch.func.vmap`` over the examples of a batch. Within `Taps`, a mode of
torch, every call that reads a trained parameter is seen, and is answered in one of two ways.

- An *output tap*: a call that has a rule (`antiphon.training.gradients.rules`: linear maps, convolutions,
  tables) is computed for all examples at once. What went in is kept, and the gradient of what came out is
  asked for later: from both follow the factors of every example's gradient.
- A *parameter tap*: any other call is given the parameter as a leaf with one row per example, which takes
  no memory. The gradient of that leaf is the gradient of every example.

The transposed of a matrix (`torch.Tensor.T`) stays a view of it, for which products have a rule too.
A parameter may be read in both ways, and any number of times: its gradients add up. A read that no mode
sees leads autograd to the parameter itself, and is found there, at every step: `TappedGradients.unseen`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd.graph import GradientEdge, _engine_run_backward, get_gradient_edge
from torch.overrides import TorchFunctionMode

from antiphon.errors import UnsupportedError
from antiphon.training.gradients import (
    attention,
    autocast,
    bags,
    calls,
    dot_products,
    losses,
    recurrent,
    required_gradients,
    rules,
)
from antiphon.training.gradients.abstract_factor import AbstractFactor
from antiphon.training.gradients.calls import Guard, check_call, is_opaque
from antiphon.training.gradients.factors import Dense

__all__ = ["Caught", "TappedGradients", "Taps"]

Factors = dict[nn.Parameter, AbstractFactor]
_REPLACEMENTS = attention.REPLACEMENTS | bags.REPLACEMENTS | recurrent.REPLACEMENTS
# Seen whether or not they read a parameter.
_CALLS = calls.CALLS | autocast.CALLS | dot_products.CALLS | losses.CALLS | required_gradients.CALLS

_GETTERS = (
    "_version", "data", "device", "dtype", "grad", "grad_fn", "is_cpu", "is_cuda", "is_leaf", "is_meta",
    "is_mps", "is_quantized", "is_sparse", "is_xpu", "itemsize", "layout", "nbytes", "ndim",
    "output_nr", "requires_grad", "shape",
)  # fmt: skip
_QUESTIONS = (
    "__hash__", "__len__", "__repr__", "data_ptr", "detach", "dim", "element_size", "get_device",
    "is_complex", "is_contiguous", "is_floating_point", "is_signed", "ndimension", "nelement", "numel",
    "size", "storage_offset", "stride",
)  # fmt: skip
# What these return does not lead to the parameter: the form of it, or a constant.
_READS_NOTHING: set[Any] = {
    *(getattr(Tensor, name).__get__ for name in _GETTERS),
    *(getattr(Tensor, name) for name in _QUESTIONS),
    torch.numel, torch.is_floating_point, torch.is_complex, torch.is_tensor, torch.detach,
}  # fmt: skip
# What these return may be the parameter itself.
_CONVERSIONS = {Tensor.to, Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16, Tensor.type_as,
                Tensor.contiguous, Tensor.cpu, Tensor.cuda, Tensor.type}  # fmt: skip
_DATA = Tensor.data.__get__  # type: ignore[attr-defined]
_TRANSPOSING = {*(getattr(Tensor, name).__get__ for name in ("T", "mT")), Tensor.t, torch.t}


@final
@dataclass(frozen=True, eq=False)
class Caught:
    """One call under an output tap.

    Attributes:
        target: Where the gradient of what came out arrives.
        inputs: What was kept of what went in, with their versions: who writes to it later changes it.
        factors: From that gradient to the factors of parameters.
        name: Of the function.
    """

    target: GradientEdge | Tensor
    inputs: tuple[tuple[Tensor, int], ...]
    factors: Callable[[Tensor], Factors]
    name: str

    def check_unchanged(self) -> None:
        """Raise if an input was written to since: the gradient would be that of other numbers."""
        if any(tensor._version != version for tensor, version in self.inputs):
            raise UnsupportedError(
                f"the input of {self.name} was changed in place after it had been used. Make the change on "
                "a copy (no inplace=True there)."
            )


@final
class Taps(TorchFunctionMode):
    """Sees the reads of trained parameters within one evaluation under ``vmap``.

    Args:
        parameters: Those that are trained.
        count: Number of examples.

    Attributes:
        caught: The calls under output taps.
        leaves: The parameter taps.
        is_opaque: Whether a call was seen that draws random numbers, or hides what it calls.
        error: An error of torch, if one was raised. A loss that catches it learns about other examples.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], count: int) -> None:
        super().__init__()
        self.count = count
        self.caught: list[Caught] = []
        self.leaves: dict[nn.Parameter, Tensor] = {}
        # Autograd leads from a call's output to these, never to the parameters.
        self._alias = {p: p.detach().requires_grad_() for p in parameters}
        self._wrapped: dict[nn.Parameter, Tensor] = {}
        # Views of parameters. Autograd leads from them to the parameters, if a call is not seen.
        self._transposed: dict[Tensor, nn.Parameter] = {}
        self._level = -1
        self.is_opaque = False
        self.error: str | None = None

    def begin(self) -> "Taps":
        """Call it within ``vmap``, and enter what it returns."""
        level = functorch.maybe_current_level()
        self._level = -1 if level is None else level
        return self

    def end(self) -> None:
        """Keep no batched tensor beyond the evaluation."""
        self._wrapped.clear()
        self._transposed.clear()

    def is_trained(self, thing: Any) -> bool:
        """Whether it is a parameter that is trained."""
        return isinstance(thing, nn.Parameter) and thing in self._alias

    def transposed(self, thing: Any) -> nn.Parameter | None:
        """The trained matrix of which it is the transposed, as `torch.Tensor.T` gives it."""
        return self._transposed.get(thing) if isinstance(thing, Tensor) else None

    def alias(self, parameter: nn.Parameter) -> Tensor:
        """The parameter's numbers as a leaf of their own."""
        return self._alias[parameter]

    def tapped(self, parameter: nn.Parameter) -> Tensor:
        """The parameter under its parameter tap: a batched tensor."""
        if parameter not in self._wrapped:
            # Another transform within the loss would wrap the leaf.
            with temporarily_clear_interpreter_stack():
                data = parameter.detach().expand(self.count, *parameter.shape)
                leaf = torch.Tensor._make_subclass(torch.Tensor, data, True)
            self.leaves[parameter] = leaf
            self._wrapped[parameter] = functorch._add_batch_dim(leaf, 0, self._level)
        return self._wrapped[parameter]

    def rows(self, tensor: Tensor) -> Tensor | None:
        """A batched tensor with its examples first; None for one that is equal for all examples."""
        if not functorch.is_batchedtensor(tensor):
            return None
        return functorch.get_unwrapped(tensor).movedim(functorch.maybe_get_bdim(tensor), 0)

    def batched(self, rows: Tensor) -> Tensor:
        """The batched tensor with these rows, one per example."""
        found: Tensor = functorch._add_batch_dim(rows, 0, self._level)
        return found

    def is_plain(self, *tensors: Tensor | None) -> bool:
        """Whether these belong to the examples' ``vmap`` only, within no other transform."""
        return functorch.maybe_current_level() == self._level and not any(
            t is not None
            and functorch.is_functorch_wrapped_tensor(t)
            and not (
                functorch.is_batchedtensor(t)
                and functorch.maybe_get_level(t) == self._level
                and not functorch.is_functorch_wrapped_tensor(functorch.get_unwrapped(t))
            )
            for t in tensors
        )

    def repeated(self, tensor: Tensor) -> Tensor:
        """The batched tensor of which each example has the same."""
        return self.batched(tensor.expand(self.count, *tensor.shape))

    def catch(
        self,
        name: str,
        source: Tensor,
        compute: Callable[[Tensor], tuple[Tensor, Tensor]],
        factors: Callable[[Tensor, Tensor], Factors],
    ) -> Tensor:
        """Compute a call for all examples and put an output tap on it.

        Args:
            name: Of the function.
            source: What goes in: batched, or equal for all examples.
            compute: From an input with the axis of the examples first to what comes out, as it was
                computed and in the form of a result for every example, of which the first axis is that
                of the examples.
            factors: From the input and the gradient of what came out, as it was computed, to factors.
        """
        x = self.rows(source)
        if x is None:
            return self._catch_constant(name, source, compute, factors)
        flat, out = compute(x)
        if flat.requires_grad:
            kept = x.detach()
            edge = get_gradient_edge(flat)
            self.caught.append(
                Caught(edge, ((kept, kept._version),), lambda g: factors(kept, g), name)
            )
        del flat
        wrapped: Tensor = functorch._add_batch_dim(out, 0, self._level)
        return wrapped

    def _catch_constant(
        self,
        name: str,
        source: Tensor,
        compute: Callable[[Tensor], tuple[Tensor, Tensor]],
        factors: Callable[[Tensor, Tensor], Factors],
    ) -> Tensor:
        """The same for an input that is equal for all examples: computed once.

        Its graph is kept: if the input was computed from a parameter by calls that no mode sees, autograd
        leads to that parameter.
        """
        flat, out = compute(source[None])
        if not flat.requires_grad:
            result: Tensor = out[0]
            return result
        leaf = _zeros(self.count, flat)
        kept = source.detach()

        def spread(g: Tensor) -> Factors:
            return factors(kept.expand(self.count, *kept.shape), g.flatten(0, 1))

        self.caught.append(Caught(leaf, ((kept, kept._version),), spread, name))
        total = (flat + leaf).view(self.count, *out.shape[1:])
        wrapped: Tensor = functorch._add_batch_dim(total, 0, self._level)
        return wrapped

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer a call that reads a trained parameter; others pass."""
        try:
            return self._answer(func, args, kwargs or {})
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            raise

    def _answer(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        check_call(func)
        if is_opaque(func, args, named):
            self.is_opaque = True
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None:
            with self:
                return replacement(*args, **named)
        call = _CALLS.get(func)
        if call is not None:
            if self._transposed:
                args, named = self._replaced(args), self._replaced(named)
            out = call(self, *args, **named)
            if out is not NotImplemented:
                return out
        if func == _DATA and not functorch.is_functorch_wrapped_tensor(args[0]):
            return args[0].detach()  # shares the version, so `State` sees writes through it
        if func in _READS_NOTHING or not self._reads(args, named):
            return func(*args, **named)
        if func in _CONVERSIONS and self._is_same(func, args, named):
            return args[0]
        if func in _TRANSPOSING and self._is_matrix(args[0]) and self.is_plain():
            view: Tensor = func(*args)
            self._transposed[view] = args[0]
            return view
        rule = rules.RULES.get(func)
        if rule is not None:
            out = rule(self, *args, **named)
            if out is not NotImplemented:
                return out
        return func(*self._replaced(args), **self._replaced(named))

    def _is_matrix(self, thing: Any) -> bool:
        return self.is_trained(thing) and thing.ndim == 2

    def _reads(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        return any(map(self._holds, args)) or bool(
            kwargs and any(map(self._holds, kwargs.values()))
        )

    def _holds(self, thing: Any) -> bool:
        if isinstance(thing, Tensor):
            return self.is_trained(thing) or thing in self._transposed
        if isinstance(thing, list | tuple):
            return any(map(self._holds, thing))
        return isinstance(thing, dict) and any(map(self._holds, thing.values()))

    def _replaced(self, thing: Any) -> Any:
        """The same with parameter taps for parameters."""
        if isinstance(thing, Tensor):
            parameter = self.transposed(thing)
            if parameter is not None:
                return self.tapped(parameter).mT
            return self.tapped(thing) if self.is_trained(thing) else thing  # type: ignore[arg-type]
        if isinstance(thing, list | tuple):
            found = [self._replaced(part) for part in thing]
            return type(thing)(*found) if hasattr(thing, "_fields") else type(thing)(found)
        if isinstance(thing, dict | Mapping):
            return {key: self._replaced(value) for key, value in thing.items()}
        return thing

    def _is_same(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        alias = self._alias.get(args[0])
        return alias is not None and func(alias, *args[1:], **kwargs) is alias


@final
class TappedGradients:
    """The gradients of an evaluation's examples.

    Args:
        taps: Of the evaluation, which has ended.
        losses: One for every example.

    Attributes:
        unseen: Parameters that were read by calls that no mode sees: their gradients are incomplete.
    """

    def __init__(self, taps: Taps, losses: Tensor) -> None:
        self._taps = taps
        parameters = list(taps._alias)
        targets = [*(call.target for call in taps.caught), *taps.leaves.values()]
        asked: list[Any] = [*targets, *parameters]
        total = losses.sum()
        with Guard():
            # What `torch.autograd.grad` calls, which a mode would see as one call.
            found = _engine_run_backward(
                (total,), (torch.ones_like(total),), False, False, tuple(asked), True,
                accumulate_grad=False,
            )  # fmt: skip
        self._gradients = found[: len(targets)]
        plain = found[len(targets) :]
        self.unseen = [p for p, g in zip(parameters, plain, strict=True) if g is not None]

    @torch.no_grad()
    def factors(self) -> dict[nn.Parameter, list[AbstractFactor]]:
        """The gradients of every example, by parameter; call it once."""
        found: dict[nn.Parameter, list[AbstractFactor]] = {}
        calls, leaves = self._taps.caught, self._taps.leaves
        # Taps and calls refer to each other: what they keep would wait for the garbage collector.
        self._taps.caught, self._taps.leaves = [], {}
        for call, g in zip(calls, self._gradients, strict=False):
            if g is not None:
                call.check_unchanged()
                for parameter, factor in call.factors(g).items():
                    found.setdefault(parameter, []).append(factor)
        for parameter, g in zip(leaves, self._gradients[len(calls) :], strict=True):
            if g is not None:
                found.setdefault(parameter, []).append(Dense(g))
        return found


def _zeros(count: int, like: Tensor) -> Tensor:
    zeros = torch.zeros((), dtype=like.dtype, device=like.device).expand(count, *like.shape)
    leaf: Tensor = torch.Tensor._make_subclass(torch.Tensor, zeros, True)
    return leaf
