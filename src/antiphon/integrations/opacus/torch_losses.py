"""Losses of torch whose mean or sum over a batch is that of the losses of its examples: a closed list.

The loss of an example is the function itself, with the same reduction, for a batch of one. So a mean over
(examples × places) is the mean of the examples' own means.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import Signature, signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from antiphon.integrations.opacus.loader_rows import handled, unknown

__all__: list[str] = []

_CLASSES = (F.cross_entropy, F.nll_loss)
_BY_NUMBER = (
    F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits, F.kl_div, F.poisson_nll_loss, F.soft_margin_loss,
)  # fmt: skip
_REDUCTIONS = {"mean": True, "batchmean": True, "sum": False}
_signature = lru_cache(maxsize=None)(signature)


@handled(*_CLASSES, *_BY_NUMBER)
def _loss(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A loss by example, or the reason why it is none."""
    form: Signature = _signature(func)
    given = form.bind(*args, **kwargs)
    given.apply_defaults()
    values, name = dict(given.arguments), func.__name__
    if not torch.is_grad_enabled():
        return name
    tensors = {key: value for key, value in values.items() if isinstance(value, Tensor)}
    why = _reason(values, tensors, is_by_number=func in _BY_NUMBER)
    if why is not None:
        return f"{name} {why}"
    for key, tensor in tensors.items():
        why = unknown(tensor)
        if why is not None:
            return f"{name}, whose {key} {why}"
    batch: Any = tensors["input"].batch  # type: ignore[attr-defined]
    if tensors["target"].batch is not batch:  # type: ignore[attr-defined]
        return f"{name} of tensors of different batches"
    names = list(tensors)
    constants = {key: value for key, value in values.items() if key not in tensors}

    def one(*rows: Tensor) -> Tensor:
        found: Tensor = func(**dict(zip(names, rows, strict=True)), **constants)
        return found

    batch.check_constants(name, constants)
    return batch.loss_by_example(one, list(tensors.values()), _REDUCTIONS[values["reduction"]])


def _reason(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], *, is_by_number: bool
) -> str | None:
    """Why the loss of a batch is not made of its examples' own."""
    for weight in ("weight", "pos_weight"):
        if values.get(weight) is not None:
            return f"with {weight}="
    if values.get("size_average") is not None or values.get("reduce") is not None:
        return "with the old options size_average= and reduce="
    if values["reduction"] not in _REDUCTIONS:
        return f"with reduction={values['reduction']!r}"
    if set(tensors) != {"input", "target"}:
        return "without an output and a target"
    one, other = tensors["input"].shape, tensors["target"].shape
    if is_by_number and one != other:
        return f"of an output of shape {tuple(one)} and a target of shape {tuple(other)}"
    if not is_by_number and (len(one) < 2 or len(other) not in (len(one), len(one) - 1)):
        return f"of an output of shape {tuple(one)} and a target of shape {tuple(other)}"
    return None
