"""The three recursions that turn white noise into rows of C⁻¹z, on tensors.

Each passes over memory once: long tensors are cut into pieces that stay in the processor's cache while
all their buffers are combined. With ``donate`` the results overwrite the inputs; the numbers are the same
to the last bit.

On tensors below float64, torch multiplies by coefficients in float32. They are rounded towards zero: where
no entry of C is negative (λ-CGD, ν-FTRL, BLTs of positive scales), C and its sensitivity become a little
smaller, never larger. Rounded to the nearest, λ = 0.99999007583 would have a sensitivity 0.16 % above that
of its certificate over twenty epochs of ten thousand steps.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from antiphon.mechanisms.abstract_mechanism import Buffers

__all__ = ["buffered_step", "full_history", "moving_sum"]

# Numbers per piece: as many as torch leaves to one thread. Longer pieces are quicker while all cores are
# idle, but fifty times slower while one is at work elsewhere: every operation then waits for its threads.
_PIECE = 1 << 15


def moving_sum(
    z: Tensor,
    kept: Buffers,
    weights: Sequence[float],
    *,
    recursive: bool,
    donate: bool,
) -> tuple[Tensor, Buffers]:
    """The sum x = weights[0] z + Σ_i weights[i] kept[i - 1], where ``kept`` has the newest first.

    Args:
        z: White noise of this step.
        kept: The last outputs if ``recursive``, else the last inputs.
        weights: One more than the number of tensors to keep.
        recursive: Forward substitution in a banded C; else multiplication by a banded C⁻¹.
        donate: Whether ``z`` and ``kept`` may be overwritten.
    """
    white = z.contiguous()
    weights = _as_run(tuple(weights), z.dtype)
    room = len(weights) - 1
    leaves = len(kept) == room > 0
    # The oldest buffer leaves now, so its memory can take the sum.
    total = kept[-1] if donate and leaves else torch.empty_like(white)
    # What is kept is never what is returned: a caller may scale its noise in place.
    newest, x = (
        (total, white if donate else torch.empty_like(white)) if recursive else (white, total)
    )
    for out, returned, first, *terms in _pieces(total, x, white, *kept):
        if not terms:
            torch.mul(first, weights[0], out=out)
        elif weights[0] == 1:
            # The oldest first: where ``out`` is its memory, it is read before it is written.
            torch.add(first, terms[-1], alpha=weights[len(terms)], out=out)
        else:
            torch.mul(terms[-1], weights[len(terms)], out=out)
            out.add_(first, alpha=weights[0])
        for term, weight in zip(terms[:-1], weights[1:], strict=False):
            out.add_(term, alpha=weight)
        if recursive:
            returned.copy_(out)
    if not (recursive or donate):
        newest = white.clone()
    return x, (newest, *kept)[:room]


def buffered_step(
    z: Tensor, kept: Buffers, scales: Sequence[float], decays: Sequence[float], donate: bool
) -> tuple[Tensor, Buffers]:
    """One step of a BLT: x = z - Σ_j scales[j] s_j, then s_j ← decays[j] s_j + x [BLT24]."""
    contiguous = z.contiguous()
    scales, decays = (_as_run(tuple(some), z.dtype) for some in (scales, decays))
    x = contiguous if donate else torch.empty_like(contiguous)
    after = kept if donate else tuple(torch.empty_like(buffer) for buffer in kept)
    for white, out, *parts in _pieces(contiguous, x, *kept, *after):
        old, new = parts[: len(kept)], parts[len(kept) :]
        if not old:
            out.copy_(white)
        for i, (scale, s) in enumerate(zip(scales, old, strict=True)):
            torch.sub(out if i else white, s, alpha=scale, out=out)
        for decay, s, target in zip(decays, old, new, strict=True):
            torch.add(out, s, alpha=decay, out=target)
    return x, after


def full_history(
    z: Tensor, kept: Buffers, row: Sequence[float], donate: bool
) -> tuple[Tensor, Buffers]:
    """The sum x = Σ_s row[s] z_s over all steps so far, ``kept`` being the past z, oldest first."""
    white = z.contiguous()
    row = _towards_zero(row, z.dtype)
    x = torch.mul(white, row[len(kept)])
    for out, *parts in _pieces(x, *kept):
        for weight, past in zip(row, parts, strict=False):
            out.add_(past, alpha=weight)
    return x, (*kept, white if donate else white.clone())


@lru_cache(maxsize=64)
def _as_run(weights: tuple[float, ...], dtype: torch.dtype) -> tuple[float, ...]:
    return tuple(_towards_zero(weights, dtype))


def _towards_zero(weights: Sequence[float], dtype: torch.dtype) -> Sequence[float]:
    """The coefficients that torch multiplies tensors of this type by."""
    if dtype == torch.float64:
        return weights
    exact = np.asarray(weights, dtype=np.float64)
    near = exact.astype(np.float32)
    shorter = np.nextafter(near, np.float32(0))
    rounded: list[float] = np.where(np.abs(near) > np.abs(exact), shorter, near).tolist()
    return rounded


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same stretch of every (contiguous) tensor, one stretch after another."""
    flat = [tensor.view(-1) for tensor in tensors]
    for start in range(0, max(1, flat[0].numel()), _PIECE):
        yield tuple(tensor[start : start + _PIECE] for tensor in flat)
