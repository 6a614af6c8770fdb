"""The point that the proof about GD compares with, and what it says of the average loss."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon_papers.cnn.patches import SignalPatches

__all__ = ["average_loss_bound", "reference_filters"]


def reference_filters(
    start: ArrayLike, data: SignalPatches, *, loss: float, q: float = 3.0
) -> NDArray[np.float64]:
    """W*: the start, and for each record its noise patch in all filters of its label.

    w*_jr = w_jr(0) + 4qm log(2q/ε) Σ_i 1(y_i = j) ξ_i/‖ξ_i‖² [CNNGradientDescent26, App. B.3]; print
    divides by ‖ξ_i‖ once, while its own use needs the square.

    Args:
        start: Filters before the first step, shape (2m, d), those of +1 first.
        data: The records.
        loss: ε, the training loss to be reached.
        q: Power of the activation below its knee.

    Example:
        >>> from antiphon_papers.cnn import signal_patches
        >>> data = signal_patches(1, 9, spread=1.0, seed=0)
        >>> products = reference_filters(np.zeros((2, 9)), data, loss=0.1) @ data.noise[0]
        >>> sorted(products.round(2).tolist())
        [0.0, 49.13]
    """
    filters = np.asarray(start, np.float64)
    m, d = len(filters) // 2, data.noise.shape[1]
    if filters.shape != (2 * m, d) or not m:
        raise PlanError(f"start has shape (2m, {d}); got {filters.shape}.")
    height = 4 * q * m * math.log(2 * q / positive("loss", loss))
    patches = data.noise / (data.noise**2).sum(axis=1, keepdims=True)
    sums = [patches[data.y == label].sum(axis=0) for label in (1.0, -1.0)]
    return filters + height * np.repeat(np.stack(sums), m, axis=0)


def average_loss_bound(
    distance: float, *, step_size: float, steps: float, loss: float, q: float = 3.0
) -> float:
    """Mean training loss of GD over ``steps`` steps after T₁, under Condition 1.

    Args:
        distance: ‖W(T₁) - W*‖.
        step_size: η.
        steps: t - T₁ + 1.
        loss: ε of W*.
        q: Power of the activation below its knee.

    Guarantee:
        ‖W(T₁) - W*‖²/((2q - 1) η (t - T₁ + 1)) + ε/(2q - 1) if Condition 1 holds, whose constant is not
        known [CNNGradientDescent26, Lem. 23-24].

    Example:
        >>> average_loss_bound(10.0, step_size=0.1, steps=1000, loss=0.5)
        0.3
    """
    horizon = positive("step_size", step_size) * positive("steps", steps)
    return (positive("distance", distance) ** 2 / horizon + positive("loss", loss)) / (2 * q - 1)
