"""``F.cross_entropy`` of all examples at once: under vmap torch composes it of many small operations.

Every place has a loss of its own, of which an example's reduction sees its own places only.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from antiphon.training.gradients.taps import Taps

__all__ = ["CALLS"]


def _cross_entropy(
    taps: "Taps",
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """What torch returns for each example."""
    is_plain = weight is None and size_average is None and reduce is None and not label_smoothing
    if not (is_plain and reduction in ("none", "sum", "mean") and _is_usual(taps, input, target)):
        return F.cross_entropy(
            input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )
    logits, labels = taps.rows(input), taps.rows(target)
    assert logits is not None and labels is not None
    if input.ndim > 1:
        logits, flat = logits.flatten(0, 1), labels.flatten(0, 1)
    else:
        flat = labels
    losses = F.cross_entropy(logits, flat, ignore_index=ignore_index, reduction="none")
    losses = losses.view(labels.shape)
    if reduction == "none":
        return taps.batched(losses)
    total = losses.flatten(1).sum(1) if losses.ndim > 1 else losses
    if reduction == "mean":
        counts = labels != ignore_index
        total = total / (counts.flatten(1).sum(1) if counts.ndim > 1 else counts)
    return taps.batched(total)


def _is_usual(taps: "Taps", input: Any, target: Any) -> bool:
    """Whether logits and class numbers belong to the examples, with one class for every place."""
    return (
        isinstance(input, Tensor)
        and isinstance(target, Tensor)
        and taps.is_plain(input, target)
        and taps.rows(input) is not None
        and taps.rows(target) is not None
        and target.dtype == torch.int64
        and target.shape == (input.shape[:1] + input.shape[2:] if input.ndim > 1 else ())
    )


CALLS: dict[Callable[..., Any], Callable[..., Any]] = {F.cross_entropy: _cross_entropy}
