"""Clipped DP-GD on two-layer CNNs with a certificate: what privacy costs where noise does not help.

The hardest task of Figure 1 of [CNNGradientDescent26] (σ_p = 0.5) with clipped examples, C = 1, at ε = 8
and ε = 2, δ = 1e-5, under zero-out and replace-one. At fixed ε and C, growth of the signal and privacy
noise scale alike with T, so a few large steps are best: T = 20, η = 20, with a small knee and a start
beyond it (κ = 0.01, σ₀ = 0.05). There GD has nothing to escape from: without noise it tests best, and
privacy costs accuracy. The effect of Figure 1, noise that helps, is not seen at a meaningful ε.

The noise is that of a plan, calibrated and certified; ``rule`` is `antiphon_papers.cnn.margin_to_noise`.
The runs are simulated in the span of their synthetic records, with seeded noise of the same law: they are
not for release. What may be released comes from `antiphon_papers.cnn.descend`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from antiphon.mechanisms import Independent
from antiphon.plans import FullBatch, Plan
from antiphon_papers.cnn.experiments.patch_runs import DELTA, MEASURES
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.cnn.theory.simulation import simulate
from antiphon_papers.cnn.theory.times import margin_to_noise
from antiphon_papers.common.averages import averages
from antiphon_papers.common.drawing import COLOURS, errorbars, finish, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.common.learning import calibrated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]


@final
@dataclass(frozen=True)
class Config:
    """One run.

    Attributes:
        n: Records.
        d: Numbers in a patch.
        m: Filters of each sign.
        epsilon: ε; None for clipped GD without noise.
        relation: Between neighbours.
        seed: Of everything.
        clip_norm: C.
        steps: T.
        step_size: η.
    """

    n: int
    d: int
    m: int
    epsilon: float | None
    relation: str
    seed: int = 0
    clip_norm: float = 1.0
    steps: int = 20
    step_size: float = 20.0


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """Two sizes, three ε and two relations, seeds outermost; one size of a quarter for ``ci``."""
    is_ci = preset == "ci"
    sizes = ((1000, 500, 25),) if is_ci else ((1000, 2000, 100), (4000, 2000, 100))
    private = [
        (e, r) for e in ((8.0,) if is_ci else (8.0, 2.0)) for r in ("zero-out", "replace-one")
    ]
    return tuple(
        Config(*size, epsilon, relation, seed)
        for seed in range(seeds if seeds is not None else 1 if is_ci else 4)
        for size in sizes
        for epsilon, relation in ((None, "zero-out"), *private)
    )


def run(config: Config) -> list[Row]:
    """One row, after all steps, with the certified ε."""
    noise, certified, rule = 0.0, None, None
    base = Setting(d=config.d, n=config.n, m=config.m)
    if config.epsilon is not None:
        plan = Plan(
            n=config.n,
            sampling=FullBatch(),
            steps=config.steps,
            mechanism=Independent(),
            clip_norm=config.clip_norm,
            relation=config.relation,
        )
        certificate = calibrated(plan, config.epsilon, DELTA)
        noise, certified = certificate.plan.noise_scale / config.n, certificate.epsilon
        mu = math.sqrt(config.steps) * config.clip_norm / (config.n * noise)
        rule = margin_to_noise(base, mu, config.clip_norm)
    setting = Setting(
        d=config.d,
        n=config.n,
        m=config.m,
        knee=0.01,
        scale=0.05,
        step_size=config.step_size,
        noise=noise,
        steps=config.steps,
    )
    # The run's own noise has a seed: these rows are research on synthetic data, not a release.
    found = simulate(setting, seed=config.seed, clip_norm=config.clip_norm)
    last = {name: getattr(found.last, name) for name in (*MEASURES, "clipped")}
    known = {"noise": noise, "delta": DELTA, "certified_epsilon": certified, "rule": rule}
    longest = {"longest_clipped": found.dynamics.longest}
    return [vars(config) | known | last | longest]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over seeds."""
    by = ["n", "d", "epsilon", "relation", "noise", "certified_epsilon", "rule"]
    return averages(rows, by, [*MEASURES, "clipped"])


def plot(rows: Sequence[Row]) -> "Figure":
    """Accuracy against n for each ε and relation."""
    found = summary(rows)
    figure, (axes,) = panels(1, "clipped, C = 1, T = 20; certified ε at δ = 1e-5")
    kinds = dict.fromkeys((row["epsilon"], row["relation"]) for row in found)
    for (epsilon, relation), colour in zip(kinds, COLOURS, strict=False):
        curve = [row for row in found if (row["epsilon"], row["relation"]) == (epsilon, relation)]
        label = "no noise" if epsilon is None else f"ε = {epsilon:g}, {relation}"
        errorbars(axes, curve, "n", "test_accuracy", colour, label)
    finish(axes, xlabel="n", ylabel="test accuracy")
    return figure
