"""Conversions of zCDP to (ε, δ), [BunSteinke16] and the sharper one of [CorrelatedNoise24]."""

import math

from scipy.optimize import minimize_scalar

from antiphon.accounting import check_delta
from antiphon.errors import PlanError

__all__ = ["bun_steinke_epsilon", "sharp_zcdp_epsilon"]


def bun_steinke_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP at δ: ρ + 2 sqrt(ρ log(1/δ)) [BunSteinke16, Prop. 1.3].

    Example:
        >>> round(bun_steinke_epsilon(0.5, 1e-5), 8)
        5.29852591
    """
    check_delta(delta)
    _check_rho(rho)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def sharp_zcdp_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP at δ: the best order of the sharp conversion [CorrelatedNoise24, App. A.2].

    Guarantee:
        Every order gives a bound, so an imperfect minimum is one too. Still not tight for Gaussian noise:
        `gaussian_epsilon` of μ = sqrt(2ρ) is.

    Example:
        >>> round(sharp_zcdp_epsilon(0.5, 1e-5), 8)
        4.72838698
    """
    check_delta(delta)
    _check_rho(rho)

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α - 1
        log_order = math.log1p(excess)
        return rho * (1 + excess) - (log_order + math.log(delta)) / excess + log_excess - log_order

    best = math.log(math.log(1 / delta) / rho) / 2  # the minimum without the two small terms
    found = minimize_scalar(
        bound, bounds=(best - 5, best + 5), method="bounded", options={"xatol": 1e-10}
    )
    return max(0.0, min(float(found.fun), bound(best)))


def _check_rho(rho: float) -> None:
    if not 0 < rho < math.inf:
        raise PlanError(f"ρ must be positive and finite; got {rho}.")
