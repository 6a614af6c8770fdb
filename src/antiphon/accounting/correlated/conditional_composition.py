"""Conditional composition: a deterministic accountant for correlated noise under Poisson sampling.

The dominating pair [KANCorrelated26, Thm. F.8, for Poisson sampling] is Q = N(0, κ²I) and P, the law of
x = |C|y + κz with y_s ~ Bernoulli(r) independent. Below C >= 0, and c_s is column s of C.

**Theorem** (conditional composition [MatrixAmplification24]). Let a law m_t on [0, ∞) dominate
stochastically the law of M_t = Σ_{s<=t} C_ts y_s given x_1, ..., x_{t−1}, for all t, unless x is in a set
B. Let K be the product over t of m_t * N(0, κ²). Then, for every ε,

    H(P‖Q) <= H(K‖Q) + P(B)      and      H(Q‖P) <= H(Q‖K) + Q(B).

*Proof.* Let P' draw x_t as P does while no m_t has failed, and from N(0, κ²) afterwards; whether one
has failed is known from x_1, ..., x_{t−1}. P' = P on subsets of B', the complement of B. So for every A
first P(A) − e^ε Q(A) <= P'(A) − e^ε Q(A) + P(B), and second Q(A) − e^ε P(A) <= Q(AB') − e^ε P'(AB') + Q(B).
Given the past, x_t is N(0, κ²) under Q and a mixture of N(M, κ²) under P', with M below m_t. Both
divergences grow with M in the stochastic order: the likelihood ratio against N(0, κ²) of such a mixture
increases, so the best events are half-lines, and larger means move mass to the right. Adaptive composition
of dominated steps is dominated by the product [DongRothSu22]. ∎

**Posteriors.** Given x_1, ..., x_{t−1} and all other y, the odds of y_s = 1 are

    r/(1−r) · exp(<x − Σ_{u≠s} y_u c_u, c_s>/κ² − S/2κ²),     S = S_ts = Σ_{s<=v<t} C_vs²,

products over steps before t. Since C >= 0 they are largest if all other y are 0. So if
<x, c_s> <= τ_ts, then y_s = 1 has probability at most p_ts, of odds r/(1−r) · exp(τ_ts/κ² − S/2κ²),
*whatever the other y are*: drawn one after the other, (y_s)_{s<t} stays below independent Bernoulli(p_ts),
y_t is still Bernoulli(r), and m_t is the law of Σ C_ts Bernoulli(p_ts), independent. For B, the union of
the events <x, c_s> > τ_ts with C_ts > 0, τ is chosen so that their probabilities add up to at most δ₁:

- under Q, <x, c_s> is N(0, κ²S): τ is its quantile;
- under P there is Σ_u y_u G_u on top, 0 <= G_u = Σ_{v<t} C_vu C_vs <= g, of mean rb. By convexity
  e^{θG} − 1 <= (G/g)(e^{θg} − 1), hence log E e^{θ<x,c_s>} <= rb(e^{θg} − 1)/g + θ²κ²S/2, and Chernoff's
  bound at any θ > 0 gives a τ. For g: Cauchy-Schwarz, with the norm of c_u over the steps s, ..., t−1.

Nothing fails if C is diagonal or r = 1: then δ₁ = 0, and the route is DP-SGD's PLD or the Gaussian's.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, logit, ndtr, ndtri

from antiphon.accounting.account import Account, effective_noise
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.independent.gaussian import check_delta, check_epsilon
from antiphon.accounting.independent.pld import FINE, extra_loss, rounded_up
from antiphon.errors import PlanError, UnsupportedError
from antiphon.participation import Relation
from antiphon.plans import Plan, Poisson

__all__ = ["FAILURES", "account", "least_noise"]

Array = NDArray[np.float64]

FAILURES = (1e-7, 1e-10)  # δ₁; each gives a valid curve, the account is the least of them
_MOST_STEPS = 4096  # matrices of T x T numbers are kept
_CELLS, _ATOMS = 1 << 15, 128  # of the law of M_t: while it is convolved, and in the mixture
_ALIKE = 1e-3  # rows are merged if that raises the mean of M_t by no more than this share
_POINTS = 1 << 16  # most points of a grid of losses on either side of 0
_TAIL = 1e-18  # mass of one step's privacy loss that is counted as infinite
_SLACK = 1e-3  # noise found is at most this much above the least that the route proves


class _Law(NamedTuple):
    """A law on [0, ∞): its values, increasing, and their probabilities."""

    means: Array
    probabilities: Array


def account(plan: Plan, *, failures: Sequence[float] = FAILURES) -> Account:
    """δ(ε) <= min over δ₁ of δ₁ + the δ(ε) of composed mixtures of Gaussians, in both directions.

    Guarantee:
        The module's theorem, for Poisson sampling under add-remove and zero-out and any encoder. Laws of
        M_t are rounded up, rows are merged by a law above all of them, and privacy losses are discretised
        pessimistically [Doroshenko22].
    """
    C, rate, noise = _parts(plan)
    certain = rate == 1 or not np.any(np.tril(C, -1))
    curves = [
        (failure, _composed(plan, C, rate, noise, failure))
        for failure in ((0.0,) if certain else failures)
    ]
    return Account(
        route="conditional composition",
        profile=NumericalProfile(
            lambda epsilon: min(
                failure + rounded_up(whole, plan.steps).delta(epsilon) for failure, whole in curves
            )
        ),
        theorem=(
            "given earlier releases, each step is at most a mixture of Gaussians with independent "
            f"participations, except with probability {' or '.join(f'{f:g}' for f, _ in curves)}"
        ),
        references=("MatrixAmplification24", "KANCorrelated26", "DongRothSu22", "Doroshenko22"),
        is_tight=False,
    )


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """A noise multiplier at which `account` proves (ε, δ), by bisection to 0.1 %."""
    check_epsilon(epsilon)
    check_delta(delta)
    usable = [failure for failure in FAILURES if failure < 0.5 * delta][:1]
    if not usable:
        raise UnsupportedError(
            f"conditional composition fails with probability {FAILURES[-1]:g} at best, which leaves "
            f"nothing of δ = {delta}. Use δ above {2 * FAILURES[-1]:g}."
        )

    def proves(noise: float) -> bool:
        profile = account(plan.with_noise(noise), failures=usable).profile
        return profile.delta(epsilon) <= delta

    low = high = float(np.linalg.norm(_parts(plan.with_noise(1.0))[0], axis=0).max())
    while not proves(high):
        low, high = high, 2 * high
        if high > 1e6:
            raise UnsupportedError("no noise below a multiplier of a million is enough.")
    while low == high:
        if proves(low / 2):
            low = high = low / 2
            if low < 1e-3:
                raise PlanError("hardly any noise is needed: is ε meant to be so large?")
        else:
            low /= 2
    while high > low * (1 + _SLACK):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def _parts(plan: Plan) -> tuple[Array, float, float]:
    """|C|, the rate and κ, or a refusal."""
    if not isinstance(plan.sampling, Poisson):
        raise UnsupportedError(
            "conditional composition needs independent participations (Poisson sampling); this plan has "
            f"{plan.sampling}. Use Poisson(rate)."
        )
    if Relation.of(plan.relation) is Relation.REPLACE_ONE:
        raise UnsupportedError(
            "conditional composition has no dominating pair for replace-one: the two records' "
            "contributions mix. Use relation='add-remove' or 'zero-out'."
        )
    if plan.steps > _MOST_STEPS:
        raise UnsupportedError(
            f"conditional composition keeps matrices of T x T numbers, for up to {_MOST_STEPS} steps; this "
            f"plan has {plan.steps}. Use fewer steps, or the Gaussian route."
        )
    C = np.abs(np.asarray(plan.known_mechanism().encoder(plan.steps), dtype=np.float64))
    return C, plan.sampling.rate, effective_noise(plan)


def _composed(
    plan: Plan, C: Array, rate: float, noise: float, failure: float
) -> PrivacyLossDistribution:
    remove, add = (
        _rows(C, _posteriors(C, rate, noise, failure, remove=way)) for way in (True, False)
    )
    width = _width([law for law, _ in (*remove, *add)], noise)
    with np.errstate(all="ignore"):  # dp-accounting takes logarithms of sums that may be 0
        forth, back = (
            _product([(_pmf(law, noise, width, remove=way), count) for law, count in laws])
            for laws, way in ((remove, True), (add, False))
        )
        whole = PrivacyLossDistribution(forth, back)
        for event in plan.extra:
            whole = whole.compose(extra_loss(event, width))
    return whole


def _width(laws: list[_Law], noise: float) -> float:
    """Fine beside the spread of one step's loss, coarse where losses are so large that none is needed."""
    spread = max(float(law.means @ law.probabilities) for law in laws) / noise
    fine = float(np.clip(0.05 * spread, 2e-6, 1e-3)) if spread < 2e-3 else FINE
    widest = 0.0
    for means, chances in laws:
        _, high = _reach(means / noise, chances, remove=True)
        widest = max(widest, float(means[-1]) / noise * high)
    return max(fine, widest / _POINTS)


def _product(steps: list[tuple[pld_pmf.PLDPmf, int]]) -> pld_pmf.PLDPmf:
    whole, *rest = (pmf.self_compose(count) if count > 1 else pmf for pmf, count in steps)
    for pmf in rest:
        whole = whole.compose(pmf)
    return whole


def _posteriors(C: Array, rate: float, noise: float, failure: float, *, remove: bool) -> Array:
    """p_ts for s < t, and r on the diagonal."""
    T = len(C)
    p = np.diag(np.full(T, rate))
    late, early = np.nonzero(np.tril(C, -1))
    if rate == 1 or not late.size:
        return p + np.tril(np.ones((T, T)), -1) * rate
    weights = C[late, early]
    # Where y_s weighs little, a large posterior costs little.
    log_share = np.log(failure) + np.log(weights) - math.log(weights.sum())

    def before(terms: Array) -> Array:
        sums = np.cumsum(np.tril(terms), axis=0)
        return np.asarray(sums[late - 1, early])

    S = before(C**2)
    if remove:
        b = before(C * C.sum(axis=1)[:, None])
        peaks = np.concatenate([[0.0], np.cumsum(C.max(axis=1) ** 2)])
        norms = np.minimum(peaks[late] - peaks[early], (C**2).sum(axis=0).max())
        g = np.sqrt(S * norms)
        tau = np.full(late.size, np.inf)
        best = np.sqrt(-2 * log_share / S) / noise
        for share in np.geomspace(0.05, 1.0, 20):
            theta = share * best
            with np.errstate(over="ignore"):
                tilt = rate * b * np.expm1(theta * g) / g + (theta * noise) ** 2 * S / 2
            tau = np.minimum(tau, (tilt - log_share) / theta)
    else:
        tau = -ndtri(np.exp(np.maximum(log_share, -700.0))) * noise * np.sqrt(S)
        tau = np.where(log_share < -700.0, np.inf, tau)
    p[late, early] = expit(logit(rate) + (tau - S / 2) / noise**2)
    return p


def _rows(C: Array, p: Array) -> list[tuple[_Law, int]]:
    """Laws above those of all rows, and of how many rows each: rows alike are merged, aligned by age."""
    T = len(C)
    least_rows, most_rows, start = 1 + T // 128, 1 + T // 16, 0
    groups: list[tuple[Array, Array, int]] = []
    while start < T:
        count = min(T - start, max(least_rows, min(start, most_rows)))
        t = np.arange(start, start + count)[:, None]
        s = t - np.arange(T)[None, :]
        weights, chances = (np.where(s >= 0, A[t, s], 0.0).max(axis=0) for A in (C, p))
        if groups:
            w, q, before = groups[-1]
            least = min(float(weights @ chances), float(w @ q))
            joint = np.maximum(weights, w), np.maximum(chances, q)
            if float(joint[0] @ joint[1]) <= (1 + _ALIKE) * least:
                groups.pop()
                weights, chances, count = *joint, count + before
        groups.append((weights, chances, count))
        start = int(t[-1, 0]) + 1
    return [(_law(weights, chances), count) for weights, chances, count in groups]


def _law(weights: Array, chances: Array) -> _Law:
    """A law above that of Σ weights · Bernoulli(chances), independent, with few values."""
    order = np.argsort(weights)
    weights, chances = weights[order], chances[order]
    # The least weights together hardly count: as if all were always there.
    sure = np.cumsum(weights) <= 1e-3 * float(weights @ chances)
    offset, weights, chances = float(weights[sure].sum()), weights[~sure], chances[~sure]
    h = float(weights.sum()) / _CELLS
    cells = np.ceil(weights / h - 1e-9).astype(int)
    pmf, end = np.zeros(int(cells.sum()) + 1), 1
    pmf[0] = 1.0
    for k, chance in zip(cells[::-1], chances[::-1], strict=True):
        moved = chance * pmf[:end]
        pmf[:end] -= moved
        end += k
        pmf[k:end] += moved
    density = np.cumsum(np.sqrt(pmf))
    nodes = np.searchsorted(density, density[-1] * np.arange(1, _ATOMS) / _ATOMS)
    top = int(np.nonzero(pmf)[0][-1])
    nodes = np.unique(np.concatenate([[0], nodes, [top]]))
    at = np.searchsorted(nodes, np.arange(top + 1))
    return _Law(
        offset + h * (1 + 1e-9) * nodes, np.asarray(np.bincount(at, pmf[: top + 1]), np.float64)
    )


def _pmf(law: _Law, noise: float, width: float, *, remove: bool) -> pld_pmf.PLDPmf:
    """Privacy loss of m * N(0, κ²) against N(0, κ²) (remove), or the other way round."""
    means, chances = (values[law.probabilities > 0] for values in law)
    means = means / noise
    logs = np.log(chances) - means**2 / 2

    def loss(x: Array) -> tuple[Array, Array]:
        terms = logs + np.multiply.outer(x, means)
        peak = terms.max(axis=1)
        parts = np.exp(terms - peak[:, None])
        total = parts.sum(axis=1)
        return peak + np.log(total), (parts @ means) / total

    table = np.linspace(*_reach(means, chances, remove=remove), 4001)
    values, sign = loss(table)[0], 1 if remove else -1
    low, high = sorted(sign * values[[0, -1]])
    rounded = np.arange(math.floor(low / width), math.ceil(high / width) + 1)
    epsilons = width * rounded
    # Where the loss is ε: the root of an increasing function, by a table and Newton's method. An error in
    # the root is one of second order in δ.
    x = np.interp(sign * epsilons, values, table)
    for _ in range(2):
        value, slope = loss(x)
        step = (value - sign * epsilons) / np.maximum(slope, 1e-300)
        x = np.clip(x - step, table[0] - 1, table[-1] + 1)
    mixed = np.subtract.outer(x, means)
    if remove:
        deltas = ndtr(-mixed) @ chances - np.exp(epsilons + log_ndtr(-x))
    else:
        deltas = ndtr(x) - np.exp(np.minimum(epsilons, 700.0)) * (ndtr(mixed) @ chances)
    deltas = np.clip(np.maximum(deltas, -np.expm1(np.minimum(epsilons, 0.0))), 0.0, 1.0)
    decreasing = np.maximum.accumulate(deltas[::-1])[::-1]
    return pld_pmf.create_pmf_pessimistic_connect_dots(width, rounded, decreasing).to_dense_pmf()


def _reach(means: Array, chances: Array, *, remove: bool) -> tuple[float, float]:
    """An interval that holds all but _TAIL of both laws on the side of large losses, in units of κ."""
    low = high = -float(ndtri(_TAIL))
    if remove:
        while float(ndtr(means - high) @ chances) > _TAIL:
            high += 0.25
    return -low, high
