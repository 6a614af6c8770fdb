"""What the layers of a model saw: inputs, and where the gradients of their outputs arrive.

Hooks note every call of a layer with private parameters while a batch is out. From these notes and one
backward pass come the gradients of single examples; the pass computes no gradient of a parameter.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_leaves, tree_map

from antiphon.errors import UnsupportedError
from antiphon.training.attention import attend, projections
from antiphon.training.factors import AbstractFactor, exactly, merged
from antiphon.training.fallback import by_running_again
from antiphon.training.rules import Factors, Rule, rule_for
from antiphon.training.trees import tensors

__all__ = ["Call", "Record", "Tape"]

Gradients = Sequence[Tensor | None]
ByParameter = dict[nn.Parameter, AbstractFactor]
FactorsOf = Callable[["Record", Gradients], ByParameter]


@final
@dataclass(eq=False)
class Call:
    """One call of the whole model.

    Attributes:
        args: Positional arguments.
        kwargs: Named arguments.
        output: What came out.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None


@final
@dataclass(eq=False)
class Record:
    """One call of a layer.

    Attributes:
        name: The layer's, within the model.
        layer: The layer.
        inputs: Its positional and named arguments.
        outputs: The tensors that came out and lead to parameters.
        places: Their positions among all that came out.
        edges: Where the gradients of the outputs arrive; later changes in place do not move them.
        call: The call of the whole model, if the layer was called within one.
        factors: From the gradients of the outputs to the factors of parameters.
        versions: Of the inputs, which tell whether they were written to.
        autocast: Device and type to which operations were cast during the call, if any.
        received: Gradients that a user's own ``backward`` brought.
    """

    name: str
    layer: nn.Module
    inputs: tuple[tuple[Any, ...], dict[str, Any]]
    outputs: tuple[Tensor, ...]
    places: tuple[int, ...]
    edges: tuple[GradientEdge, ...]
    call: Call | None
    factors: "FactorsOf"
    versions: tuple[int, ...]
    autocast: tuple[str, torch.dtype] | None = None
    received: list[Tensor | None] = field(default_factory=list)

    def precision(self) -> AbstractContextManager[Any]:
        """The precision in which the layer ran."""
        if self.autocast is None:
            return nullcontext()
        device, dtype = self.autocast
        return torch.autocast(device, dtype=dtype)

    def check_unchanged(self) -> None:
        """Raise if an input was written to since the call: the gradient would be that of other numbers."""
        if self.versions != _versions(self.inputs):
            raise UnsupportedError(
                f"the input of {type(self.layer).__name__} {self.name!r} was changed in place after the "
                "layer had used it. Make the change on a copy (no inplace=True there)."
            )


@final
class Tape:
    """Notes the calls of a model's layers between `start` and `stop`.

    Args:
        model: The model. Its attention layers get an equal ``forward`` that shows their projections.
        parameters: Those whose gradients are private.
        listens: Keep the gradients that a user's own ``backward`` brings.
    """

    def __init__(
        self, model: nn.Module, parameters: Sequence[nn.Parameter], *, listens: bool = False
    ) -> None:
        self.records: list[Record] = []
        self._private = set(parameters)
        self._listens = listens
        self._is_on = False
        self._call: Call | None = None
        self._handles: list[Any] = []
        self._patched: list[nn.Module] = []
        try:
            self._attach(model)
        except BaseException:
            self.detach()
            raise

    def start(self) -> None:
        """Forget all notes and begin to take new ones."""
        self.records.clear()
        self._call, self._is_on = None, True

    def stop(self) -> None:
        """Forget all notes and take no more."""
        self.records.clear()
        self._call, self._is_on = None, False

    def detach(self) -> None:
        """Leave the model as it was."""
        self.stop()
        for handle in self._handles:
            handle.remove()
        for layer in self._patched:
            del layer.forward
        self._handles.clear()
        self._patched.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take no notes of what runs within."""
        before, self._is_on = self._is_on, False
        try:
            yield
        finally:
            self._is_on = before

    @contextmanager
    def aside(self) -> Iterator[list[Record]]:
        """Take notes of what runs within on a sheet of its own."""
        before = self.records, self._call, self._is_on
        self.records, self._is_on = [], True
        try:
            yield self.records
        finally:
            self.records, self._call, self._is_on = before

    def used(self, loss: Tensor, scale: float, *, retain_graph: bool = False) -> list[Record]:
        """The records on which ``loss`` depends, with the gradients of ``scale`` × its sum."""
        edges = [edge for record in self.records for edge in record.edges]
        if not edges:
            return []
        start = torch.full_like(loss, scale)
        with self.paused():  # checkpointed blocks run again during the backward pass
            found = iter(_gradients(loss, edges, start, retain_graph))
        for record in self.records:
            record.received = [next(found) for _ in record.edges]
        return self.heard()

    def heard(self) -> list[Record]:
        """The records that have received gradients."""
        return [r for r in self.records if any(g is not None for g in r.received)]

    def factors(self, records: Sequence[Record], rows: int) -> ByParameter:
        """The gradients of single examples, by parameter."""
        found: dict[nn.Parameter, list[AbstractFactor]] = {}
        with torch.no_grad(), self.paused(), exactly():
            for record in records:
                record.check_unchanged()
                _check_rows(record, rows)
                for parameter, factor in record.factors(record, record.received).items():
                    if parameter in self._private:
                        found.setdefault(parameter, []).append(factor)
            return {parameter: merged(factors) for parameter, factors in found.items()}

    def _attach(self, model: nn.Module) -> None:
        skipped: set[nn.Module] = set()
        self._handles.append(model.register_forward_pre_hook(self._begin, with_kwargs=True))
        for name, layer in model.named_modules():
            own = set(layer.parameters(recurse=False))
            if isinstance(layer, nn.MultiheadAttention):
                skipped.add(layer.out_proj)
                own |= set(layer.out_proj.parameters(recurse=False))
            if layer in skipped or not own & self._private:
                continue
            if isinstance(layer, nn.MultiheadAttention):
                note = partial(self._note_attention, name, layer)
                layer.forward = partial(attend, layer, note)  # type: ignore[method-assign]
                self._patched.append(layer)
                continue
            rule = rule_for(layer)
            factors = partial(_by_running_again, layer) if rule is None else partial(_by_rule, rule)
            hook = partial(self._note, name, factors, rule is None)
            self._handles.append(layer.register_forward_hook(hook, with_kwargs=True))
        self._handles.append(model.register_forward_hook(self._finish))

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_on:
            self._call = Call(args, kwargs)

    def _finish(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._is_on and self._call is not None:
            self._call.output = output
            self._call = None

    def _note(
        self,
        name: str,
        factors: FactorsOf,
        is_unknown: bool,
        layer: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> Any:
        if not self._is_on:
            return output
        leaves = [output] if isinstance(output, Tensor) else tree_leaves(output)
        places = tuple(i for i, leaf in enumerate(leaves) if _leads_on(leaf))
        if not places:
            return output
        kept = tuple(leaves[i] for i in places)
        ends = kept
        if is_unknown:
            # One output may lead to another within the module; a copy gets the gradient from outside only,
            # and what is done to it in place does not reach the output that is kept to be compared.
            output = tree_map(lambda t: t.clone() if _leads_on(t) else t, output)
            copies = tree_leaves(output)
            ends = tuple(copies[i] for i in places)
        self._add(name, layer, (args, kwargs), kept, places, factors, ends)
        return output

    def _note_attention(
        self,
        name: str,
        layer: nn.MultiheadAttention,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
    ) -> None:
        places = tuple(i for i, tensor in enumerate(outputs) if tensor.requires_grad)
        if self._is_on and places:
            lead_on = tuple(outputs[i] for i in places)
            self._add(name, layer, (inputs, {}), lead_on, places, _attention_factors, lead_on)

    def _add(
        self,
        name: str,
        layer: nn.Module,
        inputs: tuple[tuple[Any, ...], dict[str, Any]],
        outputs: tuple[Tensor, ...],
        places: tuple[int, ...],
        factors: FactorsOf,
        ends: tuple[Tensor, ...],
    ) -> None:
        edges = tuple(get_gradient_edge(tensor) for tensor in ends)
        versions = _versions(inputs)
        record = Record(name, layer, inputs, outputs, places, edges, self._call, factors, versions)
        device = outputs[0].device.type
        if torch.is_autocast_enabled(device):
            record.autocast = device, torch.get_autocast_dtype(device)
        record.received = [None] * len(edges)
        if self._listens:
            for place, edge in enumerate(edges):
                edge.node.register_prehook(partial(_receive, record, place, edge.output_nr))
        self.records.append(record)


def _gradients(
    loss: Tensor, edges: Sequence[GradientEdge], start: Tensor, retain_graph: bool
) -> Sequence[Tensor | None]:
    try:
        return torch.autograd.grad(loss, edges, start, allow_unused=True, retain_graph=retain_graph)
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():
            raise
        raise UnsupportedError(
            "a checkpointed block hides its layers. Use torch.utils.checkpoint with use_reentrant=False."
        ) from error


def _receive(record: Record, place: int, output: int, gradients: Sequence[Tensor | None]) -> None:
    got, before = gradients[output], record.received[place]
    if got is not None:
        record.received[place] = got.detach() if before is None else before + got.detach()


def _by_rule(rule: Rule, record: Record, gradients: Gradients) -> ByParameter:
    (args, kwargs), (g,) = record.inputs, gradients
    x = (args or tuple(kwargs.values()))[0].detach()
    return _by_parameter(record.layer, rule(record.layer, x, g))  # type: ignore[arg-type]


def _by_running_again(layer: nn.Module, record: Record, gradients: Gradients) -> ByParameter:
    with record.precision():
        again = by_running_again(
            record.name, layer, record.inputs, record.outputs, record.places, gradients
        )
    return _by_parameter(layer, again)


def _attention_factors(record: Record, gradients: Gradients) -> ByParameter:
    layer = record.layer
    assert isinstance(layer, nn.MultiheadAttention)
    filled: list[Tensor | None] = [None] * 4
    for place, result, g in zip(record.places, record.outputs, gradients, strict=True):
        filled[place] = torch.zeros_like(result) if g is None else g
    own, out = projections(layer, record.inputs[0], tuple(filled))
    return _by_parameter(layer, own) | _by_parameter(layer.out_proj, out)


def _by_parameter(layer: nn.Module, factors: Factors) -> ByParameter:
    own: Any = layer._parameters
    return {own[name]: factor for name, factor in factors.items()}


def _check_rows(record: Record, rows: int) -> None:
    for tensor in record.outputs:
        if tensor.ndim == 0 or len(tensor) != rows:
            raise UnsupportedError(
                f"{type(record.layer).__name__} {record.name!r} returned a tensor of shape "
                f"{tuple(tensor.shape)} for a batch of {rows} examples: the examples of a batch must stand "
                "along the first axis of what every layer with parameters returns (batch_first=True)."
            )


def _leads_on(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad


def _versions(inputs: Any) -> tuple[int, ...]:
    return tuple(tensor._version for tensor in tensors(inputs))
