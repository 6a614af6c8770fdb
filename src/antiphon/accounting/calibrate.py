"""From a budget to a plan: the least noise that is certified for it."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from rich.console import Console

from antiphon.accounting import conditional, conditioned, moments, pld, rdp, shuffling
from antiphon.accounting.account import is_independent
from antiphon.accounting.auto import Choice, choose
from antiphon.accounting.certification import estimated_noise, identity, least_noise
from antiphon.accounting.edition import edition
from antiphon.accounting.gaussian import check_delta, check_epsilon, gaussian_mu
from antiphon.accounting.routes import ROUTES, correlated, no_bound, sampled_routes
from antiphon.accounting.sampled import SampledRoute
from antiphon.accounting.unamplified import gaussian_parameter, training_parameter
from antiphon.cache import remembered
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent
from antiphon.mechanisms import from_dict as mechanism_from_dict
from antiphon.plan import Plan
from antiphon.sampling import FullBatch, Poisson

__all__ = ["calibrate", "choose_mechanism", "noise_by"]

Search = Callable[[Plan, float, float], float]  # plan, ε, δ ↦ noise at which they are proved

_COARSE = 1e-3
_MOST = 1e6  # more noise than any training can bear
_ENDLESS = 1e12  # noise that leaves nothing of the training
# Noise found is at most this much above the least that its accountant would certify.
_SLACK = 2e-4
# Monte Carlo takes minutes and proves a single point: it must promise this share of the noise or less.
_WORTH = 0.97


def calibrate(
    plan: Plan, epsilon: float, delta: float, *, tight: bool = False, quick: bool = False
) -> Plan:
    """The plan with the smallest noise multiplier for which (``epsilon``, ``delta``) is proved.

    Args:
        plan: Without noise, or with noise that is replaced.
        epsilon: ε to be proved.
        delta: δ to be proved.
        tight: Where a Monte Carlo accountant is the best, draw three times as many paths for one or two
            per cent less noise.
        quick: Leave out Monte Carlo, which takes minutes: the noise may then be larger.

    Guarantee:
        Some accountant proves (ε, δ) for exactly the plan returned. Its noise is within 0.02 % of the
        least that an accountant of curves can certify; `antiphon.accounting.certification` says what
        Monte Carlo adds.

    Example:
        >>> from antiphon.mechanisms import NuFTRL
        >>> from antiphon.sampling import ShuffledEpochs
        >>> plan = Plan(n=50_000, sampling=ShuffledEpochs(500), steps=2000, mechanism=NuFTRL(0.0037),
        ...             relation="zero-out")
        >>> round(calibrate(plan, epsilon=10, delta=1e-5).noise_multiplier, 5)
        4.42541
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if plan.blocks:
        raise PlanError(
            "blocks have noise multipliers of their own; scale them and certify the plan."
        )
    how = _How(tight, quick)
    key: dict[str, Any] = {"plan": identity(plan), "edition": edition()}
    key |= {"epsilon": epsilon, "delta": delta, "tight": tight}
    if quick:
        key["quick"] = True
    found = remembered("plans", key, lambda: _found(plan, epsilon, delta, how))
    mechanism = mechanism_from_dict(found["mechanism"])
    return replace(plan, mechanism=mechanism, noise_multiplier=found["noise_multiplier"])


def noise_by(route: str, plan: Plan, epsilon: float, delta: float) -> float:
    """The noise multiplier at which one accountant of curves proves (``epsilon``, ``delta``).

    Args:
        route: The accountant's name, one of `antiphon.accounting.routes.ROUTES`.
        plan: With a mechanism.
        epsilon: ε to be proved.
        delta: δ to be proved.

    Guarantee:
        As `calibrate`, by this accountant alone and without Monte Carlo: another may prove less noise.

    Raises:
        UnsupportedError: If the accountant has no bound for the plan.

    Example:
        >>> from antiphon.sampling import FullBatch
        >>> plan = Plan(n=100, sampling=FullBatch(), steps=16, mechanism=Independent())
        >>> round(noise_by("gaussian", plan, 2.0, 1e-5), 4)
        7.9752
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if route not in _SEARCHES:
        raise PlanError(f"an accountant is one of {', '.join(_SEARCHES)}; got {route!r}.")
    return _SEARCHES[route](plan, epsilon, delta)


class _How(NamedTuple):
    tight: bool
    quick: bool

    def sampled(self, plan: Plan) -> list[SampledRoute]:
        """Accountants by Monte Carlo, unless an answer is wanted quickly."""
        return [] if self.quick else sampled_routes(plan)


def _found(plan: Plan, epsilon: float, delta: float, how: _How) -> dict[str, Any]:
    """Mechanism and noise, to be remembered: whoever uses them has them proved by `certify`."""
    if plan.mechanism == "auto":
        choice = choose_mechanism(plan, epsilon, delta, **how._asdict())
        shown = Console(stderr=True)
        if shown.is_terminal:
            shown.print(choice)
        plan = choice.plan
    else:
        plan = plan.with_noise(_least_noise(plan, epsilon, delta, how))
    mechanism, noise = plan.known_mechanism(), plan.known_noise()
    return {"mechanism": mechanism.to_dict(), "noise_multiplier": noise}


def _least_noise(plan: Plan, epsilon: float, delta: float, how: _How) -> float:
    tight = how.tight
    searches = _SEARCHES | _SLOW_SEARCHES if tight else _SEARCHES
    best, refusals = _least_of_curves(searches, plan, epsilon, delta)
    near, ranked = best if best < math.inf else 1.0, []
    for route in how.sampled(plan):
        try:
            noise = estimated_noise(plan, route, epsilon, delta, tight=tight, near=near)
            ranked.append((noise, route))
        except UnsupportedError as refusal:
            refusals.append(f"{route.route}: {refusal}")
    # Only one is certified: a choice by certified results would add up their failures.
    noise, chosen = min(ranked, key=lambda pair: pair[0], default=(math.inf, None))
    if chosen is not None and noise < _WORTH * best:
        point = least_noise(plan, chosen, epsilon, delta, tight=tight, start=noise)
        best = min(best, point.noise_multiplier)
    if best == math.inf:
        raise no_bound(refusals)
    return best


def choose_mechanism(
    plan: Plan, epsilon: float, delta: float, *, tight: bool = False, quick: bool = False
) -> Choice:
    """The mechanism with the smallest noise × error for a plan whose mechanism is "auto".

    The plan's sampling, relation, steps and clip norm are kept. Candidates are ranked by estimates within
    about half a minute; the best and independent noise are certified, and the smaller certified
    product wins. Print the result to see the ranking. ``tight`` and ``quick`` are those of `calibrate`.
    """
    how = _How(tight, quick)
    if plan.mechanism != "auto":
        raise PlanError(f'the mechanism is chosen already: {plan.mechanism}. Use mechanism="auto".')

    # Under Poisson sampling with correlated noise, the others are slower and not better.
    few = {"moments": _SEARCHES["moments"]} if isinstance(plan.sampling, Poisson) else _SEARCHES

    def estimate(candidate: Plan, near: float) -> float:
        independent = is_independent(candidate.known_mechanism(), plan.steps)
        best, _ = _least_of_curves(_SEARCHES if independent else few, candidate, epsilon, delta)
        for route in how.sampled(candidate):
            guess = best if best < math.inf else near
            noise = estimated_noise(candidate, route, epsilon, delta, rough=True, near=guess)
            best = min(best, noise)
        if best == math.inf:
            raise UnsupportedError("no accountant can bound this plan.")
        return best

    floor = 0.0
    if isinstance(plan.sampling, Poisson):
        whole = replace(plan, sampling=FullBatch(), mechanism=Independent())
        floor = plan.sampling.rate * _gaussian_noise(whole, epsilon, delta)
    return choose(
        plan, estimate, lambda p: calibrate(p, epsilon, delta, **how._asdict()), floor=floor
    )


def _least_of_curves(
    searches: dict[str, Search], plan: Plan, epsilon: float, delta: float
) -> tuple[float, list[str]]:
    """The least noise by any accountant of curves, infinite if all refuse, with their reasons."""
    best, refusals = math.inf, []
    for name, search in searches.items():
        if best < math.inf and name == "rdp":
            continue  # the others are at least as tight wherever they have an answer
        try:
            best = min(best, search(plan, epsilon, delta))
        except UnsupportedError as refusal:
            refusals.append(f"{name}: {refusal}")
    return best, refusals


def _gaussian_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """In closed form: what the extra releases leave of μ² is the training's."""
    whole = gaussian_parameter(plan.with_noise(1.0))
    extra = ROUTES["gaussian"](plan.with_noise(1.0)).profile
    budget = gaussian_mu(epsilon, delta)
    others = max(0.0, getattr(extra, "mu", whole) ** 2 - whole**2)
    left = budget**2 - others
    if left <= 0:
        raise PlanError(
            f"the releases beside training already cost more than ε = {epsilon} at δ = {delta}."
        )
    alone = ROUTES["gaussian"](plan.with_noise(_ENDLESS)).profile
    if plan.apart and alone.epsilon(delta) > epsilon:
        raise PlanError(
            f"what is released apart from the steps already costs more than ε = {epsilon} at δ = {delta}."
        )
    noise = training_parameter(plan.with_noise(1.0)) / math.sqrt(left)
    while ROUTES["gaussian"](plan.with_noise(noise)).profile.epsilon(delta) > epsilon:
        noise *= 1 + 1e-13
    return noise


def _pld_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """Bracket by Rényi divergences, solve on a coarse grid, certify on the fine one."""

    @cache
    def excess(log_noise: float, grid: float | None) -> float:
        profile = pld.account(plan.with_noise(math.exp(log_noise)), grid=grid).profile
        return math.log(max(profile.delta(epsilon), 1e-300)) - math.log(delta)

    high = _renyi_noise(plan, epsilon, delta)
    grid = min(_COARSE, 10 * pld.fine_grid(plan.with_noise(math.exp(high))))
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


def _rdp_noise(plan: Plan, epsilon: float, delta: float) -> float:
    def enough(log_noise: float) -> bool:
        profile = rdp.account(plan.with_noise(math.exp(log_noise))).profile
        return profile.delta(epsilon) <= delta

    low, high = math.log(1e-3), math.log(_MOST)
    if not enough(high):
        raise UnsupportedError("no noise below a multiplier of a million is enough.")
    while high - low > 0.5 * _SLACK:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.exp(high)


def _renyi_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """Logarithm of a noise about as large as Rényi divergences ask for: a start, not a certificate.

    It is mostly a few percent too large. Where even much noise is not enough for them, 0.
    """
    orders = (*range(2, 33), 40, 64, 128, 256)

    def enough(log_noise: float) -> bool:
        spent = rdp.curve(plan.with_noise(math.exp(log_noise)), orders)
        return rdp.delta_of(spent, epsilon, orders) <= delta

    low, high = math.log(1e-3), math.log(_MOST)
    if not enough(high):
        return 0.0
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _bracket(excess: Callable[[float], float], high: float) -> tuple[float, float]:
    """Logarithms of two noises between which the answer lies, searched from ``high``."""
    low, step = high, 0.08
    while excess(high) > 0:
        low, high, step = high, high + step, 2 * step
        if high > math.log(_MOST):
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


_SEARCHES: dict[str, Search] = {
    "gaussian": _gaussian_noise,
    "pld": _pld_noise,
    "moments": lambda plan, epsilon, delta: moments.least_noise(correlated(plan), epsilon, delta),
    "conditioned": conditioned.least_noise,
    "shuffling": shuffling.least_noise,
    "rdp": _rdp_noise,
}
_SLOW_SEARCHES: dict[str, Search] = {
    "conditional composition": lambda plan, epsilon, delta: conditional.least_noise(
        correlated(plan), epsilon, delta
    ),
}
