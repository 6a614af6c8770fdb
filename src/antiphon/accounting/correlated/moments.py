"""Moments of the likelihood ratio: a deterministic accountant for correlated noise under Poisson sampling.

The dominating pair [KANCorrelated26, Thm. F.8, for Poisson sampling] is Q = N(0, κ²I) and P, the law of
x = |C|y + κz with y_s ~ Bernoulli(r) independent. Below C >= 0, c_s is column s of C, G_su = <c_s, c_u>/κ²,
μ_s² = G_ss, and ρ_s the sum of G_su over u ≠ s. Under Q, X_s = <x, c_s>/(κ‖c_s‖) are standard normal
with correlations R_su = G_su/(μ_s μ_u). With g_s = μ_s X_s − μ_s²/2 the likelihood ratio is

    L = dP/dQ = E_y exp(Σ_s y_s g_s − Σ_{s<u} y_s y_u G_su).

**1. It is nearly a product.** Let l_s = 1 − r + r e^{g_s} and w_s = r e^{g_s}/l_s. Then L is Π l_s times
the mean of exp(−Σ_{s<u} y_s y_u G_su) over independent y_s ~ Bernoulli(w_s). That mean is at most 1 and,
by Jensen, at least exp(−Σ_{s<u} w_s w_u G_su), where 2 w_s w_u <= w_s² + w_u². *For every x*,

    Π_s l_s exp(−ρ_s w_s²/2) <= L <= Π_s l_s.

**2. Hölder's inequality for normal variables.** If p_s >= 1 and diag(p) − R is positive semidefinite, then
E Π f_s(X_s) <= Π (E f_s(X_s)^{p_s})^{1/p_s} for all f_s >= 0 [ChenDafnisPaouris15]. *Proof.* Let P_τ be the
Ornstein-Uhlenbeck semigroup, u_s = log P_τ f_s^{p_s}, so that ∂_τ u = u'' + u'² − X u', and v_s = u_s'/p_s.
Let Φ(τ) = E exp(Σ u_s/p_s), which goes from the left side at τ = 0 to the right side at τ = ∞.
By parts, E[X_s h] = Σ_u R_su E[∂_u h], which leaves dΦ/dτ = E[exp(Σ u_s/p_s) vᵀ(diag(p) − R)v] >= 0. ∎

As R >= 0, Σ R_su a_s a_u <= Σ R_su (μ_u/μ_s) a_s²: p_s = Σ_u R_su μ_u/μ_s = 1 + ρ_s/μ_s² will do. For small
steps (l_s nearly exp(r g_s)) nothing is lost by it: the inequality is then an equality.

**3. From moments to δ.** With both, for every α > 1 and β > 0,

    log E_Q L^α  <= Σ_s (1/p_s) log E l_s^{α p_s}                       =: m(α),
    log E_Q L^−β <= Σ_s (1/p_s) log E (l_s exp(−ρ_s w_s²/2))^{−β p_s}     =: n(β),

integrals in one dimension. (L − e^ε)₊ <= L^α e^{−(α−1)ε} (α−1)^{α−1}/α^α, which bounds H(P‖Q), and
(1 − e^ε L)₊ <= L^−β e^{−βε} β^β/(1+β)^{1+β}, which bounds H(Q‖P). For independent noise p_s = 1, ρ_s = 0
and both moments are exact: the route is the Rényi accountant of DP-SGD.

**4. Rounding up is safe.** A further release, whose only entry in C is for y_s, raises ‖c_s‖ and not
ρ_s; its pair dominates, since the release can be forgotten. The bounds also grow with ρ_s and with p_s at a
given ρ_s (a norm in L^p). So columns with nearly the same (‖c_s‖, ρ_s) are counted together, rounded up.
"""

import math
from typing import no_type_check

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import brentq

from antiphon.accounting.account import Account, effective_noise
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.independent.gaussian import check_delta, check_epsilon
from antiphon.errors import PlanError, UnsupportedError
from antiphon.participation import Relation
from antiphon.plans import Event, GaussianRelease, Plan, Poisson

__all__ = ["account", "least_noise", "log_moment"]

Array = NDArray[np.float64]

_ORDERS = np.geomspace(0.05, 2000.0, 72)  # α − 1 and β; each is valid, the account takes the best
_MOST_STEPS = 8192  # a T x T encoder is kept
_MOST_TOEPLITZ_STEPS = 50_000  # T² products, but no matrix
_ROUND = 0.02  # columns whose norm and overlap agree within this share are counted as one
_REACH = 12.0  # integrals end where the integrand falls this fast; the rest is bounded
_MOST_POINTS = 6_000  # an order that needs more is left out


def account(plan: Plan) -> Account:
    """δ(ε) from bounds on the moments of the likelihood ratio, in both directions.

    Guarantee:
        The module's derivation, for Poisson sampling under add-remove and zero-out and any encoder, with
        releases beside training. Integrals are bounded from above to a relative 1e-9.
    """
    moments = _log_moments(plan, _columns(plan), _ORDERS)

    def curve(epsilon: float) -> float:
        logs = (moments + _factor(_ORDERS, epsilon)).min(axis=1).max()
        return math.exp(min(0.0, float(logs)))

    return Account(
        route="moments",
        profile=NumericalProfile(curve),
        theorem=(
            "moments of the likelihood ratio, bounded by a product over participations and Hölder's "
            "inequality for normal variables"
        ),
        references=("ChenDafnisPaouris15", "KANCorrelated26"),
        is_tight=False,
    )


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """A noise multiplier at which `account` proves (ε, δ), at most 0.02 % above the least."""
    check_epsilon(epsilon)
    check_delta(delta)
    columns = _columns(plan)

    def excess(log_noise: float, orders: Array) -> float:
        logs = _log_deltas(plan.with_noise(math.exp(log_noise)), columns, orders, epsilon)
        return min(50.0, float(logs.min(axis=1).max()) - math.log(delta))

    few = _ORDERS[::6]
    low = high = math.log(columns[:, 0].max())
    while excess(high, few) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(1e6):
            raise UnsupportedError(
                f"no noise below a multiplier of a million is enough for ε = {epsilon} at δ = {delta}."
            )
    while low == high or excess(low, few) <= 0:
        low, high = low - math.log(2), low
        if low < math.log(1e-3):
            raise PlanError("hardly any noise is needed: is ε meant to be so large?")
    coarse = float(brentq(lambda x: excess(x, few), low, high, xtol=1e-2))
    best = _log_deltas(plan.with_noise(math.exp(coarse)), columns, few, epsilon).argmin(axis=1)
    near = np.unique(np.clip(6 * best[:, None] + np.arange(-5, 6), 0, _ORDERS.size - 1))
    low, high = coarse - 0.02, coarse + 0.02
    while excess(low, _ORDERS[near]) <= 0:
        low -= 0.05
    while excess(high, _ORDERS[near]) > 0:
        high += 0.05
    found = float(brentq(lambda x: excess(x, _ORDERS[near]), low, high, xtol=5e-5))
    while excess(found, _ORDERS[near]) > 0:
        found += 5e-5
    return math.exp(found)


def log_moment(order: float, rate: float, mu: float, rho: float = 0.0) -> float:
    """Logarithm of E (l e^{−ρw²/2})^order for l = 1 − r + r exp(μX − μ²/2), w = 1 − (1−r)/l, X normal.

    Args:
        order: Positive (then ρ must be 0) or negative.
        rate: r, in (0, 1].
        mu: μ, positive.
        rho: ρ, at least 0.

    Guarantee:
        An upper bound, infinite where the integral would take too long. For a function analytic and bounded
        in a strip |Im| <= d the trapezoidal rule of step h is off by a share of about e^{d²/2 − 2πd/h}.
        There |l| is between cos(μd/2) l and l, so at the step chosen the share is below 1e-12; it is
        counted as 1e-9. Beyond the ends the logarithm of the integrand falls with a slope of at least
        12: its derivative is order · (μw − ρμw²(1−w)) − x, with 0 <= w <= 1.

    Example:
        >>> round(log_moment(2.0, 0.1, 1.0), 6) == round(math.log1p(0.01 * math.expm1(1.0)), 6)
        True
    """
    a = abs(order)
    h = min(0.1, 0.25 / mu, 0.6 / math.sqrt(1 + a * mu**2 * (1 + rho) / 4))
    low = -_REACH - (a * mu if order < 0 else 0.0)
    high = _REACH + a * mu * (1.0 if order > 0 else 4 / 27 * rho)
    if high - low > _MOST_POINTS * h:
        return math.inf
    return float(_integral(order, rate, mu, rho, low, h, math.ceil((high - low) / h) + 1))


@no_type_check
@njit(cache=True)
def _integral(order, rate, mu, rho, low, h, points):
    """Logarithm of the trapezoidal sum, with bounds on its error and on both tails."""
    none, some = (math.log1p(-rate) if rate < 1 else -np.inf), math.log(rate)
    total, top, first, term = 0.0, -np.inf, 0.0, 0.0
    for i in range(points):
        x = low + i * h
        taken = some + mu * x - mu * mu / 2
        larger, smaller = max(none, taken), min(none, taken)
        log_l = larger + math.log1p(math.exp(smaller - larger))
        w = math.exp(taken - log_l)
        term = order * (log_l - rho * w * w / 2) - x * x / 2
        if term > top:
            total, top = total * math.exp(top - term) + 1.0, term
        else:
            total += math.exp(term - top)
        if i == 0:
            first = term
    tails = (math.exp(first - top) + math.exp(term - top)) / _REACH
    return math.log(h * total * (1 + 2e-9) + tails) + top - math.log(2 * math.pi) / 2


def _log_deltas(plan: Plan, columns: Array, orders: Array, epsilon: float) -> Array:
    """Bounds on log δ by each order: a row for H(P‖Q), α = 1 + order, and one for H(Q‖P), β = order."""
    return _log_moments(plan, columns, orders) + _factor(orders, epsilon)


def _factor(orders: Array, epsilon: float) -> Array:
    return np.asarray(orders * (np.log(orders) - epsilon) - (1 + orders) * np.log1p(orders))


def _log_moments(plan: Plan, columns: Array, orders: Array) -> Array:
    """m(1 + order) and n(order), with what is released beside training."""
    noise, rate = effective_noise(plan), _rate(plan)
    moments = np.zeros((2, orders.size))
    for norm, overlap, count in columns:
        mu, rho = norm / noise, overlap / noise**2
        p = 1 + rho / mu**2
        for i, order in enumerate(orders):
            moments[0, i] += count / p * log_moment((1 + order) * p, rate, mu)
            moments[1, i] += count / p * log_moment(-order * p, rate, mu, rho)
    for event in plan.extra:
        moments += [_extra(event, order) for order in orders]
    return moments


def _extra(event: Event, order: float) -> float:
    """Bound on log E_Q L^{1+order} and log E_Q L^{−order} of one release [BunSteinke16, Prop. 3.3]."""
    if isinstance(event, GaussianRelease):
        return order * (1 + order) * event.mu**2 / 2
    return order * min(event.epsilon, (1 + order) * event.epsilon**2 / 2)


def _rate(plan: Plan) -> float:
    """The sampling rate, or a refusal."""
    if Relation.of(plan.relation) is Relation.REPLACE_ONE:
        raise UnsupportedError(
            "the moments accountant has no dominating pair for replace-one: the two records' "
            "contributions mix. Use relation='add-remove' or 'zero-out'."
        )
    if isinstance(plan.sampling, Poisson):
        return plan.sampling.rate
    raise UnsupportedError(
        "the moments accountant needs independent participations (Poisson sampling); this plan has "
        f"{plan.sampling}. Use Poisson(rate)."
    )


def _columns(plan: Plan) -> Array:
    """Rows of (‖c_s‖, Σ_{u≠s} <c_s, c_u>, how many), rounded up."""
    _rate(plan)
    column = getattr(plan.known_mechanism(), "column", None)
    most = _MOST_STEPS if column is None else _MOST_TOEPLITZ_STEPS
    if plan.steps > most:
        raise UnsupportedError(
            f"the moments accountant takes up to {most} steps of this mechanism; this plan has "
            f"{plan.steps}. Use fewer steps, or the Gaussian route."
        )
    if column is None:
        C = np.abs(np.asarray(plan.known_mechanism().encoder(plan.steps), dtype=np.float64))
        # Σ_t C_ts Σ_{u≠s} C_tu, without a difference of large numbers.
        values = np.stack([np.linalg.norm(C, axis=0), (C * _others(C)).sum(axis=0)], axis=1)
    else:
        values = _toeplitz(np.abs(column(plan.steps)))
    pairs = _up(values, _ROUND)
    _, which, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    rare = (
        counts[which.ravel()] < 0.005 * plan.steps
    )  # columns at the edges: their sizes hardly matter
    pairs[rare] = _up(values, 5 * _ROUND)[rare]
    rows, counts = np.unique(pairs, axis=0, return_counts=True)
    return np.column_stack([rows, counts])


def _toeplitz(c: Array) -> Array:
    """‖c_s‖ and the overlaps of an encoder with first column c >= 0, rounded up."""
    squares = np.cumsum(c**2)[::-1]
    # Row t sums to c_0 + ... + c_t; each sum of T positive terms is off by a share below 1e-10.
    whole = np.correlate(np.cumsum(c), c, "full")[len(c) - 1 :]
    return np.stack(
        [np.sqrt(squares) * (1 + 1e-10), np.maximum(whole - squares, 0) + 1e-10 * whole], 1
    )


def _others(C: Array) -> Array:
    """For each entry, the sum of the others in its row."""
    left = np.cumsum(C, axis=1)
    right = np.cumsum(C[:, ::-1], axis=1)[:, ::-1]
    others = np.zeros_like(C)
    others[:, 1:] += left[:, :-1]
    others[:, :-1] += right[:, 1:]
    return others


def _up(values: Array, step: float) -> Array:
    """The next point, in each column, of a geometric grid that ends at the largest value; 0 stays 0."""
    top = values.max(axis=0) * (1 + 1e-12)
    ratio = np.maximum(top, 1e-300) / np.maximum(values, 1e-300)
    return np.where(values > 0, top * np.exp(-step * np.floor(np.log(ratio) / step)), 0.0)
