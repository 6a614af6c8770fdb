"""When adaptively chosen runs must stop, by Rényi divergences of several orders at once.

Runs are chosen in view of all earlier outputs. Let L be the privacy loss of everything so far and R_α the
RDP of the runs so far at order α, both random. For each fixed α, exp((α - 1)(L - R_α)) is a supermartingale
of mean at most 1 [FeldmanZrnic21]: given the past, a run multiplies it by at most 1 in the mean. So is the
mixture M = Σ w_α exp((α - 1)(L - R_α)) with weights that were fixed in advance and add up to 1. A run is
admitted only if with it, for every value of L,

    (1 - exp(ε - L))+ <= δ Σ w_α exp((α - 1)(L - R_α)).                                   (*)

Then (*) holds whenever the interaction ends, and its mean is δ(ε) <= δ E[M] <= δ. One order of weight 1 is
[CanonneKamathSteinke20, Prop. 12]. To ask instead for any one order that is within a budget of its own, at
the full δ each, would let the surviving order depend on the outputs, and the mean of the largest of several
martingales may pass 1: so that is not used ([Lecuyer21] studies filters over sets of orders).
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from antiphon.accounting import NumericalProfile
from antiphon.errors import PlanError
from antiphon.numerics import Series

__all__ = ["RenyiFilter"]

_ROUNDING = 1e-12


@final
@dataclass(frozen=True)
class RenyiFilter:
    """Orders and weights, fixed before the first run.

    Attributes:
        orders: Rényi orders above 1.
        weights: Positive, of sum 1.

    Guarantee:
        If runs stop before `delta` of their summed RDP would pass δ, all of them together are (ε, δ)-DP,
        however they were chosen: see this module.
    """

    orders: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.orders or not all(1 < order < math.inf for order in self.orders):
            raise PlanError(f"a Rényi filter needs orders above 1; got {self.orders}.")
        if len(self.weights) != len(self.orders) or not all(w > 0 for w in self.weights):
            raise PlanError(f"each order needs a positive weight; got {self.weights}.")
        if not abs(math.fsum(self.weights) - 1) <= _ROUNDING:
            raise PlanError(f"the weights must add up to 1; got {math.fsum(self.weights)}.")

    @classmethod
    def for_budget(cls, epsilon: float, delta: float) -> "RenyiFilter":
        """Most weight on the order that is best for Gaussian runs, falling weights on smaller ones.

        Subsampled Gaussians need those: their divergences explode above some order. For ε = 2 and δ = 1e-5
        a Gaussian run may have 0.89 of the μ of a Gaussian ledger (with one order: 0.93), and Poisson plans
        of rate 0.01 have 0.45 to 0.93 of the steps that the best order would allow if it could be chosen
        afterwards (with one order: 0.003 to 1).
        """
        candidates = np.concatenate([np.arange(2.0, 65.0), 64 * 2.0 ** np.arange(1, 7)])
        # What [CanonneKamathSteinke20, Prop. 12] leaves for RDP at each order, per unit of α.
        allowed = epsilon - np.log1p(-1 / candidates)
        allowed += (math.log(delta) + np.log(candidates)) / (candidates - 1)
        best = float(candidates[np.argmax(allowed / candidates)])
        orders = sorted({max(1.25, round(4 * best * 0.85**k) / 4) for k in range(10)}, reverse=True)
        falling = 0.7 ** np.arange(len(orders))
        return cls(tuple(orders), tuple((falling / falling.sum()).tolist()))

    def delta(self, rdp: Series, epsilon: float) -> float:
        """The smallest δ for which (*) holds at these sums of RDP, rounded up."""
        power = np.array(self.orders) - 1
        offsets = np.log(self.weights) + power * (epsilon - np.asarray(rdp, dtype=np.float64))
        if not (offsets > -math.inf).any():
            return 1.0

        # With x = L - ε: log(1 - e^-x) - log Σ exp(offset + power x) is concave, so a tangent bounds it.
        def slope(x: float) -> float:
            return float(1 / np.expm1(x) - softmax(offsets + power * x) @ power)

        low, high = (math.log1p(1 / p) for p in (power.max(), power.min()))
        x = low if slope(low) <= 0 else high if slope(high) >= 0 else brentq(slope, low, high)
        top = math.log(-math.expm1(-x)) - float(logsumexp(offsets + power * x))
        return min(1.0, math.exp(min(0.0, top + abs(slope(x)) * (high - low) + _ROUNDING)))

    def epsilon(self, rdp: Series, delta: float) -> float:
        """The smallest ε for which (*) holds with this δ."""
        return NumericalProfile(lambda epsilon: self.delta(rdp, epsilon)).epsilon(delta)
