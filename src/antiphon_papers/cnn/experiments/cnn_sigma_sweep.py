"""Test accuracy of DP-GD on two-layer CNNs against the noise, and against the size of the start.

The hardest task of Figure 1 of [CNNGradientDescent26] (σ_p = 0.5, variant r1, 40 steps taken as one). With
too little noise the signal does not pass the knee; with too much, what noise has done to the filters drowns
fresh records: an inverted U whose top is near σ_b = 0.01.

Control: is it noise, or would a larger start do? GD whose start is as large as the displacement by noise,
η σ_b sqrt(T) = 0.14, recovers most of the gain, but not all of it.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from antiphon_papers.cnn.experiments.patch_runs import CI, means, measured
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.common.drawing import COLOURS, errorbars, finish, panels
from antiphon_papers.common.experiment import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]

_NOISES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
_STARTS = (0.03, 0.0707, 0.1414)


@final
@dataclass(frozen=True)
class Config:
    """One run.

    Attributes:
        study: "noise", or "start" (without noise).
        noise: σ_b.
        scale: σ₀.
        is_small: A quarter of the task, as in ``ci``.
        seed: Of everything.
    """

    study: str
    noise: float
    scale: float = 0.007
    is_small: bool = False
    seed: int = 0

    @property
    def setting(self) -> Setting:
        """As the simulator takes it."""
        base = CI if self.is_small else Setting()
        return dataclasses.replace(base, noise=self.noise, scale=self.scale)


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """Both studies, seeds outermost; fewer points of a quarter of the task for ``ci``."""
    is_ci = preset == "ci"
    # A quarter of the steps has the same displacement with twice the noise.
    noises = tuple(2 * noise for noise in (0.0, 0.01, 0.1)) if is_ci else _NOISES
    starts = _STARTS[-1:] if is_ci else _STARTS
    return tuple(
        config
        for seed in range(seeds if seeds is not None else 1 if is_ci else 4)
        for config in (
            *(Config("noise", noise, is_small=is_ci, seed=seed) for noise in noises),
            *(Config("start", 0.0, scale, is_ci, seed) for scale in starts),
        )
    )


def run(config: Config) -> list[Row]:
    """One row, after all steps."""
    setting = config.setting
    rows, _ = measured(setting, seed=config.seed, coarsen=10 if config.is_small else 40)
    return [vars(config) | {"steps": setting.steps} | row for row in rows]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over seeds."""
    return means(rows, ["study", "noise", "scale", "is_small"])


def plot(rows: Sequence[Row]) -> "Figure":
    """Accuracy against noise, with the control, and loss against noise."""
    found = summary(rows)
    figure, axes = panels(2, "σ_p = 0.5; unclipped, no ε")
    noisy = [row for row in found if row["study"] == "noise"]
    least = min(row["noise"] for row in noisy if row["noise"]) / 3
    curve = [row | {"x": row["noise"] or least} for row in noisy]  # 0 has no place on this axis
    for place, measure in zip(axes, ("test_accuracy", "test_loss"), strict=True):
        errorbars(place, curve, "x", measure, COLOURS[0], "DP-GD (leftmost: no noise)")
        starts = [row for row in found if row["study"] == "start"]
        for row, colour in zip(starts, COLOURS[1:], strict=False):
            label = f"GD, σ₀ = {row['scale']:g}"
            place.axhline(row[measure], color=colour, linestyle="--", label=label)
        finish(place, xlabel="σ_b", ylabel=measure.replace("_", " "), xscale="log")
    return figure
