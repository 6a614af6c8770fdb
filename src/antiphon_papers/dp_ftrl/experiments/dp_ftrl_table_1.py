"""Table 1: how the stationary error of linear regression depends on η, d and the effective dimension.

Exact errors over a grid of learning rates, dimensions and spectra k^-α, scaled to λ_max = 1, and the
powers of η, d and d_eff that fit each row best. The paper's rates are η d for independent noise, η² d_eff
log²(1/(ημ)) for ν-FTRL with ν = ημ, and η² d_eff for the lower bound; here the bound is the sharp one,
which has the logarithms, too.

Seeds other than 0 multiply every eigenvalue by a random factor.
"""

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

__all__ = ["Config", "configs", "plot", "run", "summary"]

_RATES = {"independent": "independent", "nu-ftrl": "nu-ftrl", "lower bound": "lower bound"}


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All combinations."""
    is_ci = preset == "ci"
    count = seeds if seeds is not None else 1 if is_ci else 5
    return tuple(
        Config(d, alpha, eta, seed)
        for seed in range(count)
        for d in ((8, 16) if is_ci else (32, 64, 128, 256, 512))
        for alpha in ((0.5, 1.0) if is_ci else (0.25, 0.5, 0.75, 1.0))
        for eta in ((0.01, 0.02) if is_ci else (0.0005, 0.001, 0.002, 0.004))
    )


def run(config: Config) -> list[Row]:
    """The three rows of the table, each with the printed rate."""
    values = spectrum_near(config.d, config.alpha, config.seed)
    eta = config.learning_rate
    problem: dict[str, Any] = {"spectrum": values, "learning_rate": eta}
    exact = {
        "independent": dp_ftrl.f_infinity(Independent(), **problem),
        "nu-ftrl": dp_ftrl.f_infinity(NuFTRL(eta * float(values.min())), **problem),
        "lower bound": dp_ftrl.universal_lower_bound(**problem),
    }
    printed = dp_ftrl.theorem_2_2_printed(**problem)
    return [
        {
            "algorithm": name,
            "d": config.d,
            "alpha": config.alpha,
            "learning_rate": eta,
            "seed": config.seed,
            "d_eff": dp_ftrl.effective_dimension(values),
            "value": value,
            "printed_rate": printed[_RATES[name]],
            "over_printed": value / printed[_RATES[name]],
            "over_lower_bound": value / exact["lower bound"],
        }
        for name, value in exact.items()
    ]


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each algorithm the fitted powers, and the range of what the printed rate leaves out."""
    found = []
    for (name,), members in grouped(rows, ["algorithm"]).items():
        columns = {key: [row[key] for row in members] for key in ("learning_rate", "d", "d_eff")}
        powers = dp_ftrl.exponents([row["value"] for row in members], columns)
        constants = [row["over_printed"] for row in members]
        above = [row["over_lower_bound"] for row in members]
        found.append(
            {
                "algorithm": name,
                "points": len(members),
                **{f"power_of_{key}": power for key, power in powers.items()},
                "least_constant": min(constants),
                "largest_constant": max(constants),
                "least_over_lower_bound": min(above),
                "largest_over_lower_bound": max(above),
            }
        )
    return found


def plot(rows: Sequence[Row]) -> "Figure":
    """Error over the printed rate, and over the lower bound."""
    figure, (left, right) = panels(2, "Linear regression, λ_max = ρ = G = 1")
    for ((name,), members), colour in zip(
        grouped(rows, ["algorithm"]).items(), COLOURS, strict=False
    ):
        x = [row["d_eff"] for row in members]
        for axes, y in ((left, "over_printed"), (right, "over_lower_bound")):
            axes.plot(x, [row[y] for row in members], "o", ms=3, color=colour, label=str(name))
    scales = {"xscale": "log", "yscale": "log", "xlabel": "effective dimension"}
    finish(left, title="Exact error over the printed rate", **scales)
    finish(right, title="Exact error over the sharp lower bound", **scales)
    return figure
