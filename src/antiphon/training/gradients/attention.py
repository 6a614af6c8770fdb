"""Multi-head attention written with linear maps that a mode can see.

``torch.nn.functional.multi_head_attention_forward`` reads all of its weights inside one call. The function
here computes the same. Self-attention is one ``F.linear`` with the whole packed weight. Other attention
needs rows of the packed weight: it calls ``linear_rows``, which a ``TorchFunctionMode`` sees as a call of
its own, with the whole weight among its arguments.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function_variadic

__all__ = ["REPLACEMENTS", "linear_rows"]

Sources = tuple[Tensor, Tensor, Tensor]  # for queries, keys and values


def linear_rows(x: Tensor, weight: Tensor, bias: Tensor | None, start: int, stop: int) -> Tensor:
    """``F.linear`` with rows ``start`` to ``stop`` of a weight and its bias; a mode sees the call."""
    if has_torch_function_variadic(x, weight, bias):
        tensors = (x, weight, bias)
        seen: Tensor = handle_torch_function(linear_rows, tensors, *tensors, start, stop)
        return seen
    return F.linear(x, weight[start:stop], None if bias is None else bias[start:stop])


def _multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What ``torch.nn.functional.multi_head_attention_forward`` returns for the same arguments."""
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    length = len(key) if static_k is None else static_k.shape[1]
    _check_sources(query, key, value, embed_dim_to_check, num_heads)
    _check_bias((bias_k, bias_v), (static_k, static_v))
    _check_masks(query, length, num_heads, key_padding_mask, attn_mask)
    if is_causal and attn_mask is None:
        raise ValueError("is_causal=True needs attn_mask; give the causal mask too, as to torch.")
    projected = _projected((query, key, value), in_proj_weight, separate, in_proj_bias)
    is_batched = query.dim() == 3
    q, k, v = projected if is_batched else (part.unsqueeze(1) for part in projected)
    q = _heads(q, num_heads)
    k = _extended(k, bias_k, static_k, add_zero_attn, num_heads)
    v = _extended(v, bias_v, static_v, add_zero_attn, num_heads)
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the kernel's own causal mask stands for it
    else:
        is_causal = False
    mask = _mask(attn_mask, key_padding_mask, num_heads, q.dtype)
    if mask is not None:
        mask = F.pad(mask, (0, k.shape[2] - length))
    mixed, weights = _attend(q, k, v, mask, dropout_p if training else 0.0, is_causal, need_weights)
    output = F.linear(mixed.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if is_batched:
        return output, weights
    return output.squeeze(1), None if weights is None else weights.squeeze(0)


def _check_sources(query: Tensor, key: Tensor, value: Tensor, width: int, num_heads: int) -> None:
    if query.dim() not in (2, 3) or query.shape[-1] != width or width % num_heads:
        raise ValueError(
            f"the query must be (length, {width}) or (length, rows, {width}), with a width that "
            f"{num_heads} heads divide; got {tuple(query.shape)}."
        )
    if key.shape[:-1] != value.shape[:-1] or key.shape[1:-1] != query.shape[1:-1]:
        raise ValueError(
            "key and value must be as long as each other, with as many rows as the query; got "
            f"{tuple(key.shape)}, {tuple(value.shape)} and {tuple(query.shape)}."
        )


def _check_bias(biases: tuple[Tensor | None, ...], statics: tuple[Tensor | None, ...]) -> None:
    given = [bias for bias in biases if bias is not None]
    if len(given) == 1 or (given and any(static is not None for static in statics)):
        raise ValueError("bias_k and bias_v go together, and without static_k and static_v.")


def _check_masks(
    query: Tensor, length: int, num_heads: int, padding: Tensor | None, mask: Tensor | None
) -> None:
    queries, *rows = query.shape[:-1]
    scores = (math.prod(rows) * num_heads, queries, length)
    for name, tensor, shapes in (
        ("attn_mask", mask, (scores[1:], scores)),
        ("key_padding_mask", padding, ((*rows, length),)),
    ):
        if tensor is None:
            continue
        if tensor.shape not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise ValueError(f"{name} must have shape {wanted}; got {tuple(tensor.shape)}.")
        if tensor.dtype is not torch.bool and not tensor.is_floating_point():
            raise ValueError(f"{name} must be boolean or of floating point; got {tensor.dtype}.")


def _projected(
    sources: Sources,
    packed: Tensor | None,
    separate: tuple[Tensor | None, ...] | None,
    bias: Tensor | None,
) -> tuple[Tensor, ...]:
    """Queries, keys and values, all heads beside each other."""
    query, key, value = sources
    if separate is not None:
        parts = tuple(
            F.linear(x, _given(weight)) for x, weight in zip(sources, separate, strict=True)
        )
        if bias is None:
            return parts
        return tuple(part + row for part, row in zip(parts, bias.chunk(3), strict=True))
    width, weight = query.shape[-1], _given(packed)
    if key is not value:
        starts = (0, width, 2 * width)
        return tuple(
            linear_rows(x, weight, bias, start, start + width)
            for x, start in zip(sources, starts, strict=True)
        )
    if query is key:
        return F.linear(query, weight, bias).chunk(3, -1)
    queries = linear_rows(query, weight, bias, 0, width)
    return queries, *linear_rows(key, weight, bias, width, 3 * width).chunk(2, -1)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """From (length, rows, width) to (rows, heads, length, width of a head)."""
    return torch.unflatten(x, -1, (num_heads, -1)).permute(1, 2, 0, 3)


def _extended(
    x: Tensor, bias: Tensor | None, static: Tensor | None, add_zero_attn: bool, num_heads: int
) -> Tensor:
    """Keys or values by head: the projected ones and a bias, or the static ones; then a zero."""
    rows = x.shape[1]
    if bias is not None:
        x = torch.cat([x, bias.expand(1, rows, -1)])
    heads = (
        _heads(x, num_heads) if static is None else torch.unflatten(static, 0, (rows, num_heads))
    )
    return F.pad(heads, (0, 0, 0, 1)) if add_zero_attn else heads


def _mask(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, num_heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Both masks as one that is added to the scores: (rows or 1, heads or 1, queries or 1, keys)."""
    total: Tensor | None = None
    if attn_mask is not None:
        total = _added(attn_mask, dtype)
        total = (
            total[None, None] if total.dim() == 2 else torch.unflatten(total, 0, (-1, num_heads))
        )
    if key_padding_mask is not None:
        padding = _added(key_padding_mask, dtype)
        padding = padding.reshape(-1, 1, 1, padding.shape[-1])
        total = padding if total is None else total + padding
    return total


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Values mixed by attention, by head, and the weights if they are asked for."""
    if not need_weights:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal), None
    scores = (q * math.sqrt(1 / q.shape[-1])) @ k.mT
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ v, weights


def _given(weight: Tensor | None) -> Tensor:
    if weight is None:
        raise ValueError(
            "a projection weight is missing: attention needs in_proj_weight, or q_proj_weight, "
            "k_proj_weight and v_proj_weight with use_separate_proj_weight=True."
        )
    return weight


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.multi_head_attention_forward: _multi_head_attention
}
