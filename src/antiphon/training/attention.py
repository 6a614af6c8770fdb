"""Multi-head attention whose projections can be seen.

``nn.MultiheadAttention`` multiplies by its weights in one functional call, so that no hook sees what goes
into them. While a model is trained privately, its attention layers run this equal computation instead.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiphon.training.factors import AbstractFactor, Blocks, Dense
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
    gradients: tuple[Tensor, ...],
) -> tuple[Factors, Factors]:
    """Factors of the layer's own parameters, and of those of its ``out_proj``."""
    (q, k, v, heads), (gq, gk, gv, gout) = inputs, gradients
    width = layer.embed_dim
    out = matrix("weight", layer.out_proj.weight, heads, gout)
    if layer.out_proj.bias is not None:
        out["bias"] = Dense(gout.sum(1))
    pairs = ((q, gq), (k, gk), (v, gv))
    if layer.in_proj_weight is None:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        own: Factors = {}
        for name, (x, g) in zip(names, pairs, strict=True):
            own |= matrix(name, getattr(layer, name), x, g)
    else:
        parts: list[AbstractFactor] = [
            matrix("w", layer.in_proj_weight[:width], x, g)["w"] for x, g in pairs
        ]
        own = {"in_proj_weight": Blocks(parts, [width] * 3)}
    if layer.in_proj_bias is not None:
        own["in_proj_bias"] = Dense(torch.cat([g.sum(1) for _, g in pairs], dim=1))
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
