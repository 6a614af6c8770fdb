"""Table 4: independent and ν-FTRL noise for spectra of different decay, exact beside the printed rates.

Eigenvalues k^-a with a = 0, 1/2, 3/4, 1, 3/2, 2, and ν = ημ. The ratio of the two errors, and the same
over the rate of the table: its spread over dimensions and learning rates tells how good the rate is. The
rows for a > 1 are corrected: the printed prefactor a²/(a - 1) must be a³/(a - 1), and a = 2 has log², not
log³.

Seeds other than 0 multiply every eigenvalue by a random factor.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from antiphon.mechanisms import Independent, NuFTRL
from antiphon_papers import dp_ftrl
from antiphon_papers.common.averages import grouped
from antiphon_papers.common.drawing import COLOURS, finish, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.dp_ftrl.experiments.ftrl_runs import Config, spectrum_near

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "rates", "run", "summary"]


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All combinations."""
    is_ci = preset == "ci"
    count = seeds if seeds is not None else 1 if is_ci else 3
    return tuple(
        Config(d, alpha, eta, seed)
        for seed in range(count)
        for alpha in ((0.0, 1.0) if is_ci else (0.0, 0.5, 0.75, 1.0, 1.5, 2.0))
        for d in ((8, 16) if is_ci else (32, 64, 128, 256))
        for eta in ((0.01, 0.02) if is_ci else (0.0002, 0.0005, 0.001, 0.002))
    )


def rates(alpha: float, d: int, learning_rate: float) -> tuple[float, float, float]:
    """The effective dimension and ν-FTRL over independent noise by the table, corrected and as printed.

    Example:
        >>> corrected, printed = rates(2.0, 100, 0.01)[1:]
        >>> round(printed / corrected, 3)  # log³ for 8 log²
        1.151
    """
    log = math.log(d / learning_rate)
    if alpha == 1:
        ratio = learning_rate / d * log**3
        return math.log(d), ratio, ratio
    if alpha < 1:
        effective = d ** (1 - alpha) / (1 - alpha)
        inner = math.log(1 / learning_rate) if alpha == 0 else log
        ratio = learning_rate * d**-alpha / (1 - alpha) * inner**2
        return effective, ratio, ratio
    share = learning_rate / d * log**2
    printed = learning_rate / d * log**3 if alpha == 2 else alpha**2 / (alpha - 1) * share
    return alpha / (alpha - 1), alpha**3 / (alpha - 1) * share, printed


def run(config: Config) -> list[Row]:
    """One row: both errors, their ratio and the table's."""
    values = spectrum_near(config.d, config.alpha, config.seed)
    eta = config.learning_rate
    problem: dict[str, Any] = {"spectrum": values, "learning_rate": eta}
    independent = dp_ftrl.f_infinity(Independent(), **problem)
    correlated = dp_ftrl.f_infinity(NuFTRL(eta * float(values.min())), **problem)
    effective, corrected, printed = rates(config.alpha, config.d, eta)
    return [
        {
            "alpha": config.alpha,
            "d": config.d,
            "learning_rate": eta,
            "seed": config.seed,
            "d_eff": dp_ftrl.effective_dimension(values),
            "d_eff_of_table": effective,
            "independent": independent,
            "nu_ftrl": correlated,
            "ratio": correlated / independent,
            "over_corrected": correlated / independent / corrected,
            "over_printed": correlated / independent / printed,
        }
    ]


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each a the power of d in the ratio, and how much the table's rates leave open."""
    found = []
    for (alpha,), members in grouped(rows, ["alpha"]).items():
        by = {name: [row[name] for row in members] for name in ("d", "learning_rate")}
        powers = dp_ftrl.exponents([row["ratio"] for row in members], by)
        line: Row = {
            "alpha": alpha,
            "points": len(members),
            "power_of_d": powers["d"],
            "power_of_learning_rate": powers["learning_rate"],
        }
        for name in ("over_corrected", "over_printed"):
            constants = [row[name] for row in members]
            line[f"least_{name}"], line[f"largest_{name}"] = min(constants), max(constants)
        found.append(line)
    return found


def plot(rows: Sequence[Row]) -> "Figure":
    """The ratio against d, and over the table's rate."""
    figure, (left, right) = panels(2, "ν-FTRL over independent noise, eigenvalues near k^-a")
    for ((alpha,), members), colour in zip(grouped(rows, ["alpha"]).items(), COLOURS, strict=False):
        x = [row["d"] for row in members]
        for axes, y in ((left, "ratio"), (right, "over_corrected")):
            axes.plot(x, [r[y] for r in members], "o", ms=3, color=colour, label=f"a = {alpha:g}")
    scales = {"xscale": "log", "yscale": "log", "xlabel": "d"}
    finish(left, title="Exact", **scales)
    finish(right, title="Over the table's rate, corrected", **scales)
    return figure
