"""One step on a Poisson batch, as a pair of profiles: a Gaussian mixture against one Gaussian.

With M = (1 - r) N(0, κ²) + r N(1, κ²), Q = N(0, κ²) and Φ the Gaussian profile of 1/κ, both directions are
exact at every e, also negative ones [ZhuWang19; BalleBartheGaboardi18]:

- M against Q: M - e^e Q = r (P - e^a Q) with e^a = (e^e - 1 + r)/r, so the divergence is r Φ(a); where
  e^e <= 1 - r it is 1 - e^e, since M is above e^e Q everywhere;
- Q against M: Q - e^e M = c (Q - e^b P) with c = 1 - (1 - r) e^e and e^b = r e^e / c, so it is c Φ(b), or 0
  where c <= 0.
"""

import math

import numpy as np
from scipy.special import ndtri

from antiphon.accounting.independent.fixed_size_step import Profiles
from antiphon.accounting.independent.gaussian import gaussian_delta
from antiphon.numerics import Series

__all__ = ["profiles", "reach"]

_TAIL = float(-ndtri(0.5 * math.exp(-50)))  # standard deviations beyond which 1e-22 is left


def profiles(rate: float, noise: float, epsilons: Series) -> Profiles:
    """δ at each ε: from the data with the record to those without, and back."""
    x = np.exp(epsilons)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inside = rate + np.expm1(epsilons)
        a = np.log(np.where(inside > 0, inside, 1.0) / rate)
        forth = np.where(inside > 0, rate * gaussian_delta(1 / noise, a), -np.expm1(epsilons))
        c = rate - (1 - rate) * np.expm1(epsilons)
        b = np.log(rate * x / np.where(c > 0, c, 1.0))
        back = np.where(c > 0, c * gaussian_delta(1 / noise, b), 0.0)
    return Profiles(forth, back)


def reach(rate: float, noise: float) -> tuple[float, float]:
    """The smallest and the largest privacy loss of M against Q that has a probability worth counting."""
    low, high = (-_TAIL * noise - 0.5) / noise**2, (1 + _TAIL * noise - 0.5) / noise**2
    return (
        math.log1p(rate * math.expm1(low)),
        high + math.log(rate + (1 - rate) * math.exp(-high)),
    )
