"""Which mechanism is best for a plan: ranked by estimates, decided by certified numbers.

What counts is noise multiplier × error of the prefix sums: the error that the noise of a run leaves in its
iterates, at the same privacy. Estimates rank the candidates; then the best of them and `Independent` are
calibrated, and the candidate is kept only if its *certified* product is smaller.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from rich.table import Table

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import (
    BLT,
    AbstractMechanism,
    Banded,
    Independent,
    LambdaCGD,
    NuFTRL,
    optimize,
)
from antiphon.participation import AbstractParticipation, FixedEpochs, MinSeparation, Once
from antiphon.plain_text import plain_text
from antiphon.plans import CyclicPoisson, FixedSize, Plan, Poisson

__all__ = ["Candidate", "Choice", "choose", "usual_participation"]

_SECONDS = 30.0  # for the ranking
_RATES = (0.3, 0.6, 0.9)  # λ at which noise is estimated; between them it is interpolated
_MOST_STEPS = 20_000  # of mechanisms that are optimised for the ranking
# Full batches leave the least noise in the sum of all steps, whatever the mechanism. Where independent
# noise is this close to them, correlated noise has not been seen to gain anything.
_CLOSE = 1.1

Estimate = Callable[[Plan, float], float]  # plan and a guess ↦ estimated noise
Calibrate = Callable[[Plan], Plan]


@final
@dataclass(frozen=True)
class Candidate:
    """A mechanism in the ranking.

    Attributes:
        label: What to call it.
        mechanism: The mechanism.
        error: Root mean square error of the prefix sums, at unit noise.
        estimate: Estimated noise multiplier.
        certified: Certified noise multiplier, for the best candidate and independent noise; else None.
    """

    label: str
    mechanism: AbstractMechanism
    error: float
    estimate: float
    certified: float | None = None

    @property
    def product(self) -> float:
        """Noise × error: certified where it is, else estimated."""
        return self.error * (self.certified if self.certified is not None else self.estimate)


@final
@dataclass(frozen=True)
class Choice:
    """The plan that was chosen, and the ranking. Prints as text, renders in rich, exports as JSON."""

    plan: Plan
    candidates: tuple[Candidate, ...]

    def __rich__(self) -> Table:
        """For a rich console."""
        view = Table(title="Mechanisms by noise × error of prefix sums", title_justify="left")
        view.add_column("mechanism")
        for name in ("error", "noise, estimated", "noise, certified", "noise × error"):
            view.add_column(name, justify="right")
        for row in self.candidates:
            certified = "" if row.certified is None else f"{row.certified:.4g}"
            chosen = row.mechanism == self.plan.mechanism
            view.add_row(
                row.label,
                f"{row.error:.4g}",
                f"{row.estimate:.4g}",
                certified,
                f"{row.product:.4g}",
                style="bold" if chosen else "",
            )
        return view

    def __str__(self) -> str:
        return plain_text(self.__rich__())

    def to_json(self) -> str:
        """The plan and every candidate."""
        rows = [{**vars(row), "mechanism": row.mechanism.to_dict()} for row in self.candidates]
        return json.dumps({"plan": json.loads(self.plan.to_json()), "candidates": rows})


def choose(plan: Plan, estimate: Estimate, calibrate: Calibrate, *, floor: float = 0.0) -> Choice:
    """The best mechanism for a plan whose mechanism is "auto".

    Args:
        plan: Its sampling, relation, steps and clip norm are kept.
        estimate: Estimated noise of a plan with a mechanism.
        calibrate: The same plan with certified noise.
        floor: Noise with which as many steps of full batches would leave the same noise in the mean
            gradient; independent noise close to it has no rivals. 0 if it is not known.

    Guarantee:
        The chosen plan's noise is certified, and its noise × error is not above that of independent noise,
        also certified.
    """
    estimate = _remembering(estimate)
    ranked: list[Candidate] = []
    deadline = time.monotonic() + _SECONDS
    independent = _candidate(plan, "independent", Independent(), estimate, 1.0)
    ranked.append(independent)
    is_close = independent.estimate <= _CLOSE * floor
    others = () if is_close else _others(plan, independent.estimate, estimate)
    for label, mechanism, near in others:
        if time.monotonic() > deadline:
            break
        try:
            ranked.append(_candidate(plan, label, mechanism, estimate, near))
        except (UnsupportedError, PlanError):  # not for this plan: the others compete
            continue
    ranked.sort(key=lambda row: row.product)
    finals = [_certified(plan, row, calibrate) for row in dict.fromkeys((ranked[0], independent))]
    best = min(finals, key=lambda row: row.product)
    rest = [row for row in ranked if row.mechanism not in {f.mechanism for f in finals}]
    rows = sorted([*finals, *rest], key=lambda row: row.product)
    chosen = replace(plan, mechanism=best.mechanism, noise_multiplier=best.certified)
    return Choice(chosen, tuple(rows))


def _remembering(estimate: Estimate) -> Estimate:
    known: dict[Plan, float] = {}

    def remembered(plan: Plan, near: float) -> float:
        if plan not in known:
            known[plan] = estimate(plan, near)
        return known[plan]

    return remembered


def _candidate(
    plan: Plan, label: str, mechanism: AbstractMechanism, estimate: Estimate, near: float
) -> Candidate:
    noise = estimate(replace(plan, mechanism=mechanism), near)
    return Candidate(label, mechanism, mechanism.error(plan.steps), noise)


def _certified(plan: Plan, row: Candidate, calibrate: Calibrate) -> Candidate:
    return replace(
        row, certified=calibrate(replace(plan, mechanism=row.mechanism)).noise_multiplier
    )


def _others(
    plan: Plan, noise: float, estimate: Estimate
) -> Iterator[tuple[str, AbstractMechanism, float]]:
    """Label, mechanism and a guess of its noise, the most promising first."""
    T = plan.steps
    if T == 1:
        return
    if isinstance(plan.sampling, CyclicPoisson):
        yield from _banded(T, plan.sampling.cycle, noise)
        return
    if isinstance(plan.sampling, Poisson):
        yield from _lambda_cgd(plan, noise, estimate)
    if T > _MOST_STEPS:
        return
    usual = usual_participation(plan)
    for family in ("nu-ftrl", "lambda-cgd", "banded", "blt"):
        try:
            found = optimize(family, T, usual).mechanism
        except UnsupportedError:
            continue
        yield _label(found), found, noise


def _lambda_cgd(
    plan: Plan, noise: float, estimate: Estimate
) -> Iterator[tuple[str, AbstractMechanism, float]]:
    """Three values of λ, then the best of the curve through them and independent noise."""
    known, near = {0.0: noise}, noise
    for lam in _RATES:
        try:
            near = estimate(replace(plan, mechanism=LambdaCGD(lam)), 1.5 * near)
        except UnsupportedError:
            continue
        known[lam] = near
        yield _label(LambdaCGD(lam)), LambdaCGD(lam), near
    if len(known) < 3:
        return
    # log noise is nearly linear in log(1 − λ), with a small bend.
    x = np.log1p(-np.array([*known]))
    curve = np.polynomial.Polynomial.fit(x, np.log([*known.values()]), min(2, len(known) - 1))
    grid = np.arange(0.05, 0.901, 0.05)
    products = [
        math.exp(curve(math.log1p(-lam))) * LambdaCGD(float(lam)).error(plan.steps) for lam in grid
    ]
    best = round(float(grid[int(np.argmin(products))]), 2)
    if best not in known:
        yield _label(LambdaCGD(best)), LambdaCGD(best), math.exp(curve(math.log1p(-best)))


def _banded(T: int, cycle: int, noise: float) -> Iterator[tuple[str, AbstractMechanism, float]]:
    """Bands in powers of two, up to the cycle: within it, steps of one group share no noise."""
    widths = sorted({min(cycle, T, 2**i) for i in range(1, cycle.bit_length() + 1)}, reverse=True)
    for bands in widths:
        if bands > 1:
            rounds = -(-T // cycle)
            found = optimize("banded", T, MinSeparation(rounds, cycle), bands=bands).mechanism
            if isinstance(found, Banded):
                yield _label(found), found, noise


def _label(mechanism: AbstractMechanism) -> str:
    match mechanism:
        case LambdaCGD(lam):
            return f"λ-CGD, λ = {lam:.3g}"
        case NuFTRL(nu):
            return f"ν-DP-FTRL, ν = {nu:.3g}"
        case Banded(coef):
            return f"banded, {len(coef)} bands"
        case BLT(decay):
            return f"BLT, {len(decay)} buffers"
        case _:
            return type(mechanism).__name__


def usual_participation(plan: Plan) -> AbstractParticipation:
    """The participations that mechanisms are optimised for; noise is then accounted for as it is drawn."""
    if not isinstance(plan.sampling, Poisson | FixedSize):
        return plan.participation
    times = max(1, round(plan.steps * plan.expected_batch / plan.n))
    return Once() if times == 1 else FixedEpochs(times, max(1, plan.steps // times))
