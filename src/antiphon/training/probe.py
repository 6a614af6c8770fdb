"""A look at the first batch, before anything is released: does every example stand for itself?

The guarantee needs each example's loss to depend on that example alone, and each parameter's gradient to be
the sum of those that were clipped. Neither can be proved from outside, but mistakes show at once:

- the model, run again with all rows but the first exchanged, must return the same first row;
- the loss of the first row must not depend on other rows' outputs; of a mean of losses, second derivatives
  across rows must vanish (a maximum over the batch escapes this one: per-example losses do not);
- unclipped, the gradients of single examples must add up to autograd's gradient.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from antiphon.errors import UnsupportedError
from antiphon.training.buffer import Buffer
from antiphon.training.factors import AbstractFactor
from antiphon.training.tape import Call, Record, Tape
from antiphon.training.trees import tensors

__all__ = ["check_mean", "probe"]

Plain = Mapping[nn.Parameter, Tensor | None]


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
    for call in {id(record.call): record.call for record in records}.values():
        if call is not None:
            _check_model(model, call, rows)
            if loss is not None:
                _check_loss(loss, call.output, rows)
    if not all(g is None or bool(torch.isfinite(g).all()) for g in plain.values()):
        return False
    _check_completeness(buffer, tape.factors(records, rows), plain)
    return True


def check_mean(loss: Tensor) -> None:
    """Raise if ``loss`` is a mean whose divisor depends on the labels of the whole batch."""
    node = loss.grad_fn
    if node is None or not node.name().startswith("NllLoss"):
        return
    weight, total = getattr(node, "_saved_weight", None), node._saved_total_weight  # type: ignore[attr-defined]
    if node._saved_reduction != 1:  # type: ignore[attr-defined]
        return
    if weight is not None or float(total) != node._saved_target.numel():  # type: ignore[attr-defined]
        raise UnsupportedError(
            "the mean of this loss is divided by a sum over the batch's labels (class weights, or labels "
            "that are ignored), so an example's share depends on the others. Use reduction='none' and add "
            "up the losses of each example."
        )


def _check_model(model: nn.Module, call: Call, rows: int) -> None:
    """Raise if the first row of the model's output changes with the other rows of its input."""

    def exchanged(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.ndim == 0 or len(leaf) != rows:
            return leaf
        return torch.cat([leaf[:1], leaf[1:2].expand_as(leaf[1:])]).detach()

    with torch.no_grad():
        first = _run(model, call.args, call.kwargs)
        second = _run(model, *tree_map(exchanged, (call.args, call.kwargs)))
    for a, b in zip(first, second, strict=True):
        if len(a) == rows and not _close(a[0], b[0]):
            raise UnsupportedError(
                "the model mixes the examples of a batch: what it returns for the first one changes with "
                "the others, so no clip norm bounds an example's influence. Normalise within an example "
                "(LayerNorm, GroupNorm), not over the batch."
            )


def _check_loss(loss: Tensor, output: Any, rows: int) -> None:
    """Raise if the loss of one example depends on the outputs of another."""
    outputs = [t for t in tensors(output) if _has_rows(t, rows)]
    if not outputs:
        return
    if loss.ndim:
        found = _grad(loss.reshape(rows, -1)[0].sum(), outputs, create_graph=False)
    else:
        first = _grad(loss, outputs, create_graph=True)
        weights = [torch.zeros_like(t) for t in outputs]
        for weight in weights:
            weight[0] = torch.rand_like(weight[0]) + 0.5
        mixed = sum((g * w).sum() for g, w in zip(first, weights, strict=True) if g is not None)
        if not isinstance(mixed, Tensor) or not mixed.requires_grad:
            return  # a loss that is linear in its outputs
        found = _grad(mixed, outputs, create_graph=False)
    for gradient in found:
        others = torch.zeros(1) if gradient is None else gradient[1:]
        if bool(((others != 0) & torch.isfinite(others)).any()):
            raise UnsupportedError(
                "the loss mixes the examples of a batch: the part of the first one depends on the others "
                "(a batch statistic, a contrast between examples?). Each example needs a loss of its own, "
                "such as criterion(..., reduction='none')."
            )


@torch.no_grad()
def _check_completeness(
    buffer: Buffer, factors: Mapping[nn.Parameter, AbstractFactor], plain: Plain
) -> None:
    """Raise if the gradients of single examples do not add up to autograd's."""
    for name, parameter in zip(buffer.names, buffer.parameters, strict=True):
        expected = plain.get(parameter)
        total = torch.zeros_like(
            parameter, dtype=torch.promote_types(parameter.dtype, torch.float32)
        )
        if parameter in factors:
            factor = factors[parameter]
            factor.add_to(total, torch.ones(factor.rows, device=total.device))
        target = torch.zeros_like(total) if expected is None else expected.to(total.dtype)
        size = float(target.norm()) + float(total.norm())
        rough = parameter.dtype in (torch.float16, torch.bfloat16)
        if float((total - target).norm()) > (0.1 if rough else 1e-2) * size + 1e-6:
            raise UnsupportedError(
                f"the parameter {name!r} is used where no layer shows it (a functional call with its "
                "weight, checkpointed or compiled code?), so the gradients of single examples are not "
                "known. Call the layer that holds it, or make it a parameter of a module of its own."
            )


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The model's output tensors, with the same random numbers in every run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [tensor for tensor in tensors(model(*args, **kwargs)) if tensor.ndim]


def _close(a: Tensor, b: Tensor) -> bool:
    tol = 5e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-3
    size = (
        float(torch.nan_to_num(a, nan=0.0, posinf=0.0, neginf=0.0).abs().max())
        if a.numel()
        else 0.0
    )
    return torch.allclose(a, b, rtol=tol, atol=tol * size, equal_nan=True)


def _grad(value: Tensor, outputs: list[Tensor], *, create_graph: bool) -> Sequence[Tensor | None]:
    return torch.autograd.grad(
        value, outputs, create_graph=create_graph, retain_graph=True, allow_unused=True
    )


def _has_rows(leaf: Tensor, rows: int) -> bool:
    return leaf.requires_grad and leaf.ndim > 0 and len(leaf) == rows
