"""A lower bound on the risk of every private algorithm, by a tracing attack: Theorem 7 with its constants.

Inputs are uniform in [-1, 1]^d, labels ReLU(w·x) + N(0, σ²), and w is within the unit ball. A member's
score <M - w, z x 1[w·x > 0]> has mean of order σ²d/N if M is accurate, a non-member's has mean 0, and
privacy bounds the difference.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from scipy.optimize import brentq
from scipy.special import erfc, log_ndtr

from antiphon.checks import positive, whole
from antiphon.errors import PlanError

__all__ = ["BOUNDARY", "TRUNCATED_VARIANCE", "LowerBound", "theorem_7", "theorem_7_printed"]

_MASS = math.erf(1 / math.sqrt(2))  # of a standard normal within [-1, 1]

BOUNDARY = 2 * math.exp(-0.5) / math.sqrt(2 * math.pi) / _MASS
"""2 p(1) of a standard normal truncated to [-1, 1]: the boundary term that the paper drops, 0.708875."""

TRUNCATED_VARIANCE = 1 - BOUNDARY
"""k = E v² of the same, 0.291125; what stands for the paper's 1."""

_ENDS = (
    "the boundary terms of the truncated prior are dropped: they are not negative for estimators whose "
    "mean grows from one end of the prior to the other, as that of every nearly unbiased one does"
)


@final
@dataclass(frozen=True)
class LowerBound:
    """What no (ε, δ)-private algorithm can beat on the worst distribution of the class.

    Attributes:
        theorem: Where it stands.
        risk: The bound on the excess risk; 0 where it says nothing.
        squared_error: The bound on E‖M - w‖² in the norm of the covariance I/3.
        left: What a perfectly accurate algorithm would show to the attack, k σ²d.
        remainder: What δ allows to be shown, whatever the accuracy.
        without_privacy: σ²d/N, for comparison: GLMtron's risk without privacy, to leading order.
        unproved: What is missing in its proof.
    """

    theorem: str
    risk: float
    squared_error: float
    left: float
    remainder: float
    without_privacy: float
    unproved: tuple[str, ...] = ()

    @property
    def is_vacuous(self) -> bool:
        """Whether nothing follows: δ alone allows what the attack would find."""
        return self.remainder >= self.left

    @property
    def verdict(self) -> str:
        """One sentence on what the number is worth."""
        if self.is_vacuous:
            factor = self.remainder / self.left
            return f"vacuous: δ is too large, its remainder is {factor:.3g} times what the attack can find"
        share = self.risk / self.without_privacy if self.without_privacy else math.inf
        return f"not vacuous; {share:.3g} of GLMtron's risk without privacy"


def theorem_7(n: int, d: int, label_noise: float, epsilon: float, delta: float) -> LowerBound:
    """The lower bound of [ReLURegression25, Thm. 7] with explicit and sharper constants.

    k σ²d (1 - sqrt(MSE/k)) <= N sinh(ε) σ sqrt(MSE_Σ/2) + N (1 + e^-ε) δ T + N ∫_T^∞ P(|T_i| > t) dt, where
    MSE = 3 MSE_Σ, |<M - w, x>| <= 2 sqrt(d) (both are in the unit ball), and T is the best cut. The risk is
    at least MSE_Σ/8.

    Args:
        n: N.
        d: Inputs.
        label_noise: σ.
        epsilon: ε.
        delta: δ.

    Guarantee:
        Holds up to ``unproved``. The sharpenings need that a non-member's score is symmetric, since its z
        is, and that half of the records are active.

    Example:
        >>> theorem_7(16_512, 10, 0.5, 0.5, 16_512**-1.1).verdict
        'vacuous: δ is too large, its remainder is 11.1 times what the attack can find'
        >>> bound = theorem_7(16_512, 10, 0.5, 0.5, 16_512**-2.0)
        >>> f"{bound.risk:.3g}"
        '7.11e-09'
    """
    sigma = _check(n, d, label_noise, epsilon, delta)
    scale = (
        2 * math.sqrt(d) * sigma
    )  # a score is at most this times |z|/σ, and 0 on half of the records

    def over(t: float) -> float:
        return 0.5 * float(erfc(t / scale / math.sqrt(2)))

    def remainder(T: float) -> float:
        tail = 0.5 * scale * _tail(T / scale)
        return n * ((1 + math.exp(-epsilon)) * delta * T + tail)

    cut = _root(lambda t: over(t) - (1 + math.exp(-epsilon)) * delta, 40 * scale)
    slope = n * math.sinh(epsilon) * sigma / math.sqrt(2)
    return _solved(
        "ReLURegression25, Thm. 7, with constants", n, d, sigma, slope, remainder(cut), 1 / 8
    )


def theorem_7_printed(
    n: int, d: int, label_noise: float, epsilon: float, delta: float
) -> LowerBound:
    """The same by the paper's own steps, with k for its 1: 2ε sqrt(MSE_Σ), |<M - w, x>| <= sqrt(d), 1/4.

    Guarantee:
        None: the bound on <M - w, x> needs ‖M - w‖ <= 1, and 1/4 must be 1/8 (`risk_bounds`).
    """
    sigma = _check(n, d, label_noise, epsilon, delta)
    T = math.sqrt(2 * d * math.log(1 / delta)) * sigma
    scale = math.sqrt(d) * sigma
    # 2 exp(-t²/(2dσ²)) is integrated, as printed, and not the normal tail itself.
    tail = scale * math.sqrt(2 * math.pi) * float(erfc(T / scale / math.sqrt(2)))
    remainder = n * (2 * delta * T + tail)
    slope = 2 * n * epsilon * sigma
    return _solved("ReLURegression25, Thm. 7, as printed", n, d, sigma, slope, remainder, 1 / 4)


def _solved(
    theorem: str, n: int, d: int, sigma: float, slope: float, remainder: float, share: float
) -> LowerBound:
    """The smallest MSE_Σ = r² with left (1 - r sqrt(3/k)) <= slope r + remainder."""
    left = TRUNCATED_VARIANCE * sigma**2 * d
    r = max(0.0, left - remainder) / (slope + left * math.sqrt(3 / TRUNCATED_VARIANCE))
    return LowerBound(
        theorem, share * r**2, r**2, left, remainder, sigma**2 * d / n, unproved=(_ENDS,)
    )


def _tail(u: float) -> float:
    """∫_u^∞ P(|v| > t) dt for a standard normal v: 2 (φ(u) - u Φ(-u))."""
    density = math.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
    return max(0.0, 2 * (density - u * math.exp(float(log_ndtr(-u)))))


def _root(falling: Callable[[float], float], high: float) -> float:
    """Where a falling function is 0; 0 if it is negative there."""
    return float(brentq(falling, 0.0, high)) if falling(0.0) > 0 else 0.0


def _check(n: int, d: int, label_noise: float, epsilon: float, delta: float) -> float:
    whole("n", n), whole("d", d), positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise PlanError(f"δ must lie strictly between 0 and 1; got {delta}.")
    return positive("label_noise", label_noise)
