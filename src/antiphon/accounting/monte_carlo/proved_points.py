"""From a sampled route to a proved point: search with the estimate, certify with fresh paths.

The noise or the ε to certify is fixed before its paths are drawn. If the limit comes out too high, the next
attempt takes a little more noise (or ε), fresh paths, and half of the failure probability that is left, so
that all attempts together, and the band for attacks beside them, fail with probability at most half of
`FAILURE`. The other half is for a rival: certifying two plans and keeping the better one, as `auto` does,
is a choice by the results, so both failures count. Among several sampled routes only the one with the best
estimate is certified. Seeds follow from what the bound depends on and the point: certifying the same point
twice draws the same paths, also for a data set of another size. A failed attempt to prove a named point is
kept, and its share of the failure probability is added to whatever is proved for that plan afterwards.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from scipy.optimize import brentq

from antiphon.accounting.account import effective_noise
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.monte_carlo.sampled import SampledRoute
from antiphon.accounting.search.edition import edition
from antiphon.cache import load, remembered, store
from antiphon.errors import PlanError, UnsupportedError
from antiphon.plans import Plan
from antiphon.progress import bar

__all__ = [
    "BAND",
    "FAILURE",
    "Point",
    "estimated_epsilon",
    "estimated_noise",
    "failed_before",
    "identity",
    "is_likely",
    "known_point",
    "least_epsilon",
    "least_noise",
    "prove",
    "remember_failed",
]

FAILURE = 1e-6  # of all attempts together, and of a rival's
BAND = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_BAND_PATHS = 20_000
_PATHS = 30.0  # times 1/δ: the limit of a sample without any loss is then δ/2
_TIGHT_PATHS = 100.0
_ROUGH_PILOTS = 500
_PILOTS = 2000
_TIGHT_PILOTS = 10_000
# Aim below δ by about two standard deviations of the limit, so that a second attempt is rare.
_AIM = 0.88
_ATTEMPTS = 8
_USUAL_CALLS = 14  # of a search, for its bar
_MOST_WORK = 1e13  # a day on two cores
_SEARCH_SEED = 0


@final
@dataclass(frozen=True)
class Point:
    """One (ε, δ), proved by Monte Carlo for one plan.

    Attributes:
        noise_multiplier: The plan's noise.
        epsilon: ε.
        delta: δ, at least the confidence limit.
        failure: Probability that a limit was too low, all attempts, the band and a rival together.
        paths: Paths of the certifying sample, in each direction.
        route: Name of the accountant.
        band: Limits for δ at `BAND`, all proved at once from a sample of their own.
    """

    noise_multiplier: float
    epsilon: float
    delta: float
    failure: float
    paths: int
    route: str
    band: tuple[float, ...]

    @property
    def profile(self) -> NumericalProfile:
        """δ(ε) as far as it is proved: the limit at the largest ε not above."""
        known = sorted([*zip(BAND, self.band, strict=True), (self.epsilon, self.delta)])
        return NumericalProfile(
            lambda epsilon: min((d for e, d in known if e <= epsilon), default=1.0)
        )


def least_noise(
    plan: Plan,
    route: SampledRoute,
    epsilon: float,
    delta: float,
    *,
    tight: bool = False,
    start: float | None = None,
) -> Point:
    """A noise multiplier for which (ε, δ) is proved, close to the least.

    Args:
        plan: With or without noise.
        route: What certifies it.
        epsilon: ε.
        delta: δ.
        tight: Draw more paths.
        start: What `estimated_noise` returned, if it was asked before.

    Guarantee:
        (ε, δ) holds for the plan with this noise, but for ``failure`` over the paths drawn.
    """
    key = {**_key(plan, route, delta, tight), "epsilon": epsilon}

    def search() -> dict[str, Any]:
        noise = _round_up(start or estimated_noise(plan, route, epsilon, delta, tight=tight))
        for attempt in range(_ATTEMPTS):
            point, limit = prove(
                plan.with_noise(noise), route, epsilon, delta, attempt, tight=tight
            )
            if point is not None:
                return vars(point)
            noise = _round_up(noise * (1.005 * (limit / delta) ** (1 / 15)))
        raise UnsupportedError(_gave_up(route, epsilon, delta))

    return _point(remembered("noise", key, search))


def least_epsilon(
    plan: Plan,
    route: SampledRoute,
    delta: float,
    *,
    tight: bool = False,
    start: float | None = None,
) -> Point:
    """An ε that is proved for the plan at ``delta``, close to the least.

    Args:
        plan: With its noise.
        route: What certifies it.
        delta: δ.
        tight: Draw more paths.
        start: What `estimated_epsilon` returned, if it was asked before.

    A point that was proved for this very plan before, such as the one it was calibrated for, counts.
    """
    known = known_point(plan, route, delta)
    if known is not None:
        return known
    key = _key(plan, route, delta, tight)

    def search() -> dict[str, Any]:
        epsilon = _round_up(start or estimated_epsilon(plan, route, delta, tight=tight))
        for attempt in range(_ATTEMPTS):
            point, _ = prove(plan, route, epsilon, delta, attempt, tight=tight)
            if point is not None:
                return vars(point)
            epsilon = _round_up(epsilon * 1.03)
        raise UnsupportedError(_gave_up(route, epsilon, delta))

    return _point(remembered("epsilon", key, search))


def prove(
    plan: Plan,
    route: SampledRoute,
    epsilon: float,
    delta: float,
    attempt: int = 0,
    *,
    tight: bool = False,
) -> tuple[Point | None, float]:
    """Try to prove (ε, δ) for a plan with noise: the point, or None, and the limit found for δ."""
    noise, paths = effective_noise(plan), _paths(route, delta, tight)
    text = f"{identity(plan)} {route.route} {epsilon!r} {delta!r} {paths}"
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    with bar(f"certifying noise {noise:.4g} at ε = {epsilon:.4g}, δ = {delta:g}") as progress:
        found = route.at(noise).certified_delta(
            epsilon, seed=seed, paths=paths, failure=_share(attempt), progress=progress
        )
    if found.delta > delta:
        return None, found.delta
    with bar("bounding attacks") as progress:
        band = route.at(noise).band(
            np.array(BAND), seed=seed, paths=_BAND_PATHS, failure=FAILURE / 4, progress=progress
        )
    point = Point(noise, epsilon, delta, FAILURE, paths, route.route, tuple(band))
    _remember(plan, point)
    return point, found.delta


def estimated_noise(
    plan: Plan,
    route: SampledRoute,
    epsilon: float,
    delta: float,
    *,
    tight: bool = False,
    rough: bool = False,
    near: float = 1.0,
) -> float:
    """The noise at which certification should just succeed. It is not certified.

    Args:
        plan: With or without noise.
        route: What would certify it.
        epsilon: ε.
        delta: δ.
        tight: As it would be certified.
        rough: To one per cent or two only, for rankings.
        near: A guess.
    """
    limit = _limit(route, delta, tight)
    if plan.extra and limit(1e6, epsilon, _ROUGH_PILOTS) > _AIM * delta:
        raise PlanError(
            f"the releases beside training already cost more than ε = {epsilon} at δ = {delta}."
        )
    pilots = _pilots(tight, rough)
    return _root(lambda noise, n: limit(noise, epsilon, n), _AIM * delta, pilots, near)


def estimated_epsilon(
    plan: Plan, route: SampledRoute, delta: float, *, tight: bool = False
) -> float:
    """The ε at which certification should just succeed. It is not certified."""
    limit, noise = _limit(route, delta, tight), effective_noise(plan)
    pilots = _pilots(tight, rough=False)
    return _root(lambda epsilon, n: limit(noise, epsilon, n), _AIM * delta, pilots, 1.0)


def is_likely(
    plan: Plan, route: SampledRoute, epsilon: float, delta: float, *, tight: bool = False
) -> bool:
    """Whether the plan's noise should suffice for (ε, δ) to be proved. It is not proved."""
    limit = _limit(route, delta, tight)
    return limit(effective_noise(plan), epsilon, _pilots(tight, rough=False)) <= _AIM * delta


def _pilots(tight: bool, rough: bool) -> int:
    return _ROUGH_PILOTS if rough else _TIGHT_PILOTS if tight else _PILOTS


def _limit(route: SampledRoute, delta: float, tight: bool) -> Callable[[float, float, int], float]:
    """Predicted limit for δ by noise, ε and number of pilot paths; 1 where the noise is far too small."""
    paths = _paths(route, delta, tight)

    def limit(noise: float, epsilon: float, pilots: int) -> float:
        try:
            return route.at(noise).predicted_limit(
                epsilon, paths, FAILURE / 8, seed=_SEARCH_SEED, pilots=pilots
            )
        except UnsupportedError:
            return 1.0

    return limit


def _root(limit: Callable[[float, int], float], target: float, pilots: int, near: float) -> float:
    """Where a decreasing function falls to the target, with a bar."""
    with bar("searching with estimates") as progress:
        calls = itertools.count(1)

        def counted(x: float, pilots: int) -> float:
            done = next(calls)
            progress(done, max(_USUAL_CALLS, done + 1))
            return limit(x, pilots)

        return _solve(counted, target, pilots, near)


def _solve(limit: Callable[[float, int], float], target: float, pilots: int, near: float) -> float:
    """Where a decreasing function falls to the target: bracketed with few pilots, solved with many."""
    low = high = near
    while limit(high, _ROUGH_PILOTS) > target:
        low, high = high, 2 * high
        if high > 1e6:
            raise UnsupportedError("no noise multiplier and no ε below a million is enough.")
    while low == high or limit(low, _ROUGH_PILOTS) <= target:
        low, high = low / 2, low
        if low < 1e-4:
            raise UnsupportedError(
                "hardly any noise is needed for this budget: are ε and δ meant to be so large?"
            )

    def excess(x: float) -> float:
        return math.log(limit(x, pilots) / target)

    if pilots > _ROUGH_PILOTS:
        low, high = low / 1.05, high * 1.05  # the bracket was a rough one
        while excess(high) > 0:
            high *= 1.2
        while excess(low) <= 0:
            low /= 1.2
    tolerance = 1e-3 if pilots > _ROUGH_PILOTS else 1e-2
    return float(brentq(excess, low, high, rtol=tolerance, xtol=1e-6))


def _paths(route: SampledRoute, delta: float, tight: bool) -> int:
    paths = math.ceil((_TIGHT_PATHS if tight else _PATHS) / delta)
    if paths * route.cost > _MOST_WORK:
        raise UnsupportedError(
            f"certifying δ = {delta:g} by Monte Carlo would take {paths:.1e} paths of this plan, more than "
            "a day. Use a larger δ, or sampling with a closed-form bound."
        )
    return paths


def _key(plan: Plan, route: SampledRoute, delta: float, tight: bool) -> dict[str, Any]:
    return {**_plan_key(plan), "route": route.route, "delta": delta, "tight": tight}


def _plan_key(plan: Plan) -> dict[str, str]:
    return {"plan": identity(plan), "edition": edition()}


def identity(plan: Plan) -> str:
    """Hash of all of a plan that a bound depends on.

    Contributions count in units of the clip norm, and where a record's steps depend on its own coins alone,
    the number of the others does not matter: plans that differ in these have one proof.
    """
    values = json.loads(plan.to_json())
    del values["clip_norm"]
    if plan.sampling.own_coin:
        del values["n"]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _point(values: dict[str, Any]) -> Point:
    return Point(**{**values, "band": tuple(values["band"])})


def _remember(plan: Plan, point: Point) -> None:
    key = _plan_key(plan)
    points = load("points", key) or []
    if point not in map(_point, points):
        store("points", key, [*points, vars(point)])


def known_point(
    plan: Plan, route: SampledRoute, delta: float, epsilon: float | None = None
) -> Point | None:
    """The smallest ε that was proved for the plan before, at this δ or a smaller one.

    It is picked by its result, so the failure probabilities of all candidates add. With ``epsilon``, only
    the proof of that very point is looked for: proving it again would draw the same paths.
    """
    points = [_point(values) for values in load("points", _plan_key(plan)) or []]
    if epsilon is not None:
        return next((p for p in points if _is_at(p, route, epsilon, delta)), None)
    fitting = [p for p in points if p.delta <= delta and p.route == route.route]
    best = min(fitting, key=lambda p: p.epsilon, default=None)
    if best is None:
        return None
    return replace(best, delta=delta, failure=sum(p.failure for p in fitting))


def remember_failed(
    plan: Plan, route: SampledRoute, epsilon: float, delta: float, tight: bool
) -> None:
    """Keep a failed attempt to prove this point; `failed_before` counts it."""
    key, what = _plan_key(plan), [route.route, epsilon, delta, tight]
    tried = load("failed", key) or []
    if what not in tried:  # asked again, it would draw the same paths
        store("failed", key, [*tried, what])


def failed_before(plan: Plan) -> float:
    """Failure probability of all failed attempts.

    Trying one ε after the other until one is proved is a choice by the result, so all attempts count.
    """
    return len(load("failed", _plan_key(plan)) or []) * _share(0)


def _share(attempt: int) -> float:
    """Of the failure probability, for one attempt: half of what is left."""
    return FAILURE / 2 ** (attempt + 3)


def _is_at(point: Point, route: SampledRoute, epsilon: float, delta: float) -> bool:
    return (point.route, point.epsilon, point.delta) == (route.route, epsilon, delta)


def _round_up(value: float) -> float:
    """Four digits, never below the value."""
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return math.ceil(value * scale - 1e-9) / scale


def _gave_up(route: SampledRoute, epsilon: float, delta: float) -> str:
    return (
        f"{_ATTEMPTS} samples did not certify ε = {epsilon:.4g} at δ = {delta:g} by the {route.route} "
        "route: its estimate is off. Please report this plan."
    )
