"""Exact Gaussian accounting: one release with sensitivity Δ and noise σ is μ-GDP with μ = Δ/σ.

Every mechanism without amplification is one such release, whatever its correlations and the unit's
participations: C⁻¹(Cg + z) is a function of Cg + z, and Cg moves by at most the sensitivity. That holds
for gradients chosen adaptively too, since C is lower triangular [Denisov22].
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from antiphon.errors import PlanError

__all__ = [
    "check_delta",
    "check_epsilon",
    "compose_gaussians",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_trade_off",
    "log_gaussian_delta",
]


def gaussian_delta(mu: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64]:
    """The smallest δ for which μ-GDP is (ε, δ)-DP, for each μ and ε.

    Guarantee:
        Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), tight [BalleWang18, Thm. 8]. Computed in logarithms, so that
        neither e^ε nor a tiny δ is lost; also for ε < 0, where it is at least 1 - e^ε.

    Example:
        >>> float(gaussian_delta(1.0, 1.0).round(6))
        0.126937
    """
    values = np.asarray(mu, dtype=np.float64)
    if not (values >= 0).all():
        raise PlanError(f"μ must be non-negative; got {mu!r}.")
    with np.errstate(over="ignore", invalid="ignore"):
        delta = np.exp(log_gaussian_delta(np.where(values > 0, values, 1.0), epsilon))
    return np.where(values > 0, delta, -np.expm1(np.minimum(epsilon, 0.0)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε >= 0 for which μ-GDP is (ε, δ)-DP.

    Guarantee:
        Tight [BalleWang18, Thm. 8], rounded up by at most 1e-12 relative.

    Example:
        >>> round(gaussian_epsilon(1.0, delta=1e-5), 4)
        4.3772
    """
    check_delta(delta)
    if not 0 <= mu < math.inf:
        raise PlanError(f"μ must be finite and non-negative; got {mu}.")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # Φ(μ/2 - ε/μ) <= δ is enough, which gives an ε that is surely large enough.
    high = mu * (mu / 2 - float(ndtri(delta))) + 1e-9
    target = math.log(delta)
    root = brentq(
        lambda e: float(log_gaussian_delta(mu, e)) - target, 0.0, high, xtol=1e-14, rtol=1e-14
    )
    epsilon = float(root)
    while gaussian_delta(mu, epsilon) > delta:
        epsilon += 1e-13 * max(1.0, epsilon)
    return epsilon


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ for which μ-GDP is (ε, δ)-DP: noise of sensitivity/μ is just enough.

    Example:
        >>> round(1 / gaussian_mu(1.0, 1e-5), 8)
        3.73063163
    """
    check_epsilon(epsilon)
    check_delta(delta)
    low, high = 1e-12, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2
    target = math.log(delta)
    mu = float(
        brentq(
            lambda m: float(log_gaussian_delta(m, epsilon)) - target,
            low,
            high,
            xtol=1e-16,
            rtol=1e-14,
        )
    )
    while gaussian_delta(mu, epsilon) > delta:
        mu *= 1 - 1e-14
    return mu


def compose_gaussians(mus: Iterable[float]) -> float:
    """μ of several releases, also chosen adaptively: the root of the sum of squares [DongRothSu22]."""
    return math.sqrt(math.fsum(mu**2 for mu in mus))


def gaussian_trade_off(mu: float, false_positive: ArrayLike) -> NDArray[np.float64]:
    """Largest true-positive rate of any test against μ-GDP at a false-positive rate [DongRothSu22]."""
    threshold = ndtri(np.asarray(false_positive, dtype=np.float64))
    return np.asarray(np.exp(log_ndtr(threshold + mu)))


def check_epsilon(epsilon: float) -> None:
    """Raise unless ε is a positive number."""
    if not 0 < epsilon < math.inf:
        raise PlanError(f"ε must be positive and finite; got {epsilon}.")


def check_delta(delta: float) -> None:
    """Raise unless δ is a probability strictly between 0 and 1."""
    if not 0 < delta < 1:
        raise PlanError(
            f"δ must lie strictly between 0 and 1; got {delta}. It is the probability with which the "
            "promise may fail: usual values are below one over the number of records."
        )


def log_gaussian_delta(mu: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64]:
    """Logarithm of `gaussian_delta`, for μ > 0 and also where δ itself is below the smallest float."""
    mu, epsilon = np.asarray(mu, dtype=np.float64), np.asarray(epsilon, dtype=np.float64)
    upper = log_ndtr(mu / 2 - epsilon / mu)
    ratio = epsilon + log_ndtr(-mu / 2 - epsilon / mu) - upper
    # Rounding can lift the ratio of two nearly equal terms to 0: then δ is below what float64 can tell.
    return np.asarray(upper + np.log(-np.expm1(np.minimum(ratio, -1e-300))))
