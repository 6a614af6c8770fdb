"""Runs of one ReLU neuron as the experiments share them: a generator, recipes, and their exact risk.

The generator: x ~ N(0, I) in d dimensions, w* uniform on the unit sphere, y = ReLU(x·w*) + N(0, σ²). The
excess risk is exact (`antiphon_papers.relu.excess_risk`); it is 1/4 at the start and about σ²d/N
without privacy.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from antiphon.accounting import calibrate, gaussian_mu
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, Independent, Tree
from antiphon.numerics import Generator
from antiphon.plans import (
    AbstractSampling,
    FullBatch,
    GaussianRelease,
    OnePass,
    Plan,
    Poisson,
    ShuffledEpochs,
)
from antiphon.training.neuron import AbstractClipNorms, BlockThreshold, PublicThreshold, descend
from antiphon_papers.relu.printed import relu_theorem_3
from antiphon_papers.relu.theory.risk import excess_risk

__all__ = [
    "Array",
    "Recipe",
    "Sample",
    "draw",
    "fitted",
    "least_squares",
    "noise_of",
    "plan_of",
    "risk_of",
]

Array = NDArray[np.float64]

_UPSILON, _DELTA = 8.0, 1 / 32  # the ends of DP-Threshold
# f of one shuffled pass at δ = N^-1.1 by clones of (ε₀, δ₀)-DP reports, looser than Gaussian clones.
_CLONES = {(16_000, 0.05): 4.377, (16_000, 0.2): 2.040, (16_000, 0.5): 1.402}
_PUBLIC = 100  # public records for the threshold of DP-GLMtron


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """Records, their labels and the truth behind them."""

    X: Array
    y: Array
    target: Array


def draw(n: int, d: int, label_noise: float, seed: int) -> Sample:
    """A data set of the generator; the same for every method of one seed."""
    rng = np.random.default_rng((8, seed))
    target = rng.standard_normal(d)
    target /= np.linalg.norm(target)
    X = rng.standard_normal((n, d))
    return Sample(X, np.maximum(X @ target, 0.0) + label_noise * rng.standard_normal(n), target)


@final
@dataclass(frozen=True)
class Recipe:
    """A method with its settings, but for the learning rate and the noise.

    Attributes:
        batches: "full", "poisson", "pass" (in batches) or "single" (one pass record by record, shuffled).
        steps: T; of "single" n.
        direction: "glmtron" or "sgd".
        clip_norm: s.
        average: Of the iterates.
        noise: "tight"; of one shuffled pass "shuffled" (as certified) or "clones" (as the specification's
            numeric clones have it, for N = 16,000 alone); "tree"; or "printed" (Theorem 3).
        threshold: "" (fixed clip norm), "private" (DP-Threshold on a tenth of each batch) or "public".
        factor: From a threshold on residuals to a clip norm.
    """

    batches: str
    steps: int
    direction: str = "glmtron"
    clip_norm: float = 4.743416490252569
    average: str = "tail"
    noise: str = "tight"
    threshold: str = ""
    factor: float = 4.16227766016838


def plan_of(recipe: Recipe, n: int, epsilon: float, delta: float) -> Plan:
    """The plan that runs, with its noise."""
    relation = "add-remove" if recipe.batches == "poisson" else "replace-one"
    mechanism: AbstractMechanism = Tree() if recipe.noise == "tree" else Independent()
    plan = Plan(
        n=n,
        sampling=_sampling(recipe, n),
        steps=n if recipe.batches == "single" else recipe.steps,
        clip_norm=recipe.clip_norm,
        mechanism=mechanism,
        relation=relation,
    )
    return plan.with_noise(noise_of(recipe, plan, epsilon, delta))


def noise_of(recipe: Recipe, plan: Plan, epsilon: float, delta: float) -> float:
    """The noise multiplier: least for (ε, δ), or as the paper prints it."""
    if recipe.noise == "printed":
        return 2 * relu_theorem_3(epsilon, delta, 8, form="second").noise
    if recipe.noise == "clones":
        if (plan.n, epsilon) not in _CLONES:
            raise PlanError(
                f"no noise of numeric clones is known for N = {plan.n}, ε = {epsilon:g}."
            )
        return 2 * _CLONES[plan.n, epsilon]
    if recipe.batches in ("pass", "full"):
        times = plan.steps if recipe.batches == "full" else 1
        return 2 * math.sqrt(times) / gaussian_mu(epsilon, delta)
    if recipe.noise == "tree":
        return 2 * math.sqrt(plan.n.bit_length()) / gaussian_mu(epsilon, delta)
    return _calibrated(plan.to_json(), epsilon, delta)


def fitted(recipe: Recipe, sample: Sample, plan: Plan, learning_rate: float, seed: int) -> Array:
    """The weights of one run."""
    rule = _clip_norms(recipe, sample, plan, seed)
    if isinstance(rule, BlockThreshold):  # as private as a step: together they cost no more
        plan = replace(plan, apart=(GaussianRelease(rule.mu, "thresholds", plan.relation),))
    with np.errstate(all="ignore"):
        return descend(
            sample.X,
            sample.y,
            plan,
            learning_rate=learning_rate,
            generator=Generator.seeded(seed),
            direction=recipe.direction,
            average=recipe.average,
            clip_norms=rule,
        )


def risk_of(weights: Array, sample: Sample) -> float:
    """The exact excess risk, at most 1e100: what overflows is worse than anything that does not."""
    if not np.isfinite(weights).all() or np.abs(weights).max() > 1e50:
        return 1e100
    return excess_risk(weights, sample.target)


def least_squares(X: Array, y: Array, *, is_glmtron: bool = False) -> Array:
    """The neuron without privacy: GLMtron until it stands, then least squares on the active records.

    GLMtron's end has a risk of σ²d/N to leading order; least squares, which reads active records alone, has
    half of it.
    """
    H = X.T @ X / len(X)
    w: Array = np.zeros(X.shape[1])
    for _ in range(60):
        w = w - np.linalg.solve(H, (np.maximum(X @ w, 0.0) - y) @ X / len(X))
    for _ in range(0 if is_glmtron else 20):
        active = X @ w > 0
        w = np.asarray(np.linalg.lstsq(X[active], y[active], rcond=None)[0], np.float64)
    return w


@cache
def _calibrated(plan: str, epsilon: float, delta: float) -> float:
    return calibrate(Plan.from_json(plan), epsilon, delta).known_noise()


def _sampling(recipe: Recipe, n: int) -> AbstractSampling:
    match recipe.batches:
        case "full":
            return FullBatch()
        case "poisson":
            return Poisson(rate=min(1.0, 160 / n))
        case "single":
            # One pass in random order: the shuffling is accounted for, or for tree noise not needed.
            return OnePass(1) if recipe.noise == "tree" else ShuffledEpochs(1)
        case "pass":
            return OnePass(n // recipe.steps)
        case _:
            raise PlanError(f"no batches are called {recipe.batches!r}.")


def _clip_norms(recipe: Recipe, sample: Sample, plan: Plan, seed: int) -> AbstractClipNorms | None:
    match recipe.threshold:
        case "":
            return None
        case "private":
            size = round(plan.expected_batch / 11)
            f = plan.known_noise() / 2
            return BlockThreshold(size, recipe.factor, _DELTA, _UPSILON, mu=1 / f, slack=0.0)
        case _:
            rng = np.random.default_rng((9, seed))
            X = rng.standard_normal((_PUBLIC, sample.X.shape[1]))
            noise = np.std(sample.y - np.maximum(sample.X @ sample.target, 0.0))
            y = np.maximum(X @ sample.target, 0.0) + noise * rng.standard_normal(_PUBLIC)
            return PublicThreshold(X, y, recipe.factor, _DELTA, _UPSILON, every=10)
