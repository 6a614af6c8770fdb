"""Rényi differential privacy: one number per order, which adds up over runs chosen one after another."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant

from antiphon.accounting.account import MOST_NOISE, Account
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.independent.renyi import fixed_size_rdp, poisson_rdp
from antiphon.accounting.independent.repeated_step import Step, repeated_step
from antiphon.accounting.independent.unamplified import gaussian_parameter
from antiphon.errors import UnsupportedError
from antiphon.numerics import Series
from antiphon.participation import Relation
from antiphon.plans import Event, GaussianRelease, Plan

__all__ = ["ORDERS", "account", "curve", "delta_of", "least_noise", "rough_noise"]

_FINE = 1e-4  # of a logarithm of noise: where a search ends

ORDERS: tuple[float, ...] = (
    *(1.1, 1.25, 1.4, 1.55, 1.7, 1.85),
    *(0.25 * k for k in range(8, 32)),
    *(float(order) for order in range(8, 65)),
    *(80.0, 96.0, 128.0, 192.0, 256.0, 512.0, 1024.0),
)


def account(plan: Plan) -> Account:
    """δ(ε) as the least that any order of `ORDERS` proves for the plan's `curve`.

    Guarantee:
        See `delta_of`. Never tight: one moment at a time does not fix a privacy loss.
    """
    values, step = curve(plan), _amplified(plan)
    theorem = (
        f"{step.theorem}, {step.count} times composed in Rényi divergences of {len(ORDERS)} orders"
        if step is not None
        else "one Gaussian release without amplification, in Rényi divergences"
    )
    by = step.references if step is not None else ("Denisov22",)
    return Account(
        route="rdp",
        profile=NumericalProfile(lambda epsilon: delta_of(values, epsilon)),
        theorem=theorem,
        references=(*by, "Mironov17", "CanonneKamathSteinke20"),
        is_tight=False,
    )


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """A noise multiplier at which `account` proves (ε, δ), by bisection to 0.01 %."""

    def enough(log_noise: float) -> bool:
        profile = account(plan.with_noise(math.exp(log_noise))).profile
        return profile.delta(epsilon) <= delta

    low, high = math.log(1e-3), math.log(MOST_NOISE)
    if not enough(high):
        raise UnsupportedError("no noise below a multiplier of a million is enough.")
    while high - low > _FINE:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.exp(high)


def rough_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """Logarithm of a noise about as large as Rényi divergences ask for: a start, not a certificate.

    It is mostly a few percent too large. Where even much noise is not enough for them, 0.
    """
    orders = (*range(2, 33), 40, 64, 128, 256)

    def enough(log_noise: float) -> bool:
        spent = curve(plan.with_noise(math.exp(log_noise)), orders)
        return delta_of(spent, epsilon, orders) <= delta

    low, high = math.log(1e-3), math.log(MOST_NOISE)
    if not enough(high):
        return 0.0
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def curve(plan: Plan, orders: Sequence[float] = ORDERS) -> Series:
    """The plan's RDP at each order, both directions of its relation, releases beside training included.

    Guarantee:
        Poisson batches under add-remove and zero-out: the Rényi divergence of the subsampled Gaussian
        [MironovTalwarZhang19], exact at integer orders. Fixed-size batches: `renyi`.
        Everything else, also Poisson under replace-one, for which we know no proved Rényi bound: α μ²/2 of
        the Gaussian release without amplification [Mironov17].

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> from antiphon.plans import FullBatch
        >>> plan = Plan(n=10, sampling=FullBatch(), steps=4, mechanism=Independent(), noise_multiplier=4.0)
        >>> curve(plan, orders=(2.0, 3.0)).tolist()
        [0.25, 0.375]
    """
    if not all(1 < order < math.inf for order in orders):
        raise UnsupportedError(f"Rényi orders are above 1 and finite; got {orders}.")
    step, alphas = _amplified(plan), np.asarray(orders, dtype=np.float64)
    if step is None:
        total = 0.5 * gaussian_parameter(plan) ** 2 * alphas
    else:
        total = step.count * np.asarray(_step_rdp(step, tuple(orders)))
    return total + sum((_extra(event, alphas) for event in plan.extra), np.zeros(len(alphas)))


def delta_of(rdp: Series, epsilon: float, orders: Sequence[float] = ORDERS) -> float:
    """The δ that follows from RDP at each order: the least over all of them, each valid by itself.

    Guarantee:
        [CanonneKamathSteinke20, Prop. 12], and δ² <= 1 - exp(-KL) with KL at most the RDP of any order.
    """
    alphas = np.asarray(orders, dtype=np.float64)
    moment = (alphas - 1) * (rdp - epsilon + np.log1p(-1 / alphas)) - np.log(alphas)
    with np.errstate(divide="ignore"):
        distance = 0.5 * np.log(-np.expm1(-rdp))
    return math.exp(min(0.0, float(moment.min()), float(distance.min())))


def _amplified(plan: Plan) -> Step | None:
    """The repeated step, if there is one with an amplified Rényi bound."""
    try:
        step = repeated_step(plan)
    except UnsupportedError:
        return None
    known = step.is_fixed_size or step.relation is not Relation.REPLACE_ONE
    return step if known else None


def _step_rdp(step: Step, orders: tuple[float, ...]) -> Series:
    if step.is_fixed_size:
        return fixed_size_rdp(step.rate, step.noise, step.relation, orders)
    return np.array(_poisson(step.rate, step.noise, orders))


@lru_cache(maxsize=256)
def _poisson(rate: float, noise: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """D_α of a mixture and one Gaussian, the larger direction.

    At integer orders (α - 1) D_α is the logarithm of a finite sum [MironovTalwarZhang19, Sec. 3.3], which
    dp-accounting adds up; the allowance covers the rounding of its logarithms, a few 1e-16 of numbers up to
    α log(α/rate). Other orders, and divergences as small as that: see `renyi`.
    """
    alphas = np.array(orders)
    whole = alphas == np.floor(alphas)
    found = np.full(len(alphas), math.inf)
    if whole.any():
        event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
        sums = RdpAccountant(alphas[whole].tolist()).compose(event).rdp
        allowance = 1e-12 * alphas[whole] * (1 - math.log(rate)) / (alphas[whole] - 1)
        found[whole] = sums * (1 + 1e-12) + allowance
        whole[whole] = allowance < 1e-3 * sums  # else the integral is sharper
    found[~whole] = np.minimum(found[~whole], poisson_rdp(rate, noise, alphas[~whole].tolist()))
    return tuple(np.minimum(0.5 * alphas / noise**2, found).tolist())


def _extra(event: Event, orders: Series) -> Series:
    if isinstance(event, GaussianRelease):
        return 0.5 * event.mu**2 * orders
    # Of all (ε, 0)-DP releases randomised response has the largest divergences; α ε²/2 bounds them too.
    e = event.epsilon
    log_moment = np.logaddexp(orders * e, (1 - orders) * e) - np.logaddexp(0.0, e)
    response = (log_moment + 1e-15 * (1 + orders * e)) / (orders - 1)
    return np.minimum(response, np.minimum(0.5 * orders * e**2, e))  # [BunSteinke16, Prop. 3.3]
