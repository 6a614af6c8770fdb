"""Rényi divergences of one step from its two profiles, at any order above 1.

For any P and Q, with H(x) = E[(P - xQ)+] and H' that of Q and P [BalleBartheGaboardi18],

    exp((α - 1) D_α(P ‖ Q)) = 1 + α(α - 1) ∫_1^∞ [x^(α-2) H(x) + x^(-α-1) H'(x)] dx:

Taylor's formula for x^α at 1, of second derivative α(α - 1) x^(α-2), with the mean under Q taken inside.

H is convex in x, so between two points it lies below the chord of any upper bounds at these points: the
integral of the chords is a bound, whatever the grid. Beyond the grid a Gaussian tail is added. This serves
fixed-size batches, whose profiles are bounds and no pair of known distributions, and the fractional orders
of Poisson batches, where dp-accounting's series takes alternating terms with their absolute values.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr, logsumexp

from antiphon.accounting.independent.gaussian import log_gaussian_delta
from antiphon.numerics import Series
from antiphon.participation import Relation

__all__ = ["fixed_size_rdp", "poisson_rdp"]

_TAIL = 12.0  # standard deviations beyond the integrand's peak
_ROUNDING = 1e-11  # relative, of the sums below; the profile adds about 2e-13/μ by cancellation


def poisson_rdp(rate: float, noise: float, orders: Sequence[float]) -> Series:
    """RDP of one Poisson step under add-remove or zero-out: the larger of both directions.

    Guarantee:
        An upper bound, within 0.1 % of the exact divergence at orders up to 16 [ZhuWang19].
    """
    return np.array([_poisson(rate, noise, order) for order in orders])


def fixed_size_rdp(
    rate: float, noise: float, relation: Relation, orders: Sequence[float]
) -> Series:
    """RDP of one step on a fixed-size batch without replacement, under replace-one or zero-out.

    Guarantee:
        An upper bound, from the profiles of `fixed_size_step`; never above the Gaussian
        without amplification, which joint quasi-convexity allows.
    """
    plain = 0.5 * relation.amplitude**2 / noise**2
    return np.array([min(a * plain, _fixed_size(rate, noise, relation, a)) for a in orders])


def _poisson(rate: float, noise: float, order: float) -> float:
    """With the profiles of `antiphon.accounting.independent.poisson_step`, divided by the rate."""
    a, log_x = _grid(rate, 1 / noise, order)
    share = 1 - (1 - rate) * np.expm1(np.minimum(a, 50.0))  # c / r
    inside = np.where(share > 0, share, 1.0)
    back = np.log(inside) + log_gaussian_delta(1 / noise, log_x - np.log(inside))
    forth = log_gaussian_delta(1 / noise, a)
    return _bound(order, rate, 1 / noise, log_x, forth, np.where(share > 0, back, -np.inf))


def _fixed_size(rate: float, noise: float, relation: Relation, order: float) -> float:
    a, log_x = _grid(rate, 2 / noise, order)
    double, single = (log_gaussian_delta(mu / noise, a) for mu in (2, 1))
    if relation is Relation.REPLACE_ONE:
        return _bound(order, rate, 2 / noise, log_x, double, double)
    b = np.minimum(np.exp(log_x - a), 1.0)
    with np.errstate(divide="ignore"):
        forth = np.logaddexp(np.log1p(-b) + double, np.log(b) + single)
    return _bound(order, rate, 2 / noise, log_x, forth, single)


def _end(mu: float, order: float) -> float:
    return mu**2 * (max(order - 1, 1.0) + 0.5) + _TAIL * mu


def _grid(rate: float, mu: float, order: float) -> tuple[Series, Series]:
    """Points a up to well beyond the integrand's peak, and the logarithm of x = 1 - r + r e^a."""
    end = _end(mu, order)
    a = np.linspace(0.0, end, int(np.clip(8 * order * end, 1000, 8000)))
    return a, a + np.log1p((1 - rate) * np.expm1(-a))


def _bound(
    order: float, rate: float, mu: float, log_x: Series, forth: Series, back: Series
) -> float:
    """D_α, the larger direction, from the logarithms of both profiles over the rate."""
    end = _end(mu, order)
    if order * float(np.diff(log_x).max()) > 500:
        return math.inf  # cells so wide that nothing is gained over the bound without amplification
    # Both profiles are at most r Φ(a) <= r exp(-t²/2)/2 with t = a/μ - μ/2; beyond the grid's last point
    # x / e^a only falls, and dx = r e^a da: past the end, two Gaussian integrals.
    k = max(order - 1, 1.0)
    past = math.log(mu * math.sqrt(2 * math.pi) * rate) + 0.5 * k * (k + 1) * mu**2
    past += float(log_ndtr(-_TAIL)) + (k - 1) * float(log_x[-1] - end)
    sums = [
        logsumexp([_chords(log_x, one, order - 1), _chords(log_x, other, -order), past])
        for one, other in ((forth, back), (back, forth))
    ]
    log_excess = math.log(order * (order - 1) * rate) + max(sums) + _ROUNDING + 2e-13 / mu
    return float(np.logaddexp(0.0, log_excess)) * (1 + _ROUNDING) / (order - 1)


def _chords(log_x: Series, log_h: Series, power: float) -> float:
    """Logarithm of the integral of x^(power - 1) times the chords of h."""
    step = np.diff(log_x)
    with np.errstate(invalid="ignore"):
        ratio = np.exp(np.nan_to_num(np.minimum(np.diff(log_h), 0.0), nan=-np.inf, neginf=-np.inf))
    first, second = (np.expm1(p * step) / p for p in (power, power + 1))
    weight = first - (1 - ratio) * (second - first) / np.expm1(step)
    # Rounding must not make a weight vanish that is positive.
    weight = np.maximum(weight, 1e-12 * first)
    return float(logsumexp(log_h[:-1] + power * log_x[:-1], b=weight))
