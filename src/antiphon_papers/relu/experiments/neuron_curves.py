"""The runs that Figures 1 and 2 of the ReLU paper show: losses on real tables over passes, by method and ε.

Not an experiment by itself: ``relu-figure-1`` shows the training losses, ``relu-figure-2`` the test losses.
Each run measures both and is kept in the cache. Training and test losses are statistics that no certificate
covers; they are shown because the data are public or synthetic.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from antiphon import cache
from antiphon.accounting import gaussian_epsilon, gaussian_mu
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.numerics import Generator
from antiphon.plans import AbstractSampling, FullBatch, OnePass, Plan, ShuffledEpochs
from antiphon.training.neuron import Descent
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.experiment import Row
from antiphon_papers.relu.experiments.neuron_runs import least_squares
from antiphon_papers.relu.experiments.neuron_tables import TABLES, Table, table
from antiphon_papers.relu.printed import relu_theorem_3

__all__ = ["METHODS", "Config", "Method", "configs", "run", "summary"]

EPSILONS = (0.05, 0.2, 0.5)
_BATCH, _CLIP = 32, 1.0
_WORST = 1e6  # losses are cut here: what diverges is off every picture
_AT_ONCE = 4096  # steps


@final
@dataclass(frozen=True)
class Method:
    """A curve.

    Attributes:
        label: In the legend.
        is_printed: Whether it has the paper's noise, for one pass, whatever the passes.
        direction: "glmtron" or "sgd".
        batch: Records in a step; 0 for all, -10 for a tenth of the records, each used once.
        learning_rate: η.
        residual: A usual residual, by which directions are clipped hard, to this times the root of the
            number of features; 0 for a clip norm of 1, as printed methods have.
        passes: At most so many.
    """

    label: str
    is_printed: bool
    direction: str
    batch: int
    learning_rate: float
    residual: float = 0.0
    passes: int = 500


METHODS = {
    "sgd": Method("DP-SGD, as printed", True, "sgd", _BATCH, 0.01),
    "mb": Method("DP-MBGLMtron, as printed", True, "glmtron", _BATCH, 0.01),
    "glm": Method("DP-GLMtron, as printed, 100 passes", True, "glmtron", 1, 0.05, passes=100),
    "sgd-honest": Method("DP-SGD, noise for all passes", False, "sgd", _BATCH, 0.01),
    "mb-honest": Method("DP-MBGLMtron, one pass, 10 steps", False, "glmtron", -10, 0.5, 0.1),
    "full-honest": Method("full-batch GLMtron, 50 passes", False, "glmtron", 0, 0.5, 0.1, 50),
    "none": Method("least squares, not private", False, "sgd", 0, 0.0),
}


@final
@dataclass(frozen=True)
class Config:
    """One run.

    Attributes:
        data: "synthetic", or one of `antiphon_papers.relu.experiments.neuron_tables.TABLES`.
        method: A key of `METHODS`.
        epsilon: Nominal ε; δ = N^-1.1 of the training part.
        passes: Over the data, of methods that take several.
        seed: Of split, batches and noise.
    """

    data: str
    method: str
    epsilon: float
    passes: int
    seed: int


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """Four tables, all methods and three ε, five seeds; one small synthetic table and ε for ``ci``."""
    is_ci = preset == "ci"
    tables, epsilons = (("synthetic",), (0.5,)) if is_ci else (TABLES, EPSILONS)
    return tuple(
        Config(data, method, epsilon, 5 if is_ci else 500, seed)
        for seed in range(seeds if seeds is not None else 1 if is_ci else 5)
        for data in tables
        for method in METHODS
        for epsilon in epsilons
    )


def run(config: Config) -> list[Row]:
    """Train once; a row for every measured pass, the last one for the averaged weights."""
    if config.method not in METHODS:
        raise PlanError(f"method is one of {', '.join(METHODS)}; got {config.method!r}.")
    key: dict[str, Any] = dataclasses.asdict(config)
    found = cache.remembered("neuron-curves", key, lambda: {"rows": _run(config)})
    rows: list[Row] = found["rows"]
    return rows


def summary(rows: Sequence[Row]) -> list[Row]:
    """Mean losses of each curve at each pass."""
    by = ["data", "epsilon", "method", "label", "passes", "is_average"]
    kept = averages(rows, by=by, of=["train_loss", "test_loss"])
    real = {key: group[0]["real_epsilon"] for key, group in grouped(rows, by).items()}
    return [row | {"real_epsilon": real[tuple(row[name] for name in by)]} for row in kept]


def _run(config: Config) -> list[Row]:
    method, data = METHODS[config.method], _table(config.data, config.seed)
    if config.method == "none":
        w = least_squares(data.X_train, data.y_train)
        return [_row(config, data, 0, w, None, True)]
    n = len(data.y_train)
    delta = n**-1.1
    plan = _plan(config, method, data.X_train.shape, delta)
    passes = plan.steps / _per_pass(plan, n)
    real = _real_epsilon(plan, method, passes, delta)
    descent = Descent(
        data.X_train,
        data.y_train,
        plan,
        learning_rate=method.learning_rate,
        generator=Generator.seeded(config.seed),
        direction=method.direction,
        average="tail",
    )
    rows = []
    with np.errstate(all="ignore"):
        for step in _measured(plan.steps):
            while descent.step < step:
                descent.advance(min(_AT_ONCE, step - descent.step))
            done = step / _per_pass(plan, n)
            rows.append(_row(config, data, done, descent.weights, real, False))
    return [*rows, _row(config, data, passes, descent.result, real, True)]


def _plan(config: Config, method: Method, shape: tuple[int, ...], delta: float) -> Plan:
    n, d = shape
    mu, passes = gaussian_mu(config.epsilon, delta), min(config.passes, method.passes)
    sampling: AbstractSampling
    match method.batch:
        case 0:
            sampling, steps, noise = FullBatch(), passes, 2 * math.sqrt(passes) / mu
        case -10:
            sampling, steps, noise = OnePass(n // 10), 10, 2 / mu
        case batch:
            sampling = ShuffledEpochs(batch)
            steps = passes * -(-n // batch)
            if not method.is_printed:
                noise = 2 * math.sqrt(passes) / mu
            elif batch == 1:
                noise = 2 * math.log(n / delta) / (config.epsilon * math.sqrt(n))
            else:
                noise = 2 * relu_theorem_3(config.epsilon, delta, 10, form="second").noise
    return Plan(
        n=n,
        sampling=sampling,
        steps=steps,
        clip_norm=method.residual * math.sqrt(d) or _CLIP,
        mechanism=Independent(),
        relation="replace-one",
        noise_multiplier=noise,
    )


def _per_pass(plan: Plan, n: int) -> float:
    return math.ceil(n / plan.expected_batch)


def _real_epsilon(plan: Plan, method: Method, passes: float, delta: float) -> float:
    """Of all passes, exactly: each record is used once in each of them, in an order that does not change.

    For single records the order's randomness, which the paper counts on for one pass, is not accounted for.
    """
    times = plan.steps if method.batch == 0 else round(passes)
    return gaussian_epsilon(2 * math.sqrt(max(1, times)) / plan.known_noise(), delta)


def _measured(steps: int) -> list[int]:
    """About twenty steps, evenly spaced in their logarithms."""
    return sorted({max(1, round(steps ** (k / 19))) for k in range(20)} | {steps})


def _row(
    config: Config, data: Table, passes: float, w: Any, real: float | None, is_average: bool
) -> Row:
    return {
        "data": config.data,
        "method": config.method,
        "label": METHODS[config.method].label,
        "epsilon": config.epsilon,
        "real_epsilon": real,
        "seed": config.seed,
        "passes": float(passes),
        "is_average": is_average,
        "train_loss": _loss(data.X_train, data.y_train, w),
        "test_loss": _loss(data.X_test, data.y_test, w),
    }


def _loss(X: Any, y: Any, w: Any) -> float:
    with np.errstate(all="ignore"):
        value = float(np.mean((np.maximum(X @ w, 0.0) - y) ** 2) / 2)
    return min(value, _WORST) if math.isfinite(value) else _WORST


@lru_cache(maxsize=2)
def _table(name: str, seed: int) -> Table:
    return table(name, seed)
