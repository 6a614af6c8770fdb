"""Mean estimation: what the best correlation leaves of DP-SGD's error, and what that correlation is.

Left: the exact ratio of the errors that privacy causes, η(2 - η)((2/π)K(1 - η))² [CorrelatedNoise24, Thm.
    2.1],
and simulated ones. Middle and right: the best correlations in time and in frequency.

The ratio rises from 0 to 1 with the learning rate: 0.016 at η = 0.001, 0.40 at 0.1, 0.995 at 0.9, and 1 at
η = 1, where the best noise is independent. The paper's caption claims orders of magnitude also as η → 1.
The weights fall like t^(-3/2) up to t = 1/η and exponentially beyond; low frequencies are taken out of
the noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from antiphon.mechanisms import Independent, NuFTRL
from antiphon_papers import dp_ftrl
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.drawing import COLOURS, finish, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.dp_ftrl.experiments.ftrl_runs import simulated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]

_SHOWN = (0.01, 0.1, 0.5)  # learning rates whose correlations are drawn
_POINTS = 60


@final
@dataclass(frozen=True)
class Config:
    """One learning rate.

    Attributes:
        learning_rate: η.
        chains: Simulated chains; 0 for none.
        seed: Of the simulation.
    """

    learning_rate: float
    chains: int = 0
    seed: int = 0


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """Learning rates up to 1; simulations from 0.01 on, where they do not take minutes."""
    rates = _SHOWN if preset == "ci" else (*_full_rates(),)
    chains = 50 if preset == "ci" else 400
    least = 0.1 if preset == "ci" else 0.01
    count = 1 if seeds is None else seeds
    found = [Config(rate, chains if rate >= least else 0, 0) for rate in rates]
    found += [Config(rate, chains, s) for s in range(1, count) for rate in rates if rate >= least]
    return tuple(found)


def _full_rates() -> list[float]:
    small = [float(f"{x:.3g}") for x in np.geomspace(1e-4, 0.1, 25)]
    return sorted({*small, *_SHOWN, *(round(x, 2) for x in np.linspace(0.15, 0.95, 17)), 0.99, 1.0})


def run(config: Config) -> list[Row]:
    """The ratio, simulated if there are chains; and the correlations of some rates, once."""
    eta = config.learning_rate
    exact = dp_ftrl.theorem_2_1(eta)
    low, high = dp_ftrl.mean_gain_bounds(eta)
    row: Row = {
        "shows": "ratio",
        "learning_rate": eta,
        "seed": config.seed,
        "ratio": exact.ratio,
        "lower": low,
        "upper": high,
        "f_infinity": exact.best,
        "f_infinity_independent": exact.independent,
        "simulated": None,
    }
    if config.chains:
        best, independent = (
            simulated(
                dp_ftrl.MeanProblem(),
                mechanism,
                learning_rate=eta,
                slowest=min(eta, 0.5),
                chains=config.chains,
                seed=config.seed,
            )
            for mechanism in (exact.mechanism, Independent())
        )
        row["simulated"] = best / independent
    drawn = eta in _SHOWN and config.seed == 0
    return [row, *(_correlations(eta) if drawn else [])]


def _correlations(eta: float) -> list[Row]:
    mechanism = NuFTRL(eta)
    longest = math.ceil(20 / eta)
    beta = mechanism.inverse_column(longest)
    times = sorted({round(t) for t in np.geomspace(1, longest - 1, _POINTS)})
    found: list[Row] = [
        {"shows": "time", "learning_rate": eta, "t": t, "beta": float(beta[t])} for t in times
    ]
    omega = np.linspace(0, math.pi, _POINTS)
    power = dp_ftrl.power_spectrum(mechanism, omega)
    return found + [
        {"shows": "frequency", "learning_rate": eta, "omega": float(w), "power": float(p)}
        for w, p in zip(omega, power, strict=True)
    ]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Exact ratios, with the mean of the simulated ones where there are some."""
    ratios = [row for row in rows if row["shows"] == "ratio"]
    seen = [row for row in ratios if row["simulated"] is not None]
    means = {row["learning_rate"]: row for row in averages(seen, ["learning_rate"], ["simulated"])}
    empty: Row = {"runs": 0, "simulated": None, "simulated_se": None}
    return [
        {
            "learning_rate": row["learning_rate"],
            "ratio": row["ratio"],
            "f_infinity": row["f_infinity"],
            "f_infinity_independent": row["f_infinity_independent"],
            **means.get(row["learning_rate"], empty),
        }
        for row in ratios
        if row["seed"] == 0
    ]


def plot(rows: Sequence[Row]) -> "Figure":
    """Ratio against η; weights against t; power against ω."""
    figure, (left, middle, right) = panels(3, "The mean of bounded numbers, ρ-zCDP")
    table = sorted(summary(rows), key=lambda row: row["learning_rate"])
    eta = [row["learning_rate"] for row in table]
    left.plot(eta, [row["ratio"] for row in table], color=COLOURS[0], label="exact")
    seen = [row for row in table if row["simulated"] is not None]
    x, y = [row["learning_rate"] for row in seen], [row["simulated"] for row in seen]
    left.plot(x, y, "o", color=COLOURS[1], markersize=4, label="simulated")
    for shows, axes, x_name, y_name in (
        ("time", middle, "t", "beta"),
        ("frequency", right, "omega", "power"),
    ):
        drawn = grouped([row for row in rows if row["shows"] == shows], ["learning_rate"])
        for ((rate,), points), colour in zip(drawn.items(), COLOURS, strict=False):
            values = [abs(row[y_name]) for row in points]
            axes.plot([row[x_name] for row in points], values, color=colour, label=f"η = {rate:g}")
    finish(
        left, title="DP-FTRL over DP-SGD", xlabel="learning rate η", ylabel="ratio", xscale="log"
    )
    finish(
        middle, title="Best correlations", xlabel="t", ylabel="|β_t|", xscale="log", yscale="log"
    )
    middle.set_ylim(bottom=1e-8)
    finish(right, title="The same in frequency", xlabel="ω", ylabel="|B|²")
    return figure
