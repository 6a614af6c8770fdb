"""Draws noise-light.svg and noise-dark.svg: correlated noise beside independent noise at equal privacy.

    python docs/images/noise.py

Ten epochs of fifty batches in one order, at the privacy of independent noise with multiplier 1.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from antiphon.mechanisms import AbstractMechanism, Independent, LambdaCGD, optimize
from antiphon.numerics import Generator
from antiphon.participation import FixedEpochs

T, SEEN = 500, FixedEpochs(10, 50)
INK = {"light": "#24292f", "dark": "#e6edf3"}
COLOURS = ("#d1603d", "#2e9e8f", "#6f8ee8")


def noise_in_sums(mechanism: AbstractMechanism, scale: float) -> np.ndarray:
    """The noise of one number in the sum of all gradients so far, as the library draws it."""
    generator, like = Generator.seeded(3), torch.zeros(1)
    state, rows = mechanism.init(like, T), []
    for step in range(T):
        row, state = mechanism.correlate(generator.normal(like, step=step), state)
        rows.append(float(row))
    return scale * np.cumsum(rows)


def draw(ink: str) -> Figure:
    """Both panels: one path, and the standard deviation of all."""
    best = optimize("blt", T, SEEN).mechanism
    drawn = {
        "independent (DP-SGD)": Independent(),
        "each step takes back 90 % (λ-CGD)": LambdaCGD(0.9),
        f"{len(best.scales)} buffers (BLT)": best,  # type: ignore[attr-defined]
    }
    unit = Independent().sensitivity(T, SEEN)
    with mpl.rc_context({"text.color": ink, "axes.labelcolor": ink, "axes.edgecolor": ink,
                         "xtick.color": ink, "ytick.color": ink, "font.size": 10,
                         "svg.hashsalt": "antiphon"}):  # fmt: skip
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        path, spread = figure.subplots(1, 2)
        for colour, (name, mechanism) in zip(COLOURS, drawn.items(), strict=True):
            scale = mechanism.sensitivity(T, SEEN) / unit  # the same privacy for all
            path.plot(noise_in_sums(mechanism, scale), color=colour, lw=1.1)
            spread.plot(scale * mechanism.errors(T), color=colour, lw=1.8, label=name)
        _label(path, "noise in the sum of all gradients, one number")
        _label(spread, "its standard deviation, at equal privacy")
        spread.legend(frameon=False, fontsize=9)
        return figure


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_alpha(0)


def main() -> None:
    """Both pictures, beside this file."""
    for name, ink in INK.items():
        place = Path(__file__).with_name(f"noise-{name}.svg")
        draw(ink).savefig(place, transparent=True, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
