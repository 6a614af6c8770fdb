"""One step on a fixed-size batch without replacement, as a pair of profiles.

Poisson's pair does not hold here, although [KANCorrelated26, Thm. F.8] says so: the other records in the
batch tell whether a record is in it. With e >= 0, rate r and a = log(1 + (e^e - 1)/r), Φ the Gaussian
profile:

- replace-one: H(e) = r Φ(a; 2/κ), both ways [BalleBartheGaboardi18, Thm. 10];
- zero-out: from the data with the record to those without, r [(1 - b) Φ(a; 2/κ) + b Φ(a; 1/κ)] with
  b = e^(e - a); the other way r Φ(a; 1/κ). (The record's place in the batch is taken by another one, whose
  contribution may be opposite: at most 2; or by nothing: 1. Advanced joint convexity splits the two.)

For e < 0 each direction is the reflection of the other, H(-e) = 1 - e^-e + e^-e H'(e), which makes the pair
fit for adaptive composition; the lower convex hull in e^e of a valid bound is a valid bound.
"""

from typing import NamedTuple

import numpy as np

from antiphon.accounting.independent.gaussian import gaussian_delta
from antiphon.numerics import Series
from antiphon.participation import Relation

__all__ = ["Profiles", "profiles"]


class Profiles(NamedTuple):
    """δ at each ε of a grid: from the data to their neighbour, and back."""

    forth: Series
    back: Series


def profiles(
    rate: float, noise_multiplier: float, relation: Relation, epsilons: Series
) -> Profiles:
    """The two profiles of one step on an increasing grid of ε that is symmetric about 0."""
    positive = epsilons[epsilons >= 0]
    a = np.log1p(np.expm1(positive) / rate)
    double = gaussian_delta(2 / noise_multiplier, a)
    if relation is Relation.REPLACE_ONE:
        forth = back = rate * double
    else:
        single = gaussian_delta(1 / noise_multiplier, a)
        b = np.exp(positive - a)
        forth, back = rate * ((1 - b) * double + b * single), rate * single
    x = np.exp(epsilons)
    return Profiles(
        _hull(x, _reflect(positive, forth, back)), _hull(x, _reflect(positive, back, forth))
    )


def _reflect(positive: Series, own: Series, other: Series) -> Series:
    """The profile on the whole grid: ``own`` for ε >= 0, the reflection of ``other`` below."""
    negative = positive[positive > 0]
    shrink = np.exp(-negative)
    below = 1 - shrink + shrink * other[len(positive) - len(negative) :]
    return np.concatenate([below[::-1], own])


def _hull(x: Series, y: Series) -> Series:
    """Lower convex hull of the points, at x."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) >= 2:
            j, k = kept[-2], kept[-1]
            if (y[k] - y[j]) * (x[i] - x[j]) < (y[i] - y[j]) * (x[k] - x[j]):
                break
            kept.pop()
        kept.append(i)
    return np.interp(x, x[kept], y[kept])
