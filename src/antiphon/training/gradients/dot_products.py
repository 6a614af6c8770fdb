"""``F.scaled_dot_product_attention`` of all examples at once.

Under ``torch.func.vmap`` tensors do not say that they require gradients, so torch may choose a kernel that
has none for the mask. Here the axis of the examples becomes part of the axis of the rows: torch chooses as
it would for a plain batch. Every row attends to itself only, so examples stay apart.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Size, Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from antiphon.training.gradients.taps import Taps

__all__ = ["CALLS"]


def _attend(
    taps: "Taps",
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What torch returns for each example."""
    q, k, v = (_of(taps, t) for t in (query, key, value))
    mask = None if attn_mask is None else _of(taps, attn_mask)
    options: dict[str, Any] = {"is_causal": is_causal, "scale": scale}
    if enable_gqa:
        options["enable_gqa"] = True
    is_batched = any(t is not None and taps.rows(t) is not None for t in (q, k, v, mask))
    # Draws have to be made by record, so dropout is left to vmap.
    if not (is_batched and taps.is_plain(q, k, v, mask) and _is_usual(q, k, v, mask)) or dropout_p:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, **options)
    lead = q.shape[:-2]
    q, k, v = (_merged(taps, t) for t in (q, k, v))
    mask = None if mask is None else _merged_mask(taps, mask, lead)
    out = F.scaled_dot_product_attention(q, k, v, mask, **options)
    return taps.batched(out.reshape(taps.count, *lead, *out.shape[-2:]))


def _of(taps: "Taps", tensor: Any) -> Tensor:
    return taps.tapped(tensor) if taps.is_trained(tensor) else tensor


def _is_usual(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether all have heads, and only axes of the mask have to be expanded."""
    return (
        q.ndim >= 3
        and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]
        and k.shape[-3] == v.shape[-3]
        and (mask is None or 2 <= mask.ndim <= q.ndim)
    )


def _merged(taps: "Taps", tensor: Tensor) -> Tensor:
    """From (rows, heads, length, width) for each example to (examples × rows, heads, length, width)."""
    found = taps.rows(tensor)
    if found is None:
        found = tensor.expand(taps.count, *tensor.shape)
    return found.flatten(0, -4)


def _merged_mask(taps: "Taps", mask: Tensor, lead: Size) -> Tensor:
    """The same for a mask, whose axes of length 1 stay so."""
    found = taps.rows(mask)
    found = mask[None] if found is None else found
    ones = (1,) * (len(lead) + 2 - mask.ndim)
    found = found.reshape(len(found), *ones, *mask.shape)
    if math.prod(found.shape[:-3]) > 1:
        found = found.expand(taps.count, *lead[:-1], *found.shape[-3:])
    return found.flatten(0, -4)


CALLS: dict[Callable[..., Any], Callable[..., Any]] = {F.scaled_dot_product_attention: _attend}
