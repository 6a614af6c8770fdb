"""Table 2: earlier correlations under the same theory, with their exact sensitivity and stationary error.

Without damping (Optimal CC, anti-PGD) the sensitivity grows with the number of steps, like log T and T,
and the stationary error is infinite; both are finite with damping. Damped anti-PGD lies at the geometric
mean of independent noise and the lower bound: its power of η is 3/2. The last row is the best filter for
the spectrum, as a BLT of six buffers; the paper has no such row.

Seeds other than 0 multiply every eigenvalue by a random factor.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from antiphon.errors import UnsupportedError
from antiphon.mechanisms import AbstractMechanism, Independent, LambdaCGD, NuFTRL
from antiphon.numerics import Series
from antiphon.participation import Once
from antiphon_papers import dp_ftrl
from antiphon_papers.common.averages import grouped
from antiphon_papers.common.drawing import COLOURS, finish, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.dp_ftrl.experiments.ftrl_runs import Config, spectrum_near

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]

_FILTER = "best filter, 6 buffers"


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """Several learning rates for one spectrum."""
    is_ci = preset == "ci"
    count = seeds if seeds is not None else 1 if is_ci else 3
    return tuple(
        Config(4 if is_ci else 128, 1.0, eta, seed)
        for seed in range(count)
        for eta in ((0.05, 0.1) if is_ci else (0.001, 0.002, 0.005, 0.01, 0.02))
    )


def run(config: Config) -> list[Row]:
    """Every algorithm, with γ_T² at two numbers of steps."""
    values = spectrum_near(config.d, config.alpha, config.seed)
    problem: dict[str, Any] = {"spectrum": values, "learning_rate": config.learning_rate}
    bound = dp_ftrl.universal_lower_bound(**problem)
    return [
        {
            "algorithm": name,
            "d": config.d,
            "learning_rate": config.learning_rate,
            "seed": config.seed,
            "d_eff": dp_ftrl.effective_dimension(values),
            "gamma_squared_100": float(mechanism.sensitivity(100, Once())) ** 2,
            "gamma_squared_10000": float(mechanism.sensitivity(10_000, Once())) ** 2,
            "f_infinity": (error := _error(mechanism, problem)),
            "over_lower_bound": None if error is None else error / bound,
        }
        for name, mechanism in _mechanisms(values, config.learning_rate).items()
    ]


def _mechanisms(values: Series, eta: float) -> dict[str, AbstractMechanism]:
    problem: dict[str, Any] = {"spectrum": values, "learning_rate": eta}
    return {
        "independent": Independent(),
        "optimal cc": NuFTRL(0.0),
        "nu-ftrl": NuFTRL(eta * float(values.min())),
        "anti-pgd": LambdaCGD(1.0),
        "anti-pgd, damped": dp_ftrl.damped_anti_pgd(**problem),
        _FILTER: dp_ftrl.best_filter(**problem).buffered(6),
    }


def _error(mechanism: AbstractMechanism, problem: dict[str, Any]) -> float | None:
    """F_∞, or None where it is infinite because the sensitivity is."""
    try:
        mechanism.sensitivity(math.inf, Once())
    except UnsupportedError:
        return None
    return dp_ftrl.f_infinity(mechanism, **problem)


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each algorithm its power of η, its error over the lower bound, and how γ² grows."""
    found = []
    for (name,), members in grouped(rows, ["algorithm"]).items():
        finite = [row for row in members if row["f_infinity"] is not None]
        line: Row = {
            "algorithm": name,
            "gamma_squared_100": members[0]["gamma_squared_100"],
            "gamma_squared_10000": members[0]["gamma_squared_10000"],
            "f_infinity_is_finite": bool(finite),
            "power_of_learning_rate": None,
            "least_over_lower_bound": None,
            "largest_over_lower_bound": None,
        }
        if finite:
            by = {"learning_rate": [row["learning_rate"] for row in finite]}
            powers = dp_ftrl.exponents([row["f_infinity"] for row in finite], by)
            above = [row["over_lower_bound"] for row in finite]
            line["power_of_learning_rate"] = powers["learning_rate"]
            line["least_over_lower_bound"] = min(above)
            line["largest_over_lower_bound"] = max(above)
        found.append(line)
    return found


def plot(rows: Sequence[Row]) -> "Figure":
    """Error against the learning rate, for those that have one."""
    figure, (axes,) = panels(1, "Linear regression, eigenvalues near 1/k")
    finite = [row for row in rows if row["f_infinity"] is not None]
    for ((name,), members), colour in zip(
        grouped(finite, ["algorithm"]).items(), COLOURS, strict=False
    ):
        x, y = [r["learning_rate"] for r in members], [r["f_infinity"] for r in members]
        axes.plot(x, y, "o", color=colour, markersize=4, label=str(name))
    finish(axes, xlabel="learning rate η", ylabel="F_∞", xscale="log", yscale="log")
    return figure
