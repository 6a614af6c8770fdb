"""Audits by one run with many canaries, each in or out by its own fair coin.

The attacker sees the output and guesses exactly c of the m coins; which ones may depend on the output,
c may not. Let p_i be the probability that exactly i guesses are right, and let the mechanism satisfy
Q(A) >= G(P(A)) for each single coin (`antiphon.audits.hypotheses`). [SteinkeNasrJagielski23] bounds P(at
least v right) for (ε, δ)-DP and [Mahloujifar24] for f-DP. The proofs are our own; docs/auditing.md has
them in full.

**One coin.** For a set S of numbers, flip coin j within the event "j is guessed rightly, and the number
of right guesses is in S": then j is guessed wrongly, and one guess less is right. Averaging over all
coins and over j, as G is convex,

    m G(M / m) <= D,    M = Σ_{i in S} i p_i,    D = Σ_{i in S} (c − i + 1) p_{i−1}.      (1)

**Any curve.** Take S = {w, w + 1, …}, w <= v, only. With M_w = Σ_{i>=w} i p_i and D_w = Σ_{i>=w} (c −
i) p_i, (1) reads D_{w−1} >= m G(M_w / m). Given P(at least v right) >= a, the least total mass Σ p_i is
that of the lazy law: mass a at v, and for i = v−1, …, 0 no more than (1) asks for. Proof: write * for
the lazy law, and X_i for the mass that p has at i and above in excess of it. Downwards from i = v, by
induction,

    X_i >= 0    and    Y_i = (c − i) X_i − (D_i − D_i*) >= 0.                             (2)

It holds for v, where D_v <= (c − v) Σ_{i>=v} p_i. Suppose it for i. Then M_i − M_i* = i X_i + Y_i >= 0,
so D_{i−1} >= m G(M_i / m) >= m G(M_i* / m). If p*_{i−1} = 0, then X_{i−1} >= X_i. Else the right side
is D*_{i−1}, hence (c − i + 1)(p_{i−1} − p*_{i−1}) >= D_i* − D_i = Y_i − (c − i) X_i, so that X_{i−1} >=
X_i / (c − i + 1). Either way X_{i−1} >= 0, and Y_{i−1} = X_i + Y_i >= 0. ∎ If the lazy law has mass
above 1, P(at least v right) < a.

**(ε, δ)-DP.** Here (1) for every S says Σ_i (i p_i − e^ε (c − i + 1) p_{i−1})₊ <= m δ. Let b be the
binomial law of c trials with odds e^ε, B_w its upper tails, and p_i = b_i h_i. As i b_i = e^ε (c − i +
1) b_{i−1}, the condition is Σ_i i b_i (h_i − h_{i−1})₊ <= m δ. Summation by parts of Σ b_i h_i (1[i >=
v] − B_v) gives

    P(at least v right) − B_v = Σ_{w>=1} (h_w − h_{w−1}) K_w <= m δ max_w K_w / (w b_w),

where K_w = B_v (1 − B_w) for w <= v and B_w (1 − B_v) for w >= v. Binomial laws are log-concave, so the
quotient grows up to w = v and falls from there:

    P(at least v right) <= B_v + m δ B_v (1 − B_v) / (v b_v),                              (3)

with equality for h constant but for one jump at v: no more can be had from (1). For δ = 0 it is the
binomial tail of [SteinkeNasrJagielski23].
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtr
from scipy.stats import binom

from antiphon.audits.hypotheses import AbstractCurve, GaussianCurve, PointCurve
from antiphon.audits.trial_bounds import check_confidence, check_count
from antiphon.checks import positive, whole

__all__ = [
    "epsilon_from_one_run",
    "guesses_for",
    "is_refuted",
    "least_mass",
    "mu_from_one_run",
    "point_tail",
]

_ROUNDING = 1e-9  # far above what rounding can add to the mass or the tail


def is_refuted(
    curve: AbstractCurve, right: int, guesses: int, canaries: int, confidence: float
) -> bool:
    """Whether so many right guesses in one run refute a curve.

    Args:
        curve: The hypothesis: how the output's law may change when one coin is flipped.
        right: How many of the guesses were right.
        guesses: How many of the coins were guessed. Fixed in advance; which ones is free.
        canaries: How many fair, independent coins there were.
        confidence: One minus the probability of refuting what is true, in (0, 1).

    Guarantee:
        A curve that holds is refuted with probability at most 1 − confidence, whatever the mechanism and
        the attack. `GaussianCurve` and other curves use the lazy law, `PointCurve` the limit (3) of the
        module, which is never weaker.

    Example:
        >>> is_refuted(PointCurve(1.0, 1e-5), right=90, guesses=100, canaries=1000, confidence=0.95)
        True
        >>> is_refuted(PointCurve(2.0, 1e-5), right=90, guesses=100, canaries=1000, confidence=0.95)
        False
    """
    check_count("guesses", guesses, "canaries", canaries)
    check_count("right", right, "guesses", guesses)
    failure = 1 - check_confidence(confidence)
    if right == 0:
        return False
    if isinstance(curve, PointCurve):
        return point_tail(curve, right, guesses, canaries) <= failure * (1 - _ROUNDING)
    return least_mass(curve, failure, right, guesses, canaries) > 1 + _ROUNDING


def mu_from_one_run(right: int, guesses: int, canaries: int, confidence: float) -> float:
    """Largest μ that one run with many canaries refutes; 0 if there is none.

    Args:
        right: How many of the guesses were right.
        guesses: How many of the coins were guessed. Fixed in advance, for instance by `guesses_for`.
        canaries: How many fair, independent coins there were.
        confidence: Probability with which the bound holds, in (0, 1).

    Guarantee:
        If the mechanism is μ-GDP in each coin, the result exceeds μ with probability at most
        1 − confidence. Only refuted values are returned, so the search costs no confidence: the smallest
        number of right guesses that refutes some μ' >= μ is reached with probability at most that.

    Example:
        >>> round(mu_from_one_run(1017, 1500, 100_000, confidence=0.95), 4)
        0.1982
    """
    is_out = partial(
        is_refuted, right=right, guesses=guesses, canaries=canaries, confidence=confidence
    )
    return _largest(lambda mu: is_out(GaussianCurve(mu)))


def epsilon_from_one_run(
    right: int, guesses: int, canaries: int, delta: float, confidence: float
) -> float:
    """Largest ε that one run with many canaries refutes for a given δ; 0 if there is none.

    Args:
        right: How many of the guesses were right.
        guesses: How many of the coins were guessed. Fixed in advance.
        canaries: How many fair, independent coins there were.
        delta: The δ for which ε is asked, in [0, 1).
        confidence: Probability with which the bound holds, in (0, 1).

    Guarantee:
        If the mechanism is (ε, δ)-DP in each coin, the result exceeds ε with probability at most
        1 − confidence. For a Gaussian mechanism `mu_from_one_run`, and the ε of that μ, says much more.

    Example:
        >>> round(epsilon_from_one_run(95, 100, 1000, delta=1e-5, confidence=0.95), 4)
        2.1719
    """
    is_out = partial(
        is_refuted, right=right, guesses=guesses, canaries=canaries, confidence=confidence
    )
    return _largest(lambda epsilon: is_out(PointCurve(epsilon, delta)))


def guesses_for(canaries: int, mu: float, confidence: float = 0.95) -> int:
    """How many coins to guess, so that the bound on μ is large if the mechanism leaks μ.

    The coins move independent normal scores by ±μ/2, and the largest in absolute value are guessed. Of
    about 30 numbers, the one with the largest bound at the expected outcome is taken: few guesses are
    surer, many vary less.

    Guarantee:
        None is needed: the bounds hold for every number that is fixed in advance, as this one is.

    Example:
        >>> guesses_for(10_000, mu=1.0)
        464
    """
    m, mu = whole("canaries", canaries), positive("mu", mu)
    grid = np.unique(np.geomspace(1, m, 28).round().astype(int))

    def bound(c: int) -> float:
        return mu_from_one_run(round(m * _share_right(c / m, mu)), c, m, confidence)

    return max(map(int, grid), key=bound)


def least_mass(
    curve: AbstractCurve, reached: float, right: int, guesses: int, canaries: int
) -> float:
    """Total mass of the lazy law with mass ``reached`` at ``right``, or some number above 1.

    Guarantee:
        At most Σ p_i for every p that obeys (1) for upper sets and has P(at least v right) >= ``reached``.

    Example:
        >>> round(least_mass(PointCurve(0.0, 0.0), 0.05, right=8, guesses=10, canaries=10), 4)
        0.8567
    """
    c, m = guesses, canaries
    M, D = right * reached, (c - right) * reached
    for i in reversed(range(right)):
        wanted = m * curve.inverse(min(1.0, M / m))
        if wanted <= D or (M + D) / c > 1 + 2 * _ROUNDING:
            break  # nothing is asked for now, nor below; or there is too much mass already
        M, D = M + i * (wanted - D) / (c - i), wanted
    return (M + D) / c


def point_tail(curve: PointCurve, right: int, guesses: int, canaries: int) -> float:
    """Largest probability of so many right guesses under (ε, δ)-DP that (1) allows.

    Guarantee:
        The limit (3), at most 1; for δ = 0 the tail of the binomial law with odds e^ε.

    Example:
        >>> round(point_tail(PointCurve(0.0, 0.0), right=8, guesses=10, canaries=10), 4)
        0.0547
    """
    law = binom(guesses, expit(curve.epsilon))
    tail, mass = float(law.sf(right - 1)), float(law.pmf(right))
    if curve.delta == 0 or tail == 1:
        return tail
    if mass > 0:
        hazard = tail / mass
    else:  # below the smallest float: far above the mode, a geometric series is above the tail
        ratio = math.exp(curve.epsilon) * (guesses - right) / (right + 1)
        hazard = 1 / (1 - ratio) if ratio < 1 else math.inf
    return min(1.0, tail + canaries * curve.delta * hazard * (1 - tail) / right)


def _largest(is_out: Callable[[float], bool], rtol: float = 1e-9) -> float:
    """Largest refuted value, by bisection; 0 if none is. What is refuted is refuted below, too."""
    if not is_out(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_out(high):
        low, high = high, 2 * high
    while high - low > rtol * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_out(middle) else (low, middle)
    return low


def _share_right(share: float, mu: float) -> float:
    """Share of canaries guessed rightly, if this share with the largest scores is guessed."""
    if share == 1:
        return float(ndtr(mu / 2))
    cut = brentq(lambda z: ndtr(mu / 2 - z) + ndtr(-mu / 2 - z) - share, 0.0, 40.0 + mu)
    return float(ndtr(mu / 2 - cut))
