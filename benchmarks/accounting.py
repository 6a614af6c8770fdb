"""Seconds and tightness of calibration, each case beside what it can be compared with.

    python benchmarks/accounting.py [dp-sgd] [lambda-cgd] [bins] [--long]

- dp-sgd: five plans, beside dp-accounting's own calibration at the same grid.
- lambda-cgd: λ-CGD under Poisson sampling, T = 1000 (``--long``: T = 10,000 too): certified noise, its
  distance from the lower bound, the deterministic bounds, and the factor saved against Theorem F.12.
- bins: balls in bins at δ = 1e-5.

Nothing is taken from the disk cache. Nothing passes or fails here.
"""

import argparse
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import dp_accounting
from dp_accounting.pld import PLDAccountant
from rich.console import Console
from rich.table import Table

import antiphon as ap
from antiphon.accounting.correlated import conditioned, moments
from antiphon.accounting.correlated.lambda_pair import LambdaPair
from antiphon.mechanisms import AbstractMechanism, Independent, LambdaCGD, NuFTRL
from antiphon_papers.kan_sgd.printed import theorem_f12

PLANS = [  # rate, steps, ε, δ
    (256 / 60_000, 4688, 1.0, 1e-5),
    (256 / 60_000, 4688, 8.0, 1e-5),
    (0.01, 1000, 3.0, 1e-6),
    (0.01, 10_000, 3.0, 1e-6),
    (1.0, 100, 1.0, 1e-5),
]
CONSOLE = Console(width=120)


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Result, wall seconds, CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def plan(rate: float, steps: int, mechanism: AbstractMechanism) -> ap.Plan:
    """Poisson sampling of 60,000 records."""
    return ap.Plan(n=60_000, sampling=ap.Poisson(rate), steps=steps, mechanism=mechanism)


def theirs(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """dp-accounting's calibration by PLD at a grid of 1e-4."""

    def event(noise: float) -> Any:
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(step, steps)

    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: PLDAccountant(value_discretization_interval=1e-4),
            event,
            epsilon,
            delta,
            tol=1e-4,
        )
    )


def dp_sgd() -> None:
    """Independent noise under Poisson sampling."""
    view = Table(title="DP-SGD (goal: 1.5 s)")
    for name in ("rate", "steps", "ε, δ", "noise", "s", "dp-accounting", "s", "ratio of s"):
        view.add_column(name, justify="right")
    for rate, steps, epsilon, delta in PLANS:
        question = plan(rate, steps, Independent())
        found, _, seconds = timed(partial(ap.calibrate, question, epsilon, delta))
        peer, _, other = timed(partial(theirs, rate, steps, epsilon, delta))
        view.add_row(
            f"{rate:.4g}",
            f"{steps}",
            f"{epsilon:g}, {delta:g}",
            f"{found.noise_multiplier:.5g}",
            f"{seconds:.2f}",
            f"{peer:.5g}",
            f"{other:.2f}",
            f"{seconds / other:.2f}",
        )
    CONSOLE.print(view)


def lambda_cgd(steps: int, epsilons: tuple[float, ...], rate: float = 0.01) -> None:
    """λ-CGD under Poisson sampling."""
    view = Table(title=f"λ-CGD, T = {steps}, rate {rate}, δ = 1e-5")
    for name in (
        "λ",
        "ε",
        "certified",
        "wall s",
        "CPU s",
        "lower bound",
        "above",
        "moments",
        "conditioned",
        "F.12 / ours",
    ):
        view.add_column(name, justify="right")
    for lam in (0.5, 0.9):
        question = plan(rate, steps, LambdaCGD(lam))
        for epsilon in epsilons:
            calibrated, wall, cpu = timed(partial(ap.calibrate, question, epsilon, 1e-5))
            found = calibrated.noise_multiplier
            low = least_possible(lam, rate, steps, epsilon, found)
            printed = theorem_f12(lam, rate, steps, epsilon, 1e-5).noise
            view.add_row(
                f"{lam}",
                f"{epsilon:g}",
                f"{found:.4g}",
                f"{wall:.0f}",
                f"{cpu:.0f}",
                f"{low:.4g}",
                f"{found / low - 1:.1%}",
                f"{moments.least_noise(question, epsilon, 1e-5):.4g}",
                f"{conditioned.least_noise(question, epsilon, 1e-5):.4g}",
                f"{printed / found:.1f}",
            )
            CONSOLE.print(view)


def least_possible(lam: float, rate: float, steps: int, epsilon: float, near: float) -> float:
    """The largest noise, in steps of half a per cent below ``near``, that is refuted at δ = 1e-5."""
    for below in range(1, 60):
        noise = near * math.exp(-0.005 * below)
        pair = LambdaPair(lam, rate, steps, noise)
        if pair.lower_bound(epsilon, seed=1, paths=10_000) > 1e-5:
            return noise
    return math.nan


def bins() -> None:
    """Balls in bins, for which JAX-Privacy's Monte Carlo asks for 10.7 million samples of 0.57 ms."""
    view = Table(title="Balls in bins, T = 1000, 100 bins, ε = 1, δ = 1e-5 (goal: 60 s)")
    for name in ("mechanism", "noise", "wall s", "CPU s", "no amplification"):
        view.add_column(name, justify="right")
    mechanisms: list[AbstractMechanism] = [Independent(), LambdaCGD(0.9), NuFTRL(0.01)]
    for mechanism in mechanisms:
        question = ap.Plan(n=60_000, sampling=ap.BallsInBins(100), steps=1000, mechanism=mechanism)
        calibrated, wall, cpu = timed(partial(ap.calibrate, question, 1.0, 1e-5))
        found = calibrated.noise_multiplier
        plain = conditioned.least_noise(question, 1.0, 1e-5)
        view.add_row(str(mechanism), f"{found:.4g}", f"{wall:.0f}", f"{cpu:.0f}", f"{plain:.4g}")
    CONSOLE.print(view)


def main() -> None:
    """Run what was asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", choices=["dp-sgd", "lambda-cgd", "bins", []])
    parser.add_argument("--long", action="store_true", help="λ-CGD with T = 10,000 too")
    chosen = parser.parse_args()
    parts = chosen.parts or ["dp-sgd", "bins", "lambda-cgd"]
    os.environ["ANTIPHON_CACHE"] = ""
    if "dp-sgd" in parts:
        dp_sgd()
    if "bins" in parts:
        bins()
    if "lambda-cgd" in parts:
        lambda_cgd(1000, (0.5, 1.0, 2.0, 8.0))
        if chosen.long:
            lambda_cgd(10_000, (1.0,))


if __name__ == "__main__":
    main()
