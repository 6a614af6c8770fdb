"""Standard normals from uniform words: a radius and a point of the circle for each pair of words.

Two words of 64 bits make two normals, r times the coordinates of the point (Box and Muller, 1958):

- the first word, w in [0, 2^64), stands for u = (w + 1/2) / 2^64, and r = sqrt(−2 log u);
- the second gives t = (π/4) k / 2^62, where k is odd: its bits but for the two highest, the lowest
  replaced by 1. The point is (cos t, sin t), or (sin t, cos t) if that lowest bit was 1. The highest
  bit makes its first coordinate negative, the next bit the second.

**The tail.** A word w < 2^48 has lost the digits of a small u. It gets 128 more bits v, and stands for
u = (w 2^128 + v) / 2^192: of this number the 64 bits from the highest 1 on are kept, or the last 64, and
1/2 of the last of them is added.

Three bits of the second word choose signs and places alone, so the law of a pair is symmetric and
exchangeable exactly, also after rounding. The extreme words are no exceptions: as u is at least 2^−193
and at most 1 − 2^−65, all numbers are finite, at most 16.36, and none is 0.

Each step is an addition, multiplication, division or square root of IEEE 754, rounded on its own (the
compiler may not fuse them), or exact: the numbers are the same, bit for bit, wherever these are.

**How far a number is from a normal.** With the rounding unit η = 2^−53, the relative errors are at most
2.5η for r, 3.5η for cos t and 4.5η for sin t, hence 8η for a number: to first order, each of the operations
below adds η, times its share of the result. Now let U be uniform within the cell of u, of width 2^−64 (in
the tail u 2^−63, down to u = 2^−128), and t uniform within its own. Then r and t of these make exact
normals. U differs from u by half a cell, and r has the slope 1 / (u r): the number z̃ that is computed is
next to an exact normal z,

    |z̃ − z| <= 8η |z| + |z| d(r) / r + 2^−62 r,    d(r) = 2^−65 exp(r²/2) / r    for r <= sqrt(32 log 2),
                                                    d(r) = 2^−63 / r            for r <= 13.3.

For 2^−5 <= r <= 13.3, d(r) / r is below η. Nothing is said of r > 13.3, which has probability 2^−127.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import no_type_check

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from antiphon.numerics.compiled import compiled

__all__ = ["SMALL", "extended", "fill_normals", "fill_tails"]

SMALL = 2**48  # words below get more bits

# Polynomials, highest power first: mpmath's ``chebyfit`` in 40 digits, rounded.
#
#     log      4 (atanh(√z) / √z − 1) / z    for z in [0, 1/25]
#     sine     sin(π/4 √q) / √q              for q in [0, 1]
#     cosine   (cos(π/4 √q) − 1) / q         for q in [0, 1]
#
# Before rounding they are exact to 2^−54, 2^−58 and 2^−62. The first is multiplied by z / 4 < 2^−6 in its
# share of a logarithm.
_LOG = (
    0.27208031414248157,
    0.2642072097026524,
    0.3077766935560383,
    0.3636347690944605,
    0.44444446075614485,
    0.5714285713467838,
    0.800000000000156,
    1.3333333333333333,
)
_SINE = (
    6.877360573166326e-12,
    -1.7571500746983935e-09,
    3.133616225433416e-07,
    -3.657620415891387e-05,
    0.002490394570188844,
    -0.08074551218828054,
    0.7853981633974483,
)
_COSINE = (
    -3.863156948832656e-13,
    1.1500679700940496e-10,
    -2.4611366238309744e-08,
    3.590860447448612e-06,
    -0.0003259918869271996,
    0.015854344243815488,
    -0.30842513753404244,
)
_LOG_4 = 1.3862943611198906

_LOW_MASK = np.int64(2**11 - 1)  # bits of a word that a float64 has no room for
_HIGH_MASK = np.int64(2**53 - 1)
_LOW_UNIT = 2.0**-11
_EXPONENT = np.int64(-1 << 52)
# The last number below (4/3) 2^53, and 2^−52, by their bits.
_TOP = np.int64(np.float64(4 / 3 * 2.0**53).view(np.int64) - 1)
_UNIT = np.float64(2.0**-52).view(np.int64)
_ODD_MASK, _ODD_UNIT = np.int64(2**62 - 1), 2.0**-62
_SIGN, _SMALL_MASK = np.int64(-1 << 63), np.int64(-1 << 48)


@lru_cache(maxsize=1)
def fill_normals() -> Callable[..., int]:
    """The compiled function that turns words into normals, and says which need more bits.

    It takes signed words in whole groups of 512, those of the radii before those of the directions; an
    array for the normals, which may end within the last group; and one for the pairs with a small word,
    numbered from the first, with room for all. It returns the number of these. It runs in the calling
    thread and lets others run.
    """
    return compiled(_normals, "int64(int64[::1], float64[::1], int64[::1])")


@lru_cache(maxsize=1)
def fill_tails() -> Callable[..., None]:
    """The compiled function that writes single pairs again.

    It takes the words, the pairs' numbers, the words and exponents (see `extended`) that belong to their
    u, and the normals.
    """
    return compiled(_tails, "void(int64[::1], int64[::1], int64[::1], int64[::1], float64[::1])")


def extended(word: int, more: int) -> tuple[int, int]:
    """The small ``word`` with 128 ``more`` bits, as (m, e): u = (m + 1/2) / 2^(64 + e); m is signed."""
    whole = word << 128 | more
    shift = max(0, whole.bit_length() - 64)
    m = whole >> shift
    return m - (m >> 63 << 64), 128 - shift


# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@intrinsic
def _bits(typing, number):
    """The bits of a floating-point number as a word."""
    return types.int64(
        types.float64
    ), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(types.int64)
    )


@no_type_check
@intrinsic
def _number(typing, bits):
    """The floating-point number that has these bits."""
    return types.float64(
        types.int64
    ), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(types.float64)
    )


@no_type_check
@njit(nogil=True, error_model="numpy")
def _polynomial(coefficients, x):
    """Horner's scheme; the loop is unrolled, as the number of coefficients is known."""
    y = coefficients[0]
    for c in coefficients[1:]:
        y = y * x + c
    return y


@no_type_check
@njit(nogil=True, error_model="numpy")
def _radius(word, exponent):
    """sqrt(−2 log u), where u is 2^−exponent times that of the word."""
    # 2^53 u = f + rest, exactly: f is rounded, rest is what it lacks.
    f_high = np.float64((word >> 11) & _HIGH_MASK)
    f_low = (np.float64(word & _LOW_MASK) + 0.5) * _LOW_UNIT
    f = f_high + f_low
    rest = (f_high - f) + f_low
    # u = 2^−n (1 + y/2) with |y| <= 2/3, where f alone decides on n.
    n = (_TOP - _bits(f)) & _EXPONENT
    scale = _number(n + _UNIT)
    y = (f * scale - 2.0) + rest * scale
    # 2 log(1 + y/2) = 4 atanh(s) = y − s (y − 4 (atanh(s)/s − 1)), as 4 s = y − s y.
    s = y / (4.0 + y)
    z = s * s
    small = s * (y - z * _polynomial(_LOG, z))
    large = np.float64((n >> 52) + exponent) * _LOG_4
    total = large - y
    return np.sqrt(total + (((large - total) - y) + small))


@no_type_check
@njit(nogil=True, error_model="numpy")
def _coordinate(r, direction, place):
    """The first (0) or second (1) number of a pair; what both share is computed once."""
    k = np.float64((direction | 1) & _ODD_MASK) * _ODD_UNIT
    q = k * k
    a = r * (1.0 + q * _polynomial(_COSINE, q))
    b = r * (k * _polynomial(_SINE, q))
    size = b if ((direction ^ place) & 1) != 0 else a
    return _number(_bits(size) ^ ((direction << place) & _SIGN))


@no_type_check
def _normals(words, normals, found):
    spare, count = np.empty(512), 0
    for g in range(0, len(words), 512):
        radii, directions = words[g : g + 256], words[g + 256 : g + 512]
        group = normals[g : g + 512] if g + 512 <= len(normals) else spare
        firsts, seconds = group[:256], group[256:]
        for i in range(256):
            r, direction = _radius(radii[i], 0), directions[i]
            firsts[i] = _coordinate(r, direction, 0)
            seconds[i] = _coordinate(r, direction, 1)
        smallest = 0
        for i in range(256):
            smallest += np.int64((radii[i] & _SMALL_MASK) == 0)
        if smallest:
            for i in range(256):
                if (radii[i] & _SMALL_MASK) == 0:
                    found[count] = (g >> 1) + i
                    count += 1
    done = len(normals) // 512 * 512
    normals[done:] = spare[: len(normals) - done]
    return count


@no_type_check
def _tails(words, pairs, longer, exponents, normals):
    for j in range(len(pairs)):
        place = 512 * (pairs[j] >> 8) + (pairs[j] & 255)
        r, direction = _radius(longer[j], exponents[j]), words[place + 256]
        if place < len(normals):
            normals[place] = _coordinate(r, direction, 0)
        if place + 256 < len(normals):
            normals[place + 256] = _coordinate(r, direction, 1)
