"""``F.embedding_bag`` as a table that is looked up and sums of its lines.

``nn.EmbeddingBag`` calls ``F.embedding_bag``, for which ``torch.func.vmap`` has no rule. The function here
computes the same from ``F.embedding``, masks and sums. Which entries belong to which bag is a mask too, so
that offsets may differ between examples.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from antiphon.errors import UnsupportedError

__all__ = ["REPLACEMENTS", "check_options"]


def check_options(name: str, max_norm: float | None, by_frequency: bool, is_sparse: bool) -> None:
    """Raise if a table is asked for what no sum of single gradients is."""
    if max_norm is not None or by_frequency:
        raise UnsupportedError(
            f"{name} with max_norm or scale_grad_by_freq changes weights, or gradients, in view of the "
            "data. Leave these options out."
        )
    if is_sparse:
        raise UnsupportedError(
            f"{name} with sparse=True: a private gradient has noise in every line, so it is not sparse. "
            "Leave the option out."
        )


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """What ``torch.nn.functional.embedding_bag`` returns for the same arguments."""
    check_options("F.embedding_bag", max_norm, scale_grad_by_freq, sparse)
    _check(input, offsets, mode, per_sample_weights)
    belongs = _belongs(input, offsets, include_last_offset)
    if padding_idx is not None:
        belongs = belongs & (input != padding_idx % len(weight))
    lines = F.embedding(input, weight, padding_idx)
    if per_sample_weights is not None:
        lines = lines * per_sample_weights[..., None]
    belongs = belongs[
        ..., None
    ]  # (bags, entries, 1), beside (bags, entries, width) or (entries, width)
    if mode == "max":
        return _largest(lines, belongs)
    total = torch.where(belongs, lines, 0.0).sum(-2)
    return total / belongs.sum(-2).clamp(min=1) if mode == "mean" else total


def _check(input: Tensor, offsets: Tensor | None, mode: str, weights: Tensor | None) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"mode must be 'sum', 'mean' or 'max'; got {mode!r}.")
    if weights is not None and (mode != "sum" or weights.shape != input.shape):
        raise ValueError(
            "per_sample_weights needs mode='sum' and the shape of the input; got "
            f"mode={mode!r}, {tuple(weights.shape)} and {tuple(input.shape)}."
        )
    if input.dim() != (2 if offsets is None else 1) or (offsets is not None and offsets.dim() != 1):
        raise ValueError(
            "the input of embedding_bag has two axes, or one and offsets with one; got "
            f"{tuple(input.shape)} and {None if offsets is None else tuple(offsets.shape)}."
        )


def _belongs(input: Tensor, offsets: Tensor | None, includes_last: bool) -> Tensor:
    """Whether an entry belongs to a bag: (bags, entries)."""
    if offsets is None:
        return torch.ones_like(input, dtype=torch.bool)
    place = torch.arange(len(input), device=input.device)
    is_begun = offsets[:, None] <= place
    if includes_last:
        return is_begun[:-1] & ~is_begun[1:]
    return is_begun & ~F.pad(is_begun[1:], (0, 0, 0, 1))


def _largest(lines: Tensor, belongs: Tensor) -> Tensor:
    """The largest of a bag's numbers, the first of equal ones; 0 for a bag without any."""
    # One line more, lest there be none.
    found = F.pad(torch.where(belongs, lines, -torch.inf), (0, 0, 0, 1), value=-torch.inf)
    return torch.where(belongs.any(-2), found.max(-2).values, 0.0)


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {F.embedding_bag: _embedding_bag}
