"""Multi-head attention whose projections can be seen.

``nn.MultiheadAttention`` multiplies by its weights in one functional call, so that no hook sees what goes
into them. While a model is trained privately, its attention layers run this equal computation instead.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiphon.training.factors import Blocks, Dense, at_least_single
from antiphon.training.rules import Factors, matrix

__all__ = ["attend", "projections"]

Note = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], None]


def attend(
    layer: nn.MultiheadAttention,
    note: Note,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What the layer's own ``forward`` returns; ``note`` receives the ends of its four projections."""
    if query.ndim != 3:
        raise ValueError(
            f"attention needs a batch: (rows, length, width); got {tuple(query.shape)}."
        )
    if is_causal and attn_mask is None:
        raise ValueError("is_causal=True needs attn_mask, as in the layer's own forward.")
    if not layer.batch_first:
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    inputs = (query, key, value)
    q, k, v = _projected(layer, inputs)
    bias = _mask(layer, q, k, attn_mask, key_padding_mask)
    heads, weights = _heads(layer, q, k, v, bias, need_weights)
    out = F.linear(heads, layer.out_proj.weight, layer.out_proj.bias)
    note((*inputs, heads), (q, k, v, out))
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return (out if layer.batch_first else out.transpose(0, 1)), weights


def projections(
    layer: nn.MultiheadAttention,
    inputs: tuple[Tensor, ...],
    gradients: tuple[Tensor | None, ...],
) -> tuple[Factors, Factors]:
    """Factors of the layer's own parameters, and of those of its ``out_proj``.

    A projection without a gradient (None) leads to no trained parameter, and has no factor.
    """
    pairs, heads, last = tuple(zip(inputs, gradients, strict=True))[:3], inputs[3], gradients[3]
    out, own = Factors(), Factors()
    if last is not None:
        out |= matrix("weight", layer.out_proj.weight, heads, last)
        if layer.out_proj.bias is not None:
            out["bias"] = Dense(at_least_single(last).sum(1))
    known = [(x, g) for x, g in pairs if g is not None]
    if layer.in_proj_weight is None:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        for name, (x, g) in zip(names, pairs, strict=True):
            if g is not None:
                own |= matrix(name, getattr(layer, name), x, g)
    elif len(known) == 3:
        width = layer.embed_dim
        parts = [matrix("w", layer.in_proj_weight[:width], x, g)["w"] for x, g in known]
        own["in_proj_weight"] = Blocks(parts, [width] * 3)
    if layer.in_proj_bias is not None and len(known) == 3:
        own["in_proj_bias"] = Dense(torch.cat([at_least_single(g).sum(1) for _, g in known], dim=1))
    return own, out


def _projected(layer: nn.MultiheadAttention, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if layer.in_proj_weight is None:
        weights = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    else:
        weights = layer.in_proj_weight.chunk(3)
    biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    return tuple(F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True))


def _mask(
    layer: nn.MultiheadAttention,
    q: Tensor,
    k: Tensor,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
) -> Tensor | None:
    """Both masks as one that is added to the scores: (rows or 1, heads or 1, queries, keys)."""
    total: Tensor | None = None
    if attn_mask is not None:
        total = _added(attn_mask, q)
        if total.ndim == 3:
            total = total.view(len(q), layer.num_heads, q.shape[1], k.shape[1])
    if key_padding_mask is not None:
        padding = _added(key_padding_mask, q)[:, None, None, :]
        total = padding if total is None else total + padding
    return total


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)


def _heads(
    layer: nn.MultiheadAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """The heads beside each other, and the attention weights if they are asked for."""
    shape = (layer.num_heads, layer.head_dim)
    q, k, v = (x.view(*x.shape[:2], *shape).transpose(1, 2) for x in (q, k, v))
    dropout = layer.dropout if layer.training else 0.0
    if not need_weights:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(2), None
    scores = q @ k.mT / math.sqrt(layer.head_dim)
    weights = torch.softmax(scores if bias is None else scores + bias, dim=-1)
    weights = F.dropout(weights, dropout)
    return (weights @ v).transpose(1, 2).flatten(2), weights
