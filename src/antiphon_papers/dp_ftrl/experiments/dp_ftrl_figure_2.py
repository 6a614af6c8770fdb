"""Linear regression: stationary error against dimension, effective dimension and learning rate, exactly.

Eigenvalues k^-α; d = 128, α = 1, η = 0.02 where they are not varied, ν = ημ, ρ = G = 1, no label noise
(the paper leaves ν, ρ and G open). Exact errors of independent and ν-FTRL noise, the best ν, the best
filter (a BLT of six buffers), and a lower bound that no Toeplitz noise can pass; dots are simulated where
that takes seconds.

Slopes in logarithms. Dimension: 1.009 and 0.37. Effective dimension: 0.170 and 0.94 (1.10 with ν fixed at
0.02/128; the paper's 1.27 cannot be had without the ν it does not state). Learning rate: 1.08 and 1.86.
At the base point correlation makes the error 70.7 times smaller, and the best filter makes it another 8 %
smaller than ν = ημ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from antiphon.mechanisms import AbstractMechanism, Independent, NuFTRL
from antiphon_papers import dp_ftrl
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.drawing import COLOURS, finish, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.dp_ftrl.experiments.ftrl_runs import simulated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "slope", "summary"]

_LONGEST = 9000  # steps of burn-in beyond which nothing is simulated
_X = {"dimension": "d", "eigenvalues": "d_eff", "learning rate": "learning_rate"}
_EXACT = ("independent", "nu_ftrl", "fixed_nu", "best_nu", "best_filter", "lower_bound")


@final
@dataclass(frozen=True)
class Config:
    """One problem.

    Attributes:
        study: "dimension", "eigenvalues" or "learning rate".
        d: Dimension.
        alpha: Eigenvalues are k^-alpha.
        learning_rate: η.
        chains: Simulated chains; 0 for none.
        seed: Of the simulation.
    """

    study: str
    d: int = 128
    alpha: float = 1.0
    learning_rate: float = 0.02
    chains: int = 0
    seed: int = 0


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """The three studies; small ones for ``ci``."""
    is_ci = preset == "ci"
    chains = 20 if is_ci else 100
    count = 1 if seeds is None else seeds
    found = []
    for seed in range(count):
        for d in (2, 4) if is_ci else (16, 32, 64, 128, 256, 512):
            found.append(Config("dimension", d, seed=seed, learning_rate=0.1 if is_ci else 0.02))
        for alpha in (0.4, 1.0) if is_ci else np.linspace(0.4, 1, 7).round(2).tolist():
            base = (4, alpha, 0.1) if is_ci else (128, alpha, 0.02)
            found.append(Config("eigenvalues", *base, seed=seed))
        for eta in (0.1, 0.15) if is_ci else (0.002, 0.005, 0.01, 0.02, 0.05, 0.1):
            found.append(Config("learning rate", 4 if is_ci else 128, 1.0, eta, seed=seed))
    with_chains = [_with_chains(config, chains) for config in found]
    return tuple(config for config in with_chains if config.chains or config.seed == 0)


def _with_chains(config: Config, chains: int) -> Config:
    slowest = config.learning_rate * config.d**-config.alpha
    simulates = 5 / slowest <= _LONGEST
    return Config(
        config.study,
        config.d,
        config.alpha,
        config.learning_rate,
        chains if simulates else 0,
        config.seed,
    )


def run(config: Config) -> list[Row]:
    """Exact errors, and those of chains."""
    values = dp_ftrl.power_law(config.d, config.alpha)
    eta, smallest = config.learning_rate, float(values.min())
    problem: dict[str, Any] = {"spectrum": values, "learning_rate": eta}
    best = dp_ftrl.best_nu(**problem)
    buffered = dp_ftrl.best_filter(**problem).buffered(6)
    mechanisms: dict[str, AbstractMechanism] = {
        "independent": Independent(),
        "nu_ftrl": NuFTRL(eta * smallest),
        "fixed_nu": NuFTRL(eta / config.d),
        "best_nu": NuFTRL(best),
        "best_filter": buffered,
    }
    row: Row = {
        "study": config.study,
        "d": config.d,
        "alpha": config.alpha,
        "learning_rate": eta,
        "seed": config.seed,
        "d_eff": dp_ftrl.effective_dimension(values),
        "nu_star": best,
        **{name: dp_ftrl.f_infinity(m, **problem) for name, m in mechanisms.items()},
        "lower_bound": dp_ftrl.universal_lower_bound(**problem),
    }
    for name in ("independent", "nu_ftrl"):
        row[f"simulated_{name}"] = None
        if config.chains:
            row[f"simulated_{name}"] = simulated(
                dp_ftrl.LinearRegression(tuple(values.tolist())),
                mechanisms[name],
                learning_rate=eta,
                slowest=eta * smallest,
                chains=config.chains,
                seed=config.seed,
            )
    return [row]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y in log x, by least squares.

    Example:
        >>> round(slope([1.0, 2.0, 4.0], [1.0, 4.0, 16.0]), 9)
        2.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each study the slope of every error, and how far simulations are from exact errors."""
    found = []
    for (study,), members in grouped(rows, ["study"]).items():
        first = [row for row in members if row["seed"] == 0]
        x = [float(row[_X[str(study)]]) for row in first]
        line: Row = {"study": study, "against": _X[str(study)], "points": len(first)}
        for name in _EXACT:
            line[f"slope_{name}"] = slope(x, [row[name] for row in first])
        for name in ("independent", "nu_ftrl"):
            ratios = [
                {"study": study, "ratio": row[f"simulated_{name}"] / row[name]}
                for row in members
                if row[f"simulated_{name}"] is not None
            ]
            mean = averages(ratios, ["study"], ["ratio"])[0] if ratios else {"ratio": None}
            line[f"simulated_over_exact_{name}"] = mean["ratio"]
        found.append(line)
    return found


def plot(rows: Sequence[Row]) -> "Figure":
    """One panel for each study, both axes logarithmic."""
    from matplotlib.ticker import NullFormatter

    figure, axes = panels(3, "Linear regression, stationary error, ρ = G = 1")
    drawn = {
        "independent": "independent",
        "nu_ftrl": "ν-FTRL, ν = ημ",
        "best_filter": "best filter, 6 buffers",
        "lower_bound": "no noise can be below",
    }
    for panel, (study, x_name) in zip(axes, _X.items(), strict=True):
        members = [row for row in rows if row["study"] == study]
        first = sorted((row for row in members if row["seed"] == 0), key=lambda r: float(r[x_name]))
        for (name, label), colour in zip(drawn.items(), COLOURS, strict=False):
            style = ":" if name == "lower_bound" else "-"
            x, y = [row[x_name] for row in first], [row[name] for row in first]
            panel.plot(x, y, style, color=colour, label=label)
            dots = [row for row in members if row.get(f"simulated_{name}") is not None]
            x, y = [r[x_name] for r in dots], [r[f"simulated_{name}"] for r in dots]
            panel.plot(x, y, "o", color=colour, markersize=4)
        labels = {"dimension": "d", "eigenvalues": "effective dimension", "learning rate": "η"}
        finish(
            panel,
            title=f"By {study}",
            xlabel=labels[study],
            ylabel="F_∞" if study == "dimension" else "",
            xscale="log",
            yscale="log",
        )
        if study == "learning rate":  # the labels between powers of ten would overlap
            panel.xaxis.set_minor_formatter(NullFormatter())
    return figure
