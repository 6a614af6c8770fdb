"""Runs on signal-and-noise data as the experiments on [CNNGradientDescent26] show them.

Not an experiment by itself. Losses, accuracies and coefficients on training records are statistics of the
data that no guarantee covers: they are shown because the data are synthetic.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from antiphon_papers.cnn.privacy import random_dp
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.cnn.theory.simulation import Simulation, simulate
from antiphon_papers.common.averages import averages
from antiphon_papers.common.experiment import Row

if TYPE_CHECKING:
    pass

__all__ = ["CI", "DELTA", "MEASURES", "last_rows", "means", "measured"]

DELTA = 1e-5
MEASURES = ("test_accuracy", "test_loss", "train_loss", "train_accuracy")

# A quarter of the figure's task: n SNR², n/d, ηT/m and the displacement by noise are those of σ_p = 0.5.
CI = Setting(d=500, n=250, m=25, spread=0.5, noise=0.02, steps=5000)


def measured(
    setting: Setting,
    *,
    seed: int,
    coarsen: int = 1,
    looks: Iterable[int] = (),
    precision: str = "float32",
    draws: int = 20_000,
) -> tuple[list[Row], Simulation]:
    """A row for each look, and the run.

    ``random_dp_epsilon`` is conditional on short noise patches (`antiphon_papers.cnn.random_dp`): runs
    are not clipped, and have no differential privacy.
    """
    found = simulate(
        setting, seed=seed, coarsen=coarsen, looks=looks, precision=precision, draws=draws
    )
    conditional = random_dp(setting, DELTA).epsilon if setting.noise else None
    rows = [
        dataclasses.asdict(measurement) | {"random_dp_epsilon": conditional}
        for measurement in found.measurements
    ]
    return rows, found


def last_rows(rows: Sequence[Row]) -> list[Row]:
    """Those after all steps of their run."""
    return [row for row in rows if row["step"] == row["steps"]]


def means(rows: Sequence[Row], by: Sequence[str]) -> list[Row]:
    """Means of all measures after all steps."""
    return averages(last_rows(rows), [*by], [*MEASURES, "largest_gamma", "mean_rho"])
