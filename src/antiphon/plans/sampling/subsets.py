"""Random subsets, orders and bins, as functions of uniform 64-bit words.

Every comparison is between integers, and nothing depends on how many words were fetched at a time. So one
key gives one schedule on every platform: a run that resumes elsewhere meets the batches that its noise
was drawn for.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import PlanError

__all__ = ["below", "bernoulli", "order", "subset"]

Rows: TypeAlias = NDArray[np.int64]
Words: TypeAlias = Callable[[int], NDArray[np.uint64]]
"""The first so many words of one address: a larger count extends a smaller one."""

_REACH = 2**16  # longest gap of one word: half a megabyte of thresholds, made in 20 ms
_HALF_WORD = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


def bernoulli(words: Words, n: int, rate: float) -> Rows:
    """The rows out of n that come up, each with probability ``rate`` and independently; ascending.

    One word gives the gap to the next row, so the cost is O(rate × n). A gap of 1 / ``rate`` or more skips
    that many rows and is drawn anew, which changes nothing, since such gaps have no memory: so no word
    decides about anything much rarer than ``rate``.

    Guarantee:
        For rates of at least 2**-60, a batch of m rows has its probability up to a factor of
        exp(± 2**-61 (m / rate + n)): no logarithm is taken and no word rounded. A rate of 1 gives all
        rows. Rows that are added at the end leave the others as they were.
    """
    if rate == 1:
        return np.arange(n)
    thresholds = _thresholds(rate)
    reach = len(thresholds)
    step = -math.expm1(reach * math.log1p(-rate)) / rate  # mean rows passed by a word
    for count in _growing(n / step):
        gaps = thresholds.searchsorted(words(count), side="right")
        ends = np.minimum(gaps + 1, reach).cumsum()  # the rows passed so far
        if ends[-1] >= n:
            return ends[(gaps < reach) & (ends <= n)] - 1
    raise AssertionError  # pragma: no cover


def subset(words: Words, n: int, size: int) -> Rows:
    """A uniform set of ``size`` rows out of n; ascending.

    It is made of the first distinct numbers below n, at a cost of O(size log size). A set of more than
    half of the rows is the rest of such a set.

    Guarantee:
        Exact for uniform numbers; those of `below` are uniform up to 2**-64.
    """
    if 2 * size > n:
        kept = np.ones(n, dtype=np.bool_)
        kept[subset(words, n, n - size)] = False
        return np.flatnonzero(kept)
    for count in _growing(-n * math.log1p(-size / n)):
        values, first = np.unique(below(words(count), n), return_index=True)
        if len(values) >= size:
            return values[np.sort(np.argsort(first)[:size])]
    raise AssertionError  # pragma: no cover


def order(words: Words, n: int) -> Rows:
    """A uniform order of n rows: that of their words.

    Guarantee:
        Words that are equal, which happens with a probability below n² 2**-65, are ordered by second ones.
    """
    keys = words(n)
    places = np.argsort(keys)
    ranked = keys[places]
    if (ranked[1:] == ranked[:-1]).any():
        return np.lexsort((words(2 * n)[n:], keys))
    return places


def below(words: NDArray[np.uint64], limit: int) -> Rows:
    """For each word a whole number below ``limit``: the integer part of limit × word / 2**64.

    Guarantee:
        Each number has the probability 1 / limit up to 2**-64.
    """
    if limit > 2**32:
        raise PlanError(f"at most 2**32 rows or bins can be told apart; got {limit}.")
    # The product has 96 bits: multiply the halves of the word and carry.
    factor: Any = np.uint64(limit)
    carry = (words & _LOW) * factor >> _HALF_WORD
    return ((words >> _HALF_WORD) * factor + carry >> _HALF_WORD).view(np.int64)


def _growing(expected: float) -> Iterator[int]:
    """Counts of words: four standard deviations more than expected, then twice as many each time."""
    count = int(expected + 4 * math.sqrt(expected)) + 8
    while True:
        yield count
        count *= 2


@lru_cache(maxsize=16)
def _thresholds(rate: float) -> NDArray[np.uint64]:
    """P(gap < k) × 2**64 for k = 1, 2, …, rounded: a gap is the number of thresholds up to its word."""
    reach = int(min(1 / rate, _REACH))
    stay = 2**128 - int(rate * 2.0**128)  # fixed point, since float64 cannot hold 64 bits
    powers = accumulate(repeat(stay, reach), lambda power, factor: power * factor >> 128)
    table = np.array([2**128 - power + 2**63 >> 64 for power in powers], dtype=np.uint64)
    table.flags.writeable = False
    return table
