"""Where noise helps a two-layer CNN: test accuracy over signal-to-noise ratio and noise.

A quarter of the task of Figure 1 of [CNNGradientDescent26] (d = 500, n = 250, m = 25, 5000 steps, 10 taken
as one; σ_b twice that of the figure for the same displacement): the accuracy of DP-GD less that of GD from
the same start, on the same records. Seen with three seeds: noise helps where n SNR² is about 6 or less,
most (by 0.17) near 1 and ever less below; above that there is nothing to gain, and σ_b = 0.2 costs up to
0.10.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from antiphon_papers.cnn.experiments.patch_runs import CI, means, measured
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.common.drawing import panels
from antiphon_papers.common.experiment import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]

_SPREADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4)
_NOISES = (0.0, 0.002, 0.006, 0.02, 0.06, 0.2)


@final
@dataclass(frozen=True)
class Config:
    """One run.

    Attributes:
        spread: σ_p.
        noise: σ_b; 0 is GD.
        seed: Of everything.
    """

    spread: float
    noise: float
    seed: int = 0

    @property
    def setting(self) -> Setting:
        """As the simulator takes it."""
        return dataclasses.replace(CI, spread=self.spread, noise=self.noise)


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All pairs, seeds outermost; four for ``ci``."""
    is_ci = preset == "ci"
    spreads = (0.1, 0.5) if is_ci else _SPREADS
    noises = (0.0, 0.02) if is_ci else _NOISES
    return tuple(
        Config(spread, noise, seed)
        for seed in range(seeds if seeds is not None else 1 if is_ci else 3)
        for spread in spreads
        for noise in noises
    )


def run(config: Config) -> list[Row]:
    """One row, after all steps."""
    setting = config.setting
    rows, _ = measured(setting, seed=config.seed, coarsen=10)
    known = {"steps": setting.steps, "n_snr2": setting.n / setting.inverse_snr**2}
    return [vars(config) | known | row for row in rows]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over seeds; ``gain`` is over GD of the same seeds."""
    found = means(rows, ["spread", "n_snr2", "noise"])
    plain = {row["spread"]: row["test_accuracy"] for row in found if row["noise"] == 0}
    return [row | {"gain": row["test_accuracy"] - plain[row["spread"]]} for row in found]


def plot(rows: Sequence[Row]) -> "Figure":
    """Gain over GD, and accuracy, as two maps."""
    found = summary(rows)
    spreads, noises = (sorted({row[name] for row in found}) for name in ("spread", "noise"))
    figure, axes = panels(2, "unclipped, no ε; n SNR² in brackets")
    ratio = {row["spread"]: row["n_snr2"] for row in found}
    for place, measure, name in zip(
        axes, ("gain", "test_accuracy"), ("accuracy of DP-GD less GD's", "accuracy"), strict=True
    ):
        at = {(row["noise"], row["spread"]): row[measure] for row in found}
        values = np.array([[at[noise, spread] for spread in spreads] for noise in noises])
        limits: dict[str, Any] = {"cmap": "viridis", "vmin": 0.5, "vmax": 1.0}
        if measure == "gain":
            bound = max(float(np.abs(values).max()), 1e-3)
            limits = {"cmap": "PuOr", "vmin": -bound, "vmax": bound}
        image = place.imshow(values, origin="lower", aspect="auto", **limits)
        figure.colorbar(image, ax=place)
        place.set_xticks(range(len(spreads)), [f"{s:g}\n({ratio[s]:.2g})" for s in spreads])
        place.set_yticks(range(len(noises)), [f"{noise:g}" for noise in noises])
        place.set(xlabel="σ_p", ylabel="σ_b", title=name)
    return figure
