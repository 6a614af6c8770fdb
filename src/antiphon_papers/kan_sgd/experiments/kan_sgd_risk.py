"""Risk of two-layer KANs against the number of records, and against λ at fixed noise.

The data are separable with a gap by a sum of functions of single numbers, in the unit ball. Batches are
twentieths of a fixed random order, so that a record's participations lie far apart, noise is certified in
closed form, and λ* of `antiphon_papers.kan_sgd.best_lambda` applies, with a = 12βη from the curvature
measured at the start on other synthetic records. The risk is that of the theorems: the mean over the
iterates. Steps grow as sqrt(n), as in the regime of Corollary 5.3 of [KANCorrelated26].

Left: no noise, independent noise, λ* and λ = 0.8, at ε = 2, δ = 1/n, with slopes of log risk in log n. Seen
in ``full`` (width 32; wider ones are alike) at n = 500, 2000, 8000: 0.529, 0.443, 0.355 without noise;
0.631, 0.502, 0.376 with independent noise; 0.598, 0.472, 0.364 with λ*, which is about 0.45; 0.569, 0.458,
0.358 with λ = 0.8; slopes of -0.14, -0.19, -0.18 and -0.17. Risk falls with n, but more slowly than the
bounds' n^(-1/2) (the mean over iterates holds the start's loss). λ* takes away a third to 70 % of what
noise costs, λ = 0.8 60 to 90 %: a = 12βη, about 0.7, is too pessimistic.

Right: a fixed noise multiplier, all λ. By Remark 4.2 in print, risk would fall all the way to λ = 1. A
minimum before it is seen at λ = 0.97 for learning rates 8 and 40 (at 40: 0.345 there, 0.346 at λ = 1, 0.368
at 0.9, 0.679 at 0), too shallow to be told from λ = 1; at rate 2 there is none. The lemma's 1/(1 + 12βη)
lies far before it, at 0.03 for rate 40: the constant 12 serves the proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.mechanisms import LambdaCGD
from antiphon_papers import kan_sgd
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.drawing import COLOURS, errorbars, finish, mark, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.common.generators import separable_additive
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "slope", "summary"]

_BATCHES = 20  # in an epoch: a record's participations are so many steps apart
_INPUTS = 5
_MEASURED = 40  # iterates whose risk is measured
_TEST = 4000
_CURVED = 1000  # of those, for the curvature


@final
@dataclass(frozen=True)
class Config:
    """One training.

    Attributes:
        study: "records" (left) or "correlation" (right).
        n: Records.
        width: Hidden width m.
        noise: "none", "independent", "best" (λ*) or "given" (``lam``).
        steps: T.
        learning_rate: η.
        seed: Of everything.
        lam: λ where it is given.
        epsilon: ε at δ = 1/n for which the noise is certified.
        noise_multiplier: The noise, where ``epsilon`` is None.
    """

    study: str
    n: int
    width: int
    noise: str
    steps: int
    learning_rate: float = 1.0
    seed: int = 0
    lam: float = 0.0
    epsilon: float | None = 2.0
    noise_multiplier: float | None = None


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """Both studies; two sizes and few steps for ``ci``."""
    is_ci = preset == "ci"
    sizes = (100, 200) if is_ci else (500, 1000, 2000, 4000, 8000)
    widths = (8,) if is_ci else (32, 128, 512)
    given = 0.8
    found = []
    for seed in range(seeds if seeds is not None else 1 if is_ci else 5):
        found += [
            Config(
                "records",
                n,
                width,
                noise,
                round((1 if is_ci else 6) * math.sqrt(n)),
                seed=seed,
                lam=lam,
            )
            for width in widths
            for n in sizes
            for noise, lam in (("none", 0.0), ("independent", 0.0), ("best", 0.0), ("given", given))
        ]
        found += _at_fixed_noise(is_ci, seed)
    return tuple(found)


def _at_fixed_noise(is_ci: bool, seed: int) -> list[Config]:
    n, width, steps = (100, 8, 10) if is_ci else (2000, 32, 200)
    return [
        Config(
            "correlation",
            n,
            width,
            "given",
            steps,
            learning_rate,
            seed,
            lam,
            epsilon=None,
            noise_multiplier=4.0,
        )
        for learning_rate in ((8.0,) if is_ci else (2.0, 8.0, 40.0))
        for lam in ((0.0, 0.9) if is_ci else (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 1.0))
    ]


def run(config: Config) -> list[Row]:
    """Train once; one row."""
    data = separable_additive(config.n, seed=config.seed, d=_INPUTS, test=_TEST)
    X, y, X_test, y_test = (
        torch.as_tensor(part, dtype=torch.float32)
        for part in (data.X_train, data.y_train, data.X_test, data.y_test)
    )
    torch.manual_seed(config.seed)
    start = TwoLayerKAN(_INPUTS, config.width)
    beta = kan_sgd.measured_smoothness(X_test[:_CURVED], y_test[:_CURVED], start)
    a = 12 * config.learning_rate * beta
    lam = kan_sgd.best_lambda(a) if config.noise == "best" else config.lam
    every, losses = max(1, config.steps // _MEASURED), []

    def look(step: int, model: TwoLayerKAN) -> None:
        if step % every == 0:
            losses.append([_loss(model, *part) for part in ((X, y), (X_test, y_test))])

    noise = _train(config, lam, start, (X, y), look)
    train, risk = np.mean(losses, axis=0)
    return [
        {
            "study": config.study,
            "n": config.n,
            "width": config.width,
            "noise": config.noise,
            "learning_rate": config.learning_rate,
            "lam": lam,
            "a": a,
            "noise_multiplier": noise,
            "steps": config.steps,
            "seed": config.seed,
            "risk": float(risk),
            "train_loss": float(train),
            "last_risk": losses[-1][1],
        }
    ]


def _train(
    config: Config,
    lam: float,
    start: TwoLayerKAN,
    data: tuple[Tensor, Tensor],
    look: Callable[[int, TwoLayerKAN], None],
) -> float:
    """All steps of Algorithm 1; its noise multiplier."""
    how: dict[str, Any] = {
        "iterates": config.steps + 1,
        "step_size": config.learning_rate,
        "batch_size": config.n // _BATCHES,
        "clip_norm": 1.0,
        "sampling": "shuffled",
        "seed": config.seed,
        "callback": look,
    }
    if config.noise == "none":
        return kan_sgd.stochastic_gradient_descent(start, *data, **how).noise_multiplier
    return kan_sgd.descend(
        start,
        *data,
        mechanism=LambdaCGD(lam),
        epsilon=config.epsilon,
        noise_multiplier=config.noise_multiplier,
        delta=1 / config.n,
        **how,
    ).noise_multiplier


@torch.no_grad()
def _loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    return float(nn.functional.softplus(-labels * model(inputs)).mean())


def slope(sizes: Sequence[float], risks: Sequence[float]) -> float:
    """Of log risk in log n, by least squares.

    Example:
        >>> round(slope([100, 400, 1600], [0.4, 0.2, 0.1]), 12)
        -0.5
    """
    return float(np.polyfit(np.log(sizes), np.log(risks), 1)[0])


def summary(rows: Sequence[Row]) -> list[Row]:
    """Mean risk of each point; those of the study of records have the slope of their curve."""
    values = ["lam", "a", "noise_multiplier", "risk", "train_loss", "last_risk"]
    records = [row for row in rows if row["study"] == "records"]
    found = []
    for curve in grouped(records, ["study", "width", "noise"]).values():
        means = averages(curve, by=["study", "width", "noise", "learning_rate", "n"], of=values)
        fitted = slope([row["n"] for row in means], [row["risk"] for row in means])
        found += [row | {"slope": fitted} for row in means]
    others = [row | {"given": row["lam"]} for row in rows if row["study"] == "correlation"]
    by = ["study", "width", "noise", "learning_rate", "n", "given"]
    return [*found, *averages(others, by=by, of=values)]


def plot(rows: Sequence[Row]) -> "Figure":
    """Risk against n for the smallest width, and against λ at fixed noise."""
    means = summary(rows)
    width = min(row["width"] for row in means)
    figure, (left, right) = panels(2, f"mean risk over the iterates, width {width}")
    records = [row for row in means if row["study"] == "records" and row["width"] == width]
    for ((noise,), curve), colour in zip(
        grouped(records, ["noise"]).items(), COLOURS, strict=False
    ):
        label = {"best": "λ*", "given": "λ = 0.8"}.get(str(noise), str(noise))
        errorbars(left, curve, "n", "risk", colour, f"{label}: slope {curve[0]['slope']:.2f}")
    others = [row for row in means if row["study"] == "correlation"]
    for ((rate,), curve), colour in zip(
        grouped(others, ["learning_rate"]).items(), COLOURS, strict=False
    ):
        errorbars(right, curve, "given", "risk", colour, f"learning rate {rate:g}")
        lemma = kan_sgd.best_lambda_at_fixed_noise(curve[0]["a"])
        right.axvline(lemma, color=colour, linestyle=":", linewidth=1)
    finish(left, title="ε = 2", xlabel="n", ylabel="risk", xscale="log", yscale="log")
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("{x:g}")
    mark(left, (row["n"] for row in records))
    finish(right, title="Fixed noise (dotted: 1/(1 + 12βη))", xlabel="λ", ylabel="risk")
    return figure
