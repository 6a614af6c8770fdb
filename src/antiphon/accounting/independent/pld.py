"""Privacy loss distributions, composed by Google's dp-accounting, for noise independent between steps."""

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, reduce

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import common, pld_pmf, privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from threadpoolctl import ThreadpoolController

from antiphon.accounting.account import MOST_NOISE, Account, effective_noise
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.independent import poisson_step as poisson
from antiphon.accounting.independent.fixed_size_step import profiles
from antiphon.accounting.independent.rdp import rough_noise
from antiphon.accounting.independent.repeated_step import Step, repeated_step
from antiphon.accounting.independent.unamplified import gaussian_parameter
from antiphon.errors import PlanError, UnsupportedError
from antiphon.numerics import Series
from antiphon.participation import Relation
from antiphon.plans import Event, GaussianRelease, Plan, Poisson

__all__ = [
    "FINE",
    "account",
    "compose",
    "extra_loss",
    "fine_grid",
    "least_noise",
    "rounded_up",
    "together",
]

# Composition by Fourier transforms loses about 2e-17 per step of a δ; δ's are raised by far more.
_LOST, _LOST_PER_STEP = 1e-14, 1e-15
FINE = 1e-4  # grid of the privacy loss, refined where many steps compose
_MOST_POINTS = 4_000_000
_COARSE = 1e-3
_SLACK = 2e-4  # noise found is at most this much above the least that would be certified


def account(plan: Plan, *, grid: float | None = None) -> Account:
    """Compose the steps' privacy losses numerically, rounded up.

    Args:
        plan: Independent noise under Poisson or fixed-size batches, or a banded encoder under cyclic
            Poisson, whose participations meet independent noise [Banded23].
        grid: Width of the grid of privacy losses; unless given, chosen by the plan.

    Guarantee:
        Each step's dominating pair is discretised pessimistically ("connect the dots", [Doroshenko22]) and
        composed without loss; the δ of truncated tails is added. Poisson: tight for add-remove and
        zero-out [ZhuWang19]; for replace-one dp-accounting's pair. Fixed size: see
        `antiphon.accounting.independent.fixed_size_step`.
    """
    width = grid or fine_grid(plan)
    step = repeated_step(plan)
    whole = compose(plan, width)
    return Account(
        route="pld",
        profile=rounded_up(whole, step.count),
        theorem=(
            f"{step.theorem}, {step.count} times composed as privacy loss distributions on a grid of "
            f"{width:g}"
        ),
        references=(*step.references, "Doroshenko22"),
        # A pure release is counted at its worst, which its own mechanism need not reach.
        is_tight=isinstance(plan.sampling, Poisson)
        and plan.relation != Relation.REPLACE_ONE
        and not plan.extra,
    )


def compose(plan: Plan, width: float) -> PrivacyLossDistribution:
    """The privacy loss of the whole plan on a grid of ``width``; of one Gaussian if nothing amplifies."""
    # dp-accounting takes logarithms of sums that may be 0: its warnings are about terms that vanish.
    with np.errstate(all="ignore"):
        try:
            step = repeated_step(plan)
        except UnsupportedError:
            whole = extra_loss(GaussianRelease(gaussian_parameter(plan)), width)
        else:
            loss = _loss(step, width)
            whole = loss.self_compose(step.count) if step.count > 1 else loss
        for event in plan.extra:
            whole = whole.compose(extra_loss(event, width))
    return whole


def together(plans: Sequence[Plan]) -> NumericalProfile:
    """The profile of several plans that were all fixed before the first one started.

    Guarantee:
        As `account`, for all of them; a plan without amplification is one Gaussian release. The plans'
        gradients may depend on each other's results, the plans themselves may not.
    """
    width = min(fine_grid(plan) for plan in plans)
    with np.errstate(all="ignore"):
        whole = reduce(lambda a, b: a.compose(b), [compose(plan, width) for plan in plans])
    return rounded_up(whole, sum(plan.steps for plan in plans))


def rounded_up(whole: PrivacyLossDistribution, steps: int) -> NumericalProfile:
    """The profile of a composition of so many steps, above what floating point may have lost.

    Guarantee:
        The transforms' rounding is not bounded by a proof; measured against exact Gaussian profiles it is
        fifty times smaller than what is added here. The number of threads changes no digit.
    """
    lost, controller = _LOST + _LOST_PER_STEP * steps, _controller()

    def delta(epsilon: float) -> float:
        # A sum of products by several threads is added up in another order.
        with controller.limit(limits=1, user_api="blas"):
            return max(0.0, float(whole.get_delta_for_epsilon(epsilon))) + lost

    return NumericalProfile(delta)


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _loss(step: Step, width: float) -> PrivacyLossDistribution:
    if step.is_fixed_size:
        return _fixed_size(step.rate, step.noise, step.relation, width)
    if step.relation is Relation.REPLACE_ONE or step.rate == 1:
        return _theirs(step.rate, step.noise, step.relation, width)
    return _poisson(step.rate, step.noise, width)


@lru_cache(maxsize=64)
def _poisson(rate: float, noise: float, width: float) -> PrivacyLossDistribution:
    """As dp-accounting's, three times faster: its inverse privacy loss is computed point by point."""
    low, high = poisson.reach(rate, noise)
    first, last = math.floor(low / width), math.ceil(high / width)
    last = min(last, first + _MOST_POINTS)  # larger losses count as infinite
    grid = np.arange(first, last + 1)
    forth = poisson.profiles(rate, noise, np.float64(width) * grid).forth
    back = poisson.profiles(rate, noise, -np.float64(width) * grid[::-1]).back
    return PrivacyLossDistribution(
        _connect(width, first, last, forth), _connect(width, -last, -first, back)
    )


def _connect(width: float, first: int, last: int, deltas: Series) -> pld_pmf.PLDPmf:
    decreasing = np.maximum.accumulate(np.clip(deltas, 0.0, 1.0)[::-1])[::-1]
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(width, first, last, decreasing)


@lru_cache(maxsize=64)
def _theirs(rate: float, noise: float, relation: Relation, width: float) -> PrivacyLossDistribution:
    neighbours = (
        NeighboringRelation.REPLACE_ONE
        if relation is Relation.REPLACE_ONE
        else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=width,
        neighboring_relation=neighbours,
    )


@lru_cache(maxsize=64)
def _fixed_size(
    rate: float, noise: float, relation: Relation, width: float
) -> PrivacyLossDistribution:
    # Beyond the largest privacy loss of a Gaussian at 40 standard deviations nothing is left to count.
    mu = 2 / noise
    reach = math.ceil(min(mu * (mu / 2 + 12) + 1, 200.0) / width)
    forth, back = profiles(rate, noise, relation, width * np.arange(-reach, reach + 1.0))
    return PrivacyLossDistribution(
        _connect(width, -reach, reach, forth), _connect(width, -reach, reach, back)
    )


def extra_loss(event: Event, width: float) -> PrivacyLossDistribution:
    """Privacy loss of a release beside training, on a grid of this width."""
    if isinstance(event, GaussianRelease):
        return privacy_loss_distribution.from_gaussian_mechanism(
            1 / event.mu, value_discretization_interval=width
        )
    pure = common.DifferentialPrivacyParameters(event.epsilon, 0)
    return privacy_loss_distribution.from_privacy_parameters(
        pure, value_discretization_interval=width
    )


def fine_grid(plan: Plan) -> float:
    """A grid fine enough that rounding costs less than a thousandth of ε.

    Connecting the dots adds variance of up to width²/4 to each step's loss, which itself has about
    (rate × amplitude / noise)²: the grid must stay well below that.
    """
    rate = plan.expected_batch / plan.n
    spread = rate * plan.amplitude / effective_noise(plan)
    return float(np.clip(0.05 * spread, 2e-6, 1e-3)) if spread < 2e-3 else FINE


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """A noise multiplier at which `account` proves (ε, δ), at most 0.02 % above the least.

    Bracketed by Rényi divergences, solved on a coarse grid, certified on the fine one.
    """

    @cache
    def excess(log_noise: float, grid: float | None) -> float:
        profile = account(plan.with_noise(math.exp(log_noise)), grid=grid).profile
        return math.log(max(profile.delta(epsilon), 1e-300)) - math.log(delta)

    high = rough_noise(plan, epsilon, delta)
    grid = min(_COARSE, 10 * fine_grid(plan.with_noise(math.exp(high))))
    low, high = _bracket(lambda x: excess(x, grid), high)
    noise, slope = _secant(lambda x: excess(x, grid), low, high)
    # The coarse answer is a little too large; log δ is nearly linear in log κ, with the same slope.
    value = excess(noise, None)
    for _ in range(6):
        if 0.5 * _SLACK * slope <= value <= 0:
            break
        moved = noise - (value - 0.2 * _SLACK * slope) / slope  # aim a little inside the budget
        after = excess(moved, None)
        if abs(moved - noise) > _SLACK and (after - value) * (moved - noise) < 0:
            slope = (after - value) / (moved - noise)
        noise, value = moved, after
    while value > 0:
        noise += _SLACK
        value = excess(noise, None)
    return math.exp(noise)


def _bracket(excess: Callable[[float], float], high: float) -> tuple[float, float]:
    """Logarithms of two noises between which the answer lies, searched from ``high``."""
    low, step = high, 0.08
    while excess(high) > 0:
        low, high, step = high, high + step, 2 * step
        if high > math.log(MOST_NOISE):
            raise UnsupportedError("no noise below a multiplier of a million is enough.")
    while excess(low) <= 0:
        low, high, step = low - step, low, 2 * step
        if low < math.log(1e-3):
            raise PlanError(
                "hardly any noise is needed for this budget: is ε meant to be so large?"
            )
    return low, high


def _secant(excess: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """The root of a falling, nearly linear function, and its slope there."""
    below, above = excess(low), excess(high)
    slope = (above - below) / (high - low)
    for _ in range(20):
        root = high - above / slope
        if not low < root < high:
            root = (low + high) / 2
        value = excess(root)
        if value > 0:
            low, below, moved = root, value, root - low
        else:
            high, above, moved = root, value, high - root
        slope = (above - below) / (high - low)
        if min(abs(value / slope), moved) < 0.25 * _SLACK:
            break
    return (high if abs(above) < below else low), slope
