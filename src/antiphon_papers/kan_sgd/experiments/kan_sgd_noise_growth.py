"""How the noise in the sum of all gradients grows, with and without correlation.

After t steps λ-CGD has left κ(z_t + (1 - λ) Σ_{s<t} z_s) in the sum of all gradients, of standard deviation
κ sqrt(1 + (1 - λ)²(t - 1)) [KANCorrelated26]; beside this curve stands what the mechanism really adds. κ is
certified for each ε and λ, so the last step compares correlations at equal privacy.

Seen in ``full`` (T = 1000, rate 0.01, δ = 1e-5; λ = 0, 0.5, 0.9): 75.3, 80.6, 83.4 at ε = 0.5, where
correlation costs; 44.7, 43.2, 43.9 at ε = 1; 30.3, 25.2, 24.5 at ε = 2; 18.5, 12.5, 9.5 at ε = 8. κ of λ >
0 is a Monte Carlo bound, some per cent above its estimate, that of λ = 0 is exact. ``ci`` has 16 steps with
every record in each, where noise is certified in closed form; correlation costs there (31.9 and 32.9 for λ
= 0 and 0.5).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from antiphon.mechanisms import LambdaCGD
from antiphon.numerics import Generator
from antiphon.plans import Plan, Poisson
from antiphon_papers.common.averages import averages
from antiphon_papers.common.drawing import COLOURS, finish, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.common.learning import calibrated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "growth", "plot", "run", "summary"]

_COORDINATES = 4000  # the standard deviation is measured to about 1 %
_SHOWN = 25  # steps at which it is measured


@final
@dataclass(frozen=True)
class Config:
    """One ε and one λ.

    Attributes:
        epsilon: ε for which κ is certified.
        lam: λ.
        steps: T.
        rate: Of Poisson sampling.
        delta: δ.
        seed: Of the measured noise.
    """

    epsilon: float
    lam: float
    steps: int = 1000
    rate: float = 0.01
    delta: float = 1e-5
    seed: int = 0


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All ε and λ of the specification's table; few and short ones for ``ci``."""
    repeats = range(1 if seeds is None else seeds)
    if preset == "ci":
        return tuple(
            Config(2.0, lam, steps=16, rate=1.0, seed=seed)
            for seed in repeats
            for lam in (0.0, 0.5)
        )
    return tuple(
        Config(epsilon, lam, seed=seed)
        for seed in repeats
        for epsilon in (0.5, 1.0, 2.0, 8.0)
        for lam in (0.0, 0.5, 0.9)
    )


def growth(noise_multiplier: float, lam: float, step: int) -> float:
    """κ sqrt(1 + (1 - λ)²(t - 1)), the standard deviation of the summed noise after t steps.

    Example:
        >>> [round(growth(1.0, lam, 100), 6) for lam in (0.0, 0.5, 0.9)]
        [10.0, 5.074446, 1.410674]
    """
    return noise_multiplier * math.sqrt(1 + (1 - lam) ** 2 * (step - 1))


def run(config: Config) -> list[Row]:
    """The curve and the measured noise at some steps, evenly spaced in their logarithms."""
    plan = Plan(
        n=1,
        sampling=Poisson(config.rate),
        steps=config.steps,
        mechanism=LambdaCGD(config.lam),
    )
    kappa = calibrated(plan, config.epsilon, config.delta).plan.known_noise()
    measured = _measured(config)
    return [
        {
            "epsilon": config.epsilon,
            "lam": config.lam,
            "steps": config.steps,
            "seed": config.seed,
            "noise_multiplier": kappa,
            "step": step,
            "theory": growth(kappa, config.lam, step),
            "measured": kappa * measured[step - 1],
        }
        for step in _shown(config.steps)
    ]


def _shown(steps: int) -> list[int]:
    return sorted({round(x) for x in np.geomspace(1, steps, min(steps, _SHOWN))})


def _measured(config: Config) -> list[float]:
    """Root mean square of the mechanism's summed noise at κ = 1, after each step."""
    mechanism, source = LambdaCGD(config.lam), Generator.seeded(config.seed).spawn("noise")
    total = torch.zeros(_COORDINATES)
    state, found = mechanism.init([total], config.steps), []
    for step in range(config.steps):
        (row,), state = mechanism.correlate(source.normal([total], step), state)
        total = total + row
        found.append(float(total.double().square().mean().sqrt()))
    return found


def summary(rows: Sequence[Row]) -> list[Row]:
    """The table: κ and the summed noise after the last step, for each ε and λ."""
    last = [row for row in rows if row["step"] == row["steps"]]
    return averages(last, by=["epsilon", "lam", "noise_multiplier", "theory"], of=["measured"])


def plot(rows: Sequence[Row]) -> "Figure":
    """Growth over the steps at the largest ε, and the noise after the last step for all ε."""
    largest = max(row["epsilon"] for row in rows)
    figure, (left, right) = panels(2, f"{rows[0]['steps']} steps, certified noise")
    colours = dict(zip(sorted({row["lam"] for row in rows}), COLOURS, strict=False))
    first = [r for r in rows if r["epsilon"] == largest and r["seed"] == rows[0]["seed"]]
    for lam, colour in colours.items():
        _curve(left, [row for row in first if row["lam"] == lam], colour)
        ends = [row for row in summary(rows) if row["lam"] == lam]
        x, y = [row["epsilon"] for row in ends], [row["theory"] for row in ends]
        right.plot(x, y, marker="o", color=colour, label=f"λ = {lam:g}")
    scales = {"xscale": "log", "yscale": "log"}
    finish(
        left,
        title=f"ε = {largest:g}: curves, and what was drawn",
        xlabel="step",
        ylabel="noise in the sum of all gradients",
        **scales,
    )
    finish(right, title="After the last step", xlabel="ε", **scales)
    return figure


def _curve(axes: "Axes", rows: Sequence[Row], colour: str) -> None:
    steps, label = [row["step"] for row in rows], f"λ = {rows[0]['lam']:g}"
    axes.plot(steps, [row["theory"] for row in rows], color=colour, label=label)
    axes.plot(steps, [row["measured"] for row in rows], "o", color=colour, markersize=3)
