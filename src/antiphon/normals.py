"""Standard normals from uniform words: a radius and a point of the circle for each pair of words.

Two words of b bits make two normals, r times the coordinates of the point (Box and Muller, 1958):

- the first word, w in [0, 2^b), stands for u = (w + 1/2) / 2^b, and r = sqrt(−2 log u);
- the second gives t = (π/4) k / 2^(b−2), where k is odd: its bits but for the two highest, the lowest
  replaced by 1. The point is (cos t, sin t), or (sin t, cos t) if that lowest bit was 1. The highest
  bit makes its first coordinate negative, the next bit the second.

Three bits of the second word thus choose signs and places alone, so the law of a pair is symmetric and
exchangeable exactly, also after rounding. The extreme words are no exceptions: as u is at least 2^−b−1
and at most 1 − 2^−b−1, all numbers are finite and none is 0.

Each step is an addition, multiplication, division or square root of IEEE 754, rounded on its own (the
compiler may not fuse them), or exact: the numbers are the same, bit for bit, wherever these are.

With rounding units η = 2^−24 and 2^−53, the relative errors are at most 2.5η for r, 3.5η for cos t and
4.5η for sin t, hence 8η for a normal: to first order, each of the operations below adds η, times its
share of the result. Since u steps by 2^−b, |P(r > x) − exp(−x²/2)| <= 2^−b−1 + 2.5η x² exp(−x²/2).
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, no_type_check

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["box_muller"]


class _Format(NamedTuple):
    """Floating-point numbers as long as the words, and what is needed to compute with them.

    The polynomials, highest power first, are mpmath's ``chebyfit`` in 40 digits, rounded:

        log      4 (atanh(√z) / √z − 1) / z    for z in [0, 1/25]
        sine     sin(π/4 √q) / √q              for q in [0, 1]
        cosine   (cos(π/4 √q) − 1) / q         for q in [0, 1]

    Before rounding they are exact to 2^−19, 2^−28 and 2^−32 (32 bits) and to 2^−54, 2^−58 and 2^−62
    (64 bits). The first is multiplied by z / 4 < 2^−6 in its share of a logarithm.
    """

    word: Any
    real: Any
    log: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


_FORMATS = {
    32: _Format(
        np.int32,
        np.float32,
        log=(0.5991121, 0.79958034, 1.3333343),
        sine=(-3.595429e-05, 0.0024900069, -0.080745436, 0.7853982),
        cosine=(3.5419528e-06, -0.0003259614, 0.015854338, -0.30842513),
    ),
    64: _Format(
        np.int64,
        np.float64,
        log=(
            0.27208031414248157,
            0.2642072097026524,
            0.3077766935560383,
            0.3636347690944605,
            0.44444446075614485,
            0.5714285713467838,
            0.800000000000156,
            1.3333333333333333,
        ),
        sine=(
            6.877360573166326e-12,
            -1.7571500746983935e-09,
            3.133616225433416e-07,
            -3.657620415891387e-05,
            0.002490394570188844,
            -0.08074551218828054,
            0.7853981633974483,
        ),
        cosine=(
            -3.863156948832656e-13,
            1.1500679700940496e-10,
            -2.4611366238309744e-08,
            3.590860447448612e-06,
            -0.0003259918869271996,
            0.015854344243815488,
            -0.30842513753404244,
        ),
    ),
}


@lru_cache(maxsize=2)
def box_muller(bits: int) -> Callable[[NDArray[Any], NDArray[Any]], None]:
    """The compiled function that turns words of 32 or 64 bits into normals.

    It takes signed words in whole groups of 512, those of the radii before those of the directions,
    and an array for the normals, which may end within the last group. It runs in the calling thread
    and lets others run.
    """
    kernel = _kernel(bits, _FORMATS[bits])
    signature = f"void(int{bits}[::1], float{bits}[::1])"
    compiled = partial(njit, signature, nogil=True, error_model="numpy")  # and not fastmath
    try:
        return compiled(cache=True)(kernel)
    except (OSError, RuntimeError):  # no place for the cache: compiled for this process alone
        return compiled()(kernel)


def _type(bits: int, kind: str) -> Any:
    return getattr(types, f"{kind}{bits}")


# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@intrinsic
def _bits(typing, number):
    """The bits of a floating-point number as a word."""
    word = _type(number.bitwidth, "int")
    return word(number), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(word)
    )


@no_type_check
@intrinsic
def _number(typing, bits):
    """The floating-point number that has these bits."""
    real = _type(bits.bitwidth, "float")
    return real(bits), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(real)
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
def _kernel(bits, form):
    word, real = form.word, form.real
    log, sine, cosine = (tuple(map(real, c)) for c in (form.log, form.sine, form.cosine))
    half, one, two, four, double_log_2 = map(real, (0.5, 1, 2, 4, 1.3862943611198906))
    mantissa = np.finfo(real).nmant
    low = bits - mantissa - 1  # bits of a word that a real number has no room for
    high_mask, low_mask = word((1 << mantissa + 1) - 1), word((1 << low) - 1)
    low_unit = real(2.0**-low)
    exponent = word(-1 << mantissa)
    # The last number below (4/3) 2^(mantissa+1), and 2^−mantissa, by their bits.
    top = word(real(4 / 3 * 2.0 ** (mantissa + 1)).view(word) - 1)
    unit = real(2.0**-mantissa).view(word)
    sign, odd, odd_mask = word(-1 << bits - 1), word(1), word((1 << bits - 2) - 1)
    odd_unit = real(2.0 ** (2 - bits))

    # Numba makes longer integers of short ones: each word(...) undoes it, so that vectors stay full.
    def fill(words, normals):
        spare = np.empty(512, real)
        for g in range(0, len(words), 512):
            radii, directions = words[g : g + 256], words[g + 256 : g + 512]
            group = normals[g : g + 512] if g + 512 <= len(normals) else spare
            firsts, seconds = group[:256], group[256:]
            for i in range(256):
                # 2^(mantissa+1) u = f + rest, exactly: f is rounded, rest is what it lacks.
                f_high = real(word(word(radii[i] >> low) & high_mask))
                f_low = (real(word(radii[i] & low_mask)) + half) * low_unit
                f = f_high + f_low
                rest = (f_high - f) + f_low
                # u = 2^−n (1 + y/2) with |y| <= 2/3, where f alone decides on n.
                n = word(word(top - _bits(f)) & exponent)
                scale = _number(word(n + unit))
                y = (f * scale - two) + rest * scale
                # 2 log(1 + y/2) = 4 atanh(s) = y − s (y − 4 (atanh(s)/s − 1)), as 4 s = y − s y.
                s = y / (four + y)
                z = s * s
                small = s * (y - z * _polynomial(log, z))
                large = real(word(n >> mantissa)) * double_log_2
                total = large - y
                r = np.sqrt(total + (((large - total) - y) + small))

                direction = directions[i]
                k = real(word(word(direction | odd) & odd_mask)) * odd_unit
                q = k * k
                a = r * (one + q * _polynomial(cosine, q))
                b = r * (k * _polynomial(sine, q))
                is_swapped = word(direction & odd) != 0
                first, second = _bits(b if is_swapped else a), _bits(a if is_swapped else b)
                firsts[i] = _number(word(first ^ word(direction & sign)))
                seconds[i] = _number(word(second ^ word(word(direction << 1) & sign)))
        done = len(normals) // 512 * 512
        normals[done:] = spare[: len(normals) - done]

    return fill
