"""A sum and its noise, added in float64 and rounded once, onto a public grid.

What is released is k h. The spacing h is a power of two, between 2^−13 and 2^−12 of the noise's standard
deviation: it depends on public numbers alone. With s the sum, z̃ a normal of `antiphon.numerics` and c the
scale over h,

    a = s / h,    m = a, rounded,    k = m + ((a − m) + c z̃), rounded.

A division by h is exact, and so are m, a − m and the last sum while |a| < 2^52; beyond, s is on the grid,
and c z̃ alone is rounded. Two roundings are left, those of c z̃ and of the sum in brackets, however large s
is. Digits below h, which would tell what a number was made of [Mironov12; JinEtAl22; HaneyEtAl22], are not
released. A type too short for k h rounds it again: that is a function of k.

**The probability of a cell.** k is released if z̃ is in an interval of width w = h / scale, at least 2^−13.
There is an exact normal z next to z̃ (see `normals`). With the two roundings, for pairs of radius
2^−5 <= r <= 13.3,

    |z̃ − z| <= e(z) = 11η |z| + 2^−57,    η = 2^−53.

So the probability of k is at least that of the interval for z with both ends moved in by e, and at most
that with both ends moved out. The normal density changes by a factor below 1.01 within so little, hence

    |log(P(k) / P_Gauss(k))| <= 2.04 e(z) / w + rest <= 2^−35 (|z| + 2^−7)    for |z| <= 11.

The rest has two parts. Radii below 2^−5: in the shell 2^−j−1 <= r <= 2^−j, z̃ is off by 2^(j−64) more at
most, so with probability 2^−64 at most a pair is in the shell and on the wrong side of one end. With
r < 2^−32, which has probability 2^−65, this adds up to less than 2^−58 for both ends, less than 2^−43 of
the cell's probability. Radii above 13.3, which are left out: at |z| <= 11 these have less than 2^−43 of a
cell's probability.

For both numbers of a pair the same holds of the probability of their two cells: the bounds add up. Next to
0, with both cells within 2^−11, the shells have up to 2^−30 of it. So within r <= 13, which leaves out
2^−121, each number adds at most τ = 2^−31 to the log-ratio of any number of them. As pairs are independent,
that of N numbers exceeds 2 τ² N + 2 τ sqrt(N log(1/δ′)) with probability δ′ at most (Azuma): for N = 10^10
and δ′ = 10^−15, this is below 6e-4.

For correlated noise, x_t is in place of z_t: its own error in place of e, and w in units of the part of z_t
in x_t. That error is the sum of those of the z_s, times their weights, and of float64's in the mechanism's
recursion.
"""

import math

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

__all__ = ["add_noise", "spacing"]

_LONG = (torch.float32, torch.float64)
_BITS = 13
_LEAST = 2.0**-1022  # its inverse is a number, too


def spacing(deviation: float, dtype: torch.dtype) -> float:
    """The grid for noise of this standard deviation: at most 2^−12 of it, and more than 2^−13.

    Args:
        deviation: A public number.
        dtype: Of the result, which may be too short for so fine a grid next to 0.

    Example:
        >>> spacing(1.0, torch.float32) == 2**-12, spacing(0.99, torch.float32) == 2**-13
        (True, True)
    """
    kind = torch.finfo(dtype)
    _, exponent = math.frexp(max(deviation, _LEAST))
    return max(math.ldexp(1.0, exponent - _BITS), kind.tiny * kind.eps, _LEAST)


def add_noise(
    sums: Tensor, noise: Tensor, scale: float, out: Tensor, *, deviation: float | None = None
) -> None:
    """Write ``sums`` + ``scale`` × ``noise``, rounded onto the public grid, to ``out``.

    Args:
        sums: What is to be hidden.
        noise: Of the same shape, in float64, at unit scale: white, or correlated.
        scale: Standard deviation of the white noise, positive.
        out: Of the same shape, in any floating-point type; it may be ``noise``.
        deviation: Standard deviation of the noise that is new in this step; unless given, ``scale``.

    Guarantee:
        ``out`` is a function of the grid's point k alone, whose probability is Gaussian to the module's
        bound, whatever the sums and their size: zeros have no sign, and no digits are left below the grid.
        A sum that is not finite stays so.

    Example:
        >>> out = torch.empty(1)
        >>> add_noise(torch.tensor([0.1]), torch.zeros(1, dtype=torch.float64), 1.0, out)
        >>> float(out) * 2**12
        410.0
    """
    from antiphon.numerics.rounding import (
        fill_rounded,  # it loads a compiler, hence not before noise is added
    )

    step = spacing(scale if deviation is None else deviation, out.dtype)
    is_plain = out.dtype in _LONG and out.device.type == "cpu" and out.is_contiguous()
    found = out.detach() if is_plain else torch.empty(out.shape, dtype=_long(out), device="cpu")
    seen = _plain(sums).double() if found.dtype is torch.float64 else _plain(sums)
    *read, written = (t.view(-1).numpy() for t in (seen, _plain(noise).double(), found))
    fill_rounded()(*read, scale / step, 1 / step, step, written)
    if is_plain:
        increment_version(out)  # so that autograd knows what was written behind its back
    else:
        out.detach().copy_(found)


def _plain(tensor: Tensor) -> Tensor:
    """The same numbers where a compiled loop can read them."""
    return tensor.detach().to("cpu", _long(tensor)).contiguous()


def _long(tensor: Tensor) -> torch.dtype:
    """Its type, or float32 instead of a shorter one."""
    return tensor.dtype if tensor.dtype in _LONG else torch.float32
