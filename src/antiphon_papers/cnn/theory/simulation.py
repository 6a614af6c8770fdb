"""A run from a setting and a seed, measured on its way."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from antiphon.errors import PlanError
from antiphon.progress import bar
from antiphon_papers.cnn.patches import signal_patches
from antiphon_papers.cnn.theory.dynamics import Dynamics
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.cnn.theory.span import Span

__all__ = ["Measurement", "Simulation", "simulate"]

_TYPES = {"float32": np.float32, "float64": np.float64}


@final
@dataclass(frozen=True)
class Measurement:
    """A run after some steps. What describes the training records is not private.

    Attributes:
        step: Steps taken, in units of the setting before it was coarsened.
        train_loss: Mean loss.
        train_accuracy: Share of training records on the right side.
        test_loss: On fresh records.
        test_accuracy: On fresh records.
        largest_gamma: max_k γ_k.
        mean_gamma: Of all filters.
        mean_rho: Mean over records of the largest ρ among filters of their label.
        least_rho: The most negative ρ.
        mean_lambda: Mean over records of (1/m) Σ_r (γ_{y,r} + ρ_{y,r,i}).
        largest_signal: max_k J_k ⟨w_k, μ⟩.
        clipped: Share of training records whose gradient is clipped.
    """

    step: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    largest_gamma: float
    mean_gamma: float
    mean_rho: float
    least_rho: float
    mean_lambda: float
    largest_signal: float
    clipped: float


@final
@dataclass(frozen=True, eq=False)
class Simulation:
    """A finished run.

    Attributes:
        measurements: One for each look.
        dynamics: The run itself, after its last step.
        coarsening: f, if steps were taken f at a time; 1 for the literal run.
    """

    measurements: tuple[Measurement, ...]
    dynamics: Dynamics
    coarsening: int

    @property
    def last(self) -> Measurement:
        """After all steps."""
        return self.measurements[-1]


def simulate(
    setting: Setting,
    *,
    seed: int,
    looks: Iterable[int] = (),
    coarsen: int = 1,
    clip_norm: float = math.inf,
    draws: int = 20_000,
    precision: str = "float64",
) -> Simulation:
    """Draw data and a start, take all steps, and measure.

    Data and start depend on the seed and on what they are drawn from alone: GD and DP-GD of one seed share
    both.

    Args:
        setting: Task and run.
        seed: Of everything.
        looks: Numbers of steps after which to measure, beside the last.
        coarsen: f, see `Setting.coarsened`; looks must then be multiples of it.
        clip_norm: C on each record's gradient; infinite for none.
        draws: Of fresh noise patches for each measurement.
        precision: "float64" or, in about half the time, "float32".

    Example:
        >>> tiny = Setting(d=60, n=20, m=4, spread=0.2, steps=200)
        >>> found = simulate(tiny, seed=0, looks=[100], draws=500)
        >>> [m.step for m in found.measurements]
        [100, 200]
    """
    if precision not in _TYPES:
        raise PlanError(f"precision is one of {', '.join(_TYPES)}; got {precision!r}.")
    coarse = setting.coarsened(coarsen)
    at = sorted({*looks, setting.steps})
    if any(step % coarsen or not 0 <= step <= setting.steps for step in at):
        raise PlanError(
            f"looks are multiples of {coarsen}, the coarsening, from 0 to {setting.steps}; got {at}."
        )
    data = signal_patches(
        setting.n, setting.d, spread=setting.spread, seed=seed, signal=setting.signal
    )
    run = Dynamics(Span(data, _TYPES[precision]), coarse, seed=seed, clip_norm=clip_norm)
    found = []
    with bar("Simulating") as update:
        for step in at:
            while run.step_count * coarsen < step:
                run.step()
                update(run.step_count, coarse.steps)
            found.append(_measured(run, step, draws))
    return Simulation(tuple(found), run, coarsen)


def _measured(run: Dynamics, step: int, draws: int) -> Measurement:
    seen, fresh, m = run.look(), run.fresh(draws), run.setting.m
    largest = np.where(run.own, run.rho, -math.inf).max(axis=0)
    gamma = [float(run.gamma[run.signs == y].sum()) for y in (1.0, -1.0)]
    of_label = np.where(run.span.y > 0, *gamma)
    own = np.where(run.own, run.rho, 0.0).sum(axis=0)
    values: dict[str, Any] = {
        "train_loss": seen.loss,
        "train_accuracy": seen.accuracy,
        "test_loss": fresh.loss,
        "test_accuracy": fresh.accuracy,
        "largest_gamma": run.gamma.max(),
        "mean_gamma": run.gamma.mean(),
        "mean_rho": largest.mean(),
        "least_rho": run.rho.min(),
        "mean_lambda": ((of_label + own) / m).mean(),
        "largest_signal": (run.signs * run.along).max() * run.span.signal,
        "clipped": (seen.norms > run.clip_norm).mean(),
    }
    return Measurement(step, **{name: float(value) for name, value in values.items()})
