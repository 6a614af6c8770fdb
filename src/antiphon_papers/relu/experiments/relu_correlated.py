"""Correlated noise for one pass of GLMtron: mechanisms for the averaged iterate beside tree noise.

DP-TAGLMtron adds tree noise; [ReLURegression25] asks for nothing better. In linear response the averaged
iterate sees a known combination of the noise (`antiphon_papers.relu.AverageNoise`), for which
the best member of each family is found, at equal privacy. The generator is that of ``relu-table-4``, T =
500 batches of 32 or 16,000 single records, all iterates averaged, nothing tuned but the learning rate,
whose best is taken for every mechanism alike.

Seen over 10 data sets at ε = 0.05, 0.2, 0.5: T = 500, tree noise 0.167, 0.039, 0.0099; ν-FTRL 0.083,
0.0116, 0.0021; dense 0.081, 0.0082, 0.0015; λ-CGD 0.099, 0.0166, 0.0037. T = 16,000: tree noise 0.134,
0.050, 0.0099; ν-FTRL 0.077, 0.0096, 0.0056; λ-CGD 0.096, 0.063, 0.045. By its linear response λ-CGD would
be best of the three, within 14 to 51 % of what no mechanism can beat: but its iterates are so noisy on
the way that directions are clipped. What is best for the average alone is not what should run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, final

from antiphon.accounting import gaussian_mu
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, NuFTRL
from antiphon.participation import Once
from antiphon.plans import OnePass, Plan
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.drawing import COLOURS, errorbars, finish, panels
from antiphon_papers.common.experiment import Row
from antiphon_papers.relu.experiments.neuron_runs import Recipe, Sample, draw, fitted, risk_of
from antiphon_papers.relu.theory.correlation import AverageNoise, best_for_average

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MECHANISMS", "Config", "configs", "plan_of", "plot", "run", "summary"]

_N, _D, _SIGMA, _CLIP = 16_000, 10, 0.5, 4.743416490252569

MECHANISMS = {
    "independent": ("independent", 0.0),
    "tree": ("tree", 0.0),
    "nu-ftrl": ("nu-ftrl", 0.0),
    "lambda-cgd": ("lambda-cgd", 0.0),
    "lambda-cgd, guarded": ("lambda-cgd", 1e-3),
    "dense": ("dense", 1e-3),
}
"""Families, and the weight on single iterates with which their best member is found."""

_LARGEST_DENSE = 1000


@final
@dataclass(frozen=True)
class Config:
    """One run.

    Attributes:
        mechanism: A key of `MECHANISMS`.
        steps: T, in batches of n/T.
        learning_rate: η.
        epsilon: ε at δ = n^-1.1, replace-one.
        seed: Of the data set and of the noise.
        n: N.
    """

    mechanism: str
    steps: int
    learning_rate: float
    epsilon: float
    seed: int
    n: int = _N


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """Batches of one and of 32, three ε, several learning rates; few steps and one ε for ``ci``."""
    if preset == "ci":
        cells: list[tuple[int, tuple[float, ...], tuple[float, ...], int]] = [
            (50, (0.3,), (0.5,), 4000)
        ]
    else:
        epsilons = (0.05, 0.2, 0.5)
        cells = [
            (500, (0.01, 0.03, 0.1), epsilons, _N),
            (_N, (1e-4, 3e-4, 1e-3, 3e-3), epsilons, _N),
        ]
    return tuple(
        Config(mechanism, steps, rate, epsilon, seed, n)
        for seed in range(seeds if seeds is not None else 2 if preset == "ci" else 10)
        for steps, rates, epsilons, n in cells
        for mechanism in MECHANISMS
        if mechanism != "dense" or steps <= _LARGEST_DENSE
        for rate in rates
        for epsilon in epsilons
    )


def run(config: Config) -> list[Row]:
    """Train once; one row."""
    if config.mechanism not in MECHANISMS:
        raise PlanError(f"mechanism is one of {', '.join(MECHANISMS)}; got {config.mechanism!r}.")
    mechanism, noise = _mechanism(config.mechanism, config.steps, config.learning_rate)
    plan = plan_of(config)
    sample = _sample(config.n, config.seed)
    recipe = Recipe("pass", config.steps, clip_norm=_CLIP, average="full")
    w = fitted(recipe, sample, plan, config.learning_rate, config.seed)
    white = 2 * _CLIP / _mu(config) / plan.expected_batch
    return [
        {
            "mechanism": config.mechanism,
            "steps": config.steps,
            "learning_rate": config.learning_rate,
            "epsilon": config.epsilon,
            "seed": config.seed,
            "risk": risk_of(w, sample),
            "privacy_risk": noise.risk(mechanism, white),
            "loss_over_bound": noise.loss(mechanism) / noise.bound,
        }
    ]


def plan_of(config: Config) -> Plan:
    """What runs: the same privacy for every mechanism, each record used once."""
    mechanism, _ = _mechanism(config.mechanism, config.steps, config.learning_rate)
    sensitivity = float(mechanism.sensitivity(config.steps, Once()))
    return Plan(
        n=config.n,
        sampling=OnePass(config.n // config.steps),
        steps=config.steps,
        clip_norm=_CLIP,
        mechanism=mechanism,
        relation="replace-one",
        noise_multiplier=2 * sensitivity / _mu(config),
    )


def summary(rows: Sequence[Row]) -> list[Row]:
    """Mean risk of each mechanism at each learning rate, and whether that is its best."""
    by = ["steps", "epsilon", "mechanism", "learning_rate"]
    means = averages(rows, by=by, of=["risk", "privacy_risk", "loss_over_bound"])
    found = []
    for curve in grouped(means, ["steps", "epsilon", "mechanism"]).values():
        best = min(row["risk"] for row in curve)
        found += [row | {"is_best": row["risk"] == best} for row in curve]
    return found


def plot(rows: Sequence[Row]) -> "Figure":
    """The risk at the best learning rate against ε, for each number of steps."""
    means = [row for row in summary(rows) if row["is_best"]]
    sizes = sorted({row["steps"] for row in means})
    title = "excess risk of the averaged iterate, one pass, best of the learning rates"
    figure, axes = panels(len(sizes), title)
    for place, steps in zip(axes, sizes, strict=True):
        for name, colour in zip(MECHANISMS, COLOURS, strict=False):
            curve = [row for row in means if (row["steps"], row["mechanism"]) == (steps, name)]
            if not curve:
                continue
            errorbars(place, curve, "epsilon", "risk", colour, name)
        place.set(xscale="log", yscale="log")
        finish(place, title=f"T = {steps}", xlabel="ε", ylabel="excess risk")
    return figure


def _mu(config: Config) -> float:
    return gaussian_mu(config.epsilon, config.n**-1.1)


@cache
def _mechanism(name: str, steps: int, rate: float) -> tuple[AbstractMechanism, AverageNoise]:
    family, guard = MECHANISMS[name]
    noise = AverageNoise([1.0] * _D, steps, rate)
    if family == "nu-ftrl":
        # Exact ν-FTRL keeps all past noise: what runs, and is certified, is the fitted BLT.
        best = best_for_average(family, noise).mechanism
        assert isinstance(best, NuFTRL)
        return best.buffered(steps, buffers=6), noise
    if family in ("independent", "tree"):
        return best_for_average(family, _small(rate)).mechanism, noise
    return best_for_average(family, noise, guard=guard).mechanism, noise


def _small(rate: float) -> AverageNoise:
    return AverageNoise([1.0], 2, rate)


@cache
def _sample(n: int, seed: int) -> Sample:
    return draw(n, _D, _SIGMA, seed)
