"""A picture of correlated noise: what each step cancels of the noise before, and how prefix errors grow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from antiphon.mechanisms.abstract_mechanism import AbstractMechanism, check_steps
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.numerics import Vector
from antiphon.participation import AbstractParticipation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure", "last_row"]


def figure(
    mechanisms: Mapping[str, AbstractMechanism],
    T: int,
    participation: AbstractParticipation,
    *,
    noise: Mapping[str, float] | None = None,
) -> "Figure":
    """Two panels: the correlations, and the error of prefix sums at equal privacy.

    Args:
        mechanisms: By the names to show.
        T: Number of steps.
        participation: Sets the sensitivity by which the errors are scaled.
        noise: The noise multiplier of each mechanism, by which errors are then scaled instead.

    Returns:
        A matplotlib figure, bound to no window: save it with ``savefig``.
    """
    from matplotlib.figure import Figure

    check_steps(T)
    picture = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = picture.subplots(1, 2)
    steps = np.arange(1, T + 1)
    styles = _styles(len(mechanisms))
    for (name, mechanism), style in zip(mechanisms.items(), styles, strict=True):
        # The trees' errors jump at every step: drawn thin, they do not hide the others.
        style["linewidth"] = 1.8 if isinstance(mechanism, AbstractToeplitz) else 0.9
        taken_back = -last_row(mechanism, T)[1:]
        shown = taken_back > 1e-7
        if shown.any():
            marker = "o" if shown.sum() == 1 else ""
            left.plot(steps[:-1][shown], taken_back[shown], marker=marker, **style)
        scale = float(mechanism.sensitivity(T, participation) if noise is None else noise[name])
        right.plot(steps, scale * mechanism.errors(T), label=name, **style)
    left.set(
        xscale="log",
        yscale="log",
        ylim=(1e-5, 1.5),
        xlabel="steps back",
        ylabel="share of that step's white noise cancelled",
        title="How the noise is correlated",
    )
    right.set(
        xscale="log",
        yscale="log",
        xlabel="step",
        ylabel=f"error of the prefix sum × {'sensitivity' if noise is None else 'noise multiplier'}",
        title="Noise in the sum of all gradients so far",
    )
    for axes in (left, right):
        axes.grid(alpha=0.25, which="major")
        axes.spines[["top", "right"]].set_visible(False)
    picture.legend(*right.get_legend_handles_labels(), frameon=False, loc="outside right center")
    picture.suptitle(f"{T} steps, {participation}", fontsize=10, color="0.35")
    return picture


def last_row(mechanism: AbstractMechanism, T: int) -> Vector:
    """The last row of C⁻¹, newest step first."""
    if isinstance(mechanism, AbstractToeplitz):
        return mechanism.inverse_column(T)
    return np.ascontiguousarray(mechanism.decoder(T)[-1, ::-1])


def _styles(count: int) -> list[dict[str, Any]]:
    """Colours that stay apart for readers who see few of them, then dashes."""
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
    dashes = ("-", "--", ":")
    return [
        {"color": colours[i % len(colours)], "linestyle": dashes[i // len(colours) % len(dashes)]}
        for i in range(count)
    ]
