"""A look at the first batch, before anything is released: does every example stand for itself?

The guarantee needs each example's loss to depend on that example alone, and each parameter's gradient to be
the sum of those that were clipped. Neither can be proved from outside, but mistakes show at once:

- the model, run again with some rows exchanged, must return the same for all others, and so must each of
  its layers with private parameters: a layer that sees time first would clip steps of time, not examples;
- the loss of some rows must have no gradient at other rows of any layer; of a mean of losses, second
  derivatives across rows must vanish (a maximum over the batch escapes this one: losses per row do not);
- unclipped, the gradients of single examples must add up to autograd's gradient.

The rows that are exchanged are those with a given bit of their number set, or not set: every row is kept
once while any given other one is exchanged. Labels are out of sight: a loss that divides by a count over
the batch's labels is found only if it is torch's own mean.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from antiphon.errors import UnsupportedError
from antiphon.training.buffer import Buffer
from antiphon.training.factors import AbstractFactor, exactly
from antiphon.training.tape import Call, Record, Tape
from antiphon.training.trees import mapped, tensors

__all__ = ["check_mean", "probe"]

Plain = Mapping[nn.Parameter, Tensor | None]

_NODES = 64  # operations to look at behind a loss; the criterion is one of the last


def probe(
    model: nn.Module,
    tape: Tape,
    records: Sequence[Record],
    rows: int,
    plain: Plain,
    buffer: Buffer,
    loss: Tensor | None,
) -> bool:
    """Raise `UnsupportedError` if the batch shows that an example does not stand for itself.

    Args:
        model: The model.
        tape: What its layers saw.
        records: The layers' calls on which the loss depends.
        rows: Examples in the batch; at least two.
        plain: Autograd's gradients of the sum of the losses.
        buffer: Knows the parameters' names.
        loss: The loss, if it is known.

    Returns:
        Whether all could be seen: not in a batch with gradients that are not finite.
    """
    for record in {id(record.call): record for record in records}.values():
        call = record.call
        if call is not None:
            with record.precision():
                _check_model(model, tape, call, rows)
            if loss is not None and loss.ndim == 0:
                _check_scalar(loss, call.output, rows)
    if loss is not None and loss.ndim:
        _check_losses(loss, records, rows)
    if not all(g is None or bool(torch.isfinite(g).all()) for g in plain.values()):
        return False
    _check_completeness(buffer, tape.factors(records, rows), plain)
    return True


def check_mean(loss: Tensor) -> None:
    """Raise if ``loss`` is a mean whose divisor depends on the labels of the whole batch."""
    for node in _nodes(loss):
        if not node.name().startswith("NllLoss") or node._saved_reduction != 1:
            continue
        weight, total = getattr(node, "_saved_weight", None), float(node._saved_total_weight)
        if weight is not None or total != node._saved_target.numel():
            raise UnsupportedError(
                "the mean of this loss is divided by a sum over the batch's labels (class weights, or "
                "labels that are ignored), so an example's share depends on the others. Use "
                "reduction='none' and add up the losses of each example."
            )


def _nodes(loss: Tensor) -> Iterator[Any]:
    """The operations that made the loss, last ones first; the criterion is among them."""
    waiting, seen = deque([loss.grad_fn]), 0
    while waiting and seen < _NODES:
        node, seen = waiting.popleft(), seen + 1
        if node is not None:
            yield node
            waiting.extend(parent for parent, _ in node.next_functions)


def _halves(rows: int) -> Iterator[Tensor]:
    """Masks of rows to be kept: for any two rows, one keeps the first and not the second."""
    number = torch.arange(rows)
    for bit in range((rows - 1).bit_length()):
        is_set = (number >> bit & 1).bool()
        yield from (is_set, ~is_set)


def _check_model(model: nn.Module, tape: Tape, call: Call, rows: int) -> None:
    """Raise if rows of what the model or a layer returns change with other rows of the model's input."""

    def run(kept: Tensor, *, with_squares: bool = True) -> list[Tensor]:
        place = 0

        def exchanged(leaf: Any) -> Any:
            nonlocal place
            if not isinstance(leaf, Tensor) or leaf.ndim == 0 or len(leaf) != rows:
                return leaf
            place += 1
            if place > 1 and leaf.shape == (rows, rows) and not with_squares:
                return leaf.detach()
            mask = kept.to(leaf.device).view(-1, *[1] * (leaf.ndim - 1))
            return torch.where(mask, leaf, leaf[kept.to(leaf.device)][:1]).detach()

        with tape.aside() as records, torch.enable_grad():
            outputs = _run(model, *mapped(exchanged, (call.args, call.kwargs)))
            layers = [tensor for record in records for tensor in record.outputs]
        if not place:
            raise UnsupportedError(
                "no argument of the model was found to hold one row per example, so it cannot be checked "
                "whether examples mix. Give tensors whose first axis is the batch."
            )
        return [tensor.detach() for tensor in (*outputs, *layers)]

    first = run(torch.ones(rows, dtype=torch.bool))
    for kept in _halves(rows):
        # A later argument of shape (rows, rows) may be a mask of time by time, the same for all examples.
        if not any(_are_close(first, run(kept, with_squares=w), kept) for w in (True, False)):
            raise UnsupportedError(
                "the model mixes the examples of a batch: what it or one of its layers returns for some "
                "of them changes with the others, so no clip norm bounds an example's influence. "
                "Normalise within an example (LayerNorm, GroupNorm), not over the batch, and keep the "
                "batch on the first axis (batch_first=True)."
            )


def _check_losses(loss: Tensor, records: Sequence[Record], rows: int) -> None:
    """Raise if the loss of some examples has a gradient at others, at any layer."""
    edges = [edge for record in records for edge in record.edges]
    places = [tensor.device for record in records for tensor in record.outputs]
    each = loss.reshape(rows, -1).sum(1)
    for kept in _halves(rows):
        total = each[kept.to(each.device)].sum()
        found = torch.autograd.grad(total, edges, retain_graph=True, allow_unused=True)
        _check_zero(found, [~kept.to(device) for device in places])


def _check_scalar(loss: Tensor, output: Any, rows: int) -> None:
    """Raise if the loss is not a sum of functions of single rows of the output."""
    outputs = [t for t in tensors(output) if _has_rows(t, rows)]
    if not outputs:
        raise UnsupportedError(
            "no tensor with one row per example was found in what the model returns, so a mean of losses "
            "cannot be checked. Give one loss per example (reduction='none')."
        )
    first = torch.autograd.grad(
        loss, outputs, create_graph=True, retain_graph=True, allow_unused=True
    )
    for kept in _halves(rows):
        weighed = [
            (g * _some_weights(g, kept)).sum() for g in first if g is not None and g.requires_grad
        ]
        if not weighed:
            return  # a loss that is linear in its outputs
        try:
            found = torch.autograd.grad(
                torch.stack(weighed).sum(), outputs, retain_graph=True, allow_unused=True
            )
        except RuntimeError as error:
            raise UnsupportedError(
                "this loss has no second derivative, so a mean of it cannot be checked. Give one loss per "
                "example (reduction='none')."
            ) from error
        _check_zero(found, [~kept.to(t.device) for t in outputs])


def _check_zero(gradients: Sequence[Tensor | None], exchanged: Sequence[Tensor]) -> None:
    for gradient, others in zip(gradients, exchanged, strict=True):
        if gradient is None or len(gradient) != len(others):
            continue
        values = gradient[others]
        # What is not finite in a row of its own is no sign of a mixture: 0 × ∞.
        if bool(((values != 0) & torch.isfinite(values)).any()):
            raise UnsupportedError(
                "the loss mixes the examples of a batch: the part of one depends on the others (a batch "
                "statistic, a contrast between examples?). Each example needs a loss of its own, such as "
                "criterion(..., reduction='none')."
            )


def _some_weights(like: Tensor, kept: Tensor) -> Tensor:
    """Numbers between 1/2 and 3/2 in the kept rows, without a draw from anyone's generator."""
    numbers = torch.arange(like.numel(), dtype=torch.float64, device=like.device)
    weights = ((numbers * 0.6180339887498949) % 1 + 0.5).view_as(like).to(like.dtype)
    return weights * kept.to(like.device).view(-1, *[1] * (like.ndim - 1))


@torch.no_grad()
@exactly()
def _check_completeness(
    buffer: Buffer, factors: Mapping[nn.Parameter, AbstractFactor], plain: Plain
) -> None:
    """Raise if the gradients of single examples do not add up to autograd's."""
    # A gradient that is zero but for rounding (a bias of attention's keys) is small beside the others.
    whole = sum(float(g.double().square().sum()) for g in plain.values() if g is not None) ** 0.5
    for name, parameter in zip(buffer.names, buffer.parameters, strict=True):
        expected = plain.get(parameter)
        total = torch.zeros_like(
            parameter, dtype=torch.promote_types(parameter.dtype, torch.float32)
        )
        terms = 0.0
        if parameter in factors:
            factor = factors[parameter]
            factor.add_to(total, torch.ones(factor.rows, device=total.device))
            terms = float(factor.squared_norms().sqrt().sum())
        target = torch.zeros_like(total) if expected is None else expected.to(total.dtype)
        size = float(target.norm()) + float(total.norm())
        rough = parameter.dtype in (torch.float16, torch.bfloat16)
        # Where the examples cancel (balanced labels, at a start that answers 0) only rounding is left, of
        # the size of what was added up.
        slack = (1e-3 if rough else 1e-6) * terms + 1e-5 * whole
        if float((total - target).norm()) > (0.1 if rough else 1e-2) * size + slack:
            raise UnsupportedError(
                f"the parameter {name!r} is used where no layer shows it, so the gradients of single "
                "examples are not known. A penalty on weights in the loss belongs to no example: use "
                "weight_decay= of the optimizer instead. Or is it a functional call with the weight, "
                "checkpointed or compiled code? Call the layer that holds it, or make it a parameter of a "
                "module of its own."
            )


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The model's output tensors, with the same random numbers in every run."""
    cards = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cards):
        # Not torch.manual_seed: it seeds devices that nobody uses, and takes longer than a small model.
        for generator in (
            torch.default_generator,
            *(torch.cuda.default_generators[c] for c in cards),
        ):
            generator.manual_seed(0)
        return [tensor for tensor in tensors(model(*args, **kwargs)) if tensor.ndim]


def _are_close(first: Sequence[Tensor], second: Sequence[Tensor], kept: Tensor) -> bool:
    """Whether the kept rows are the same but for rounding, wherever there is one row per example."""
    if [t.shape for t in first] != [t.shape for t in second]:
        return False
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a.ndim and len(a) == len(kept)]
    return all(_is_close(a[kept.to(a.device)], b[kept.to(b.device)]) for a, b in pairs)


def _is_close(a: Tensor, b: Tensor) -> bool:
    tol = 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-5
    a, b = a.reshape(len(a), -1).double(), b.reshape(len(b), -1).double()
    is_same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(is_same, 0.0, (a - b).abs())
    size = torch.nan_to_num(a, 0.0, 0.0, 0.0).abs().amax(1, keepdim=True) if a.shape[1] else a
    return bool((difference <= tol * size).all())


def _has_rows(leaf: Tensor, rows: int) -> bool:
    return leaf.requires_grad and leaf.ndim > 0 and len(leaf) == rows
