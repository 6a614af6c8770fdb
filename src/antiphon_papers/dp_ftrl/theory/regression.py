"""The exact error of Noisy-FTRL on linear regression with Gaussian inputs, at any step and in the limit.

For Gaussian x the squared error in each eigendirection of H follows a recursion of its own, driven by the
loss of all of them [CorrelatedNoise24, Lem. D.12]. No simulation is needed. Noisy-FTRL does not clip: these
numbers are its error, not a privacy statement; DP-FTRL has the same error as long as nothing is clipped.
"""

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import positive
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import AbstractMechanism, AbstractToeplitz, check_dense_steps, check_steps
from antiphon.numerics import Series
from antiphon_papers.dp_ftrl.theory.energy import (
    noise_energy,
    partial_energies,
    squared_sensitivity,
    toeplitz,
)
from antiphon_papers.dp_ftrl.theory.spectrum import Spectrum, eigenvalues

__all__ = ["expected_excess", "f_infinity", "feedback", "noise_variance", "non_negative"]


def feedback(spectrum: Spectrum, learning_rate: float) -> float:
    """A = Σ_j ηλ_j / (2(1 - ηλ_j)): what a step's loss returns to the stationary loss.

    Guarantee:
        With Gaussian inputs the error stays bounded exactly if ηλ_max < 1 and A < 1; this replaces the
        condition η <= c/Tr H of [CorrelatedNoise24, Thm. 2.2]. Infinite where ηλ_max >= 1.

    Example:
        >>> round(feedback([1.0, 0.5, 0.1], 0.1), 6)
        0.086922
    """
    b = positive("learning_rate", learning_rate) * eigenvalues(spectrum)
    return float((b / (2 * (1 - b))).sum()) if b.max() < 1 else float("inf")


def f_infinity(
    mechanism: AbstractMechanism,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
) -> float:
    """F_∞: the expected excess risk of Noisy-FTRL after endlessly many steps, noise being scaled by γ_∞.

    Args:
        mechanism: A Toeplitz mechanism of finite sensitivity for endlessly many steps.
        spectrum: Eigenvalues of H.
        learning_rate: η.
        rho: ρ of zCDP: the noise has variance G² γ_∞²/(2ρ).
        clip_norm: G.
        label_noise: σ_sgd, standard deviation of the labels around the best line.

    Guarantee:
        Exact for Gaussian inputs and independent residuals, one fresh record per step.

    Example:
        >>> from antiphon.mechanisms import NuFTRL
        >>> round(f_infinity(NuFTRL(0.01), spectrum=[1.0, 0.5, 0.1], learning_rate=0.1), 10)
        0.0135985773
    """
    values = eigenvalues(spectrum)
    returned = feedback(values, learning_rate)
    if not returned < 1:
        raise UnsupportedError(
            f"with a learning rate of {learning_rate} the error grows without bound: the steps need "
            f"ηλ_max < 1 (it is {learning_rate * values.max():.4g}) and a feedback below 1 (it is "
            f"{returned:.4g}). Take a smaller learning rate."
        )
    variance = noise_variance(toeplitz(mechanism), rho, clip_norm)
    b = learning_rate * values
    left = float((noise_energy(mechanism, b) / (1 - b)).sum())
    labels = returned * non_negative("label_noise", label_noise) ** 2
    return (labels + learning_rate * variance * left / 2) / (2 * (1 - returned))


def expected_excess(
    mechanism: AbstractMechanism,
    steps: int,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    start: Spectrum,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
    horizon: int | None = None,
) -> Series:
    """E F(θ_t) - F* of Noisy-FTRL for t = 0, ..., steps.

    Args:
        mechanism: Any mechanism. Those that are not Toeplitz are made for ``steps`` steps.
        steps: Number of steps.
        spectrum: Eigenvalues of H.
        learning_rate: η; any, also where the error grows.
        start: θ_0 - θ* in the eigenbasis of H.
        rho: ρ of zCDP.
        clip_norm: G.
        label_noise: σ_sgd.
        horizon: Steps for which the noise is scaled; None for endlessly many, or, where the mechanism has
            no such scale, pass ``horizon=steps``.

    Guarantee:
        Exact for Gaussian inputs and independent residuals, one fresh record per step.

    Example:
        >>> from antiphon.mechanisms import NuFTRL
        >>> run = dict(spectrum=[1.0, 0.5, 0.1], learning_rate=0.1, start=[1.0, -1.0, 2.0])
        >>> expected_excess(NuFTRL(0.01), 5, label_noise=0.3, **run).round(6).tolist()[::5]
        [0.95, 0.565898]
    """
    check_steps(steps)
    values = eigenvalues(spectrum)
    distance = np.asarray(start, dtype=np.float64)
    if distance.shape != values.shape or not np.isfinite(distance).all():
        raise PlanError(
            f"start needs one finite number for each of the {len(values)} directions; got shape "
            f"{distance.shape}."
        )
    if horizon is not None and horizon < steps:
        raise PlanError(
            f"the noise would be scaled for {horizon} of {steps} steps, and not be private. Raise horizon."
        )
    eta = positive("learning_rate", learning_rate)
    b = eta * values
    scale = eta**2 * noise_variance(mechanism, rho, clip_norm, horizon)
    added = scale * _energies(mechanism, steps, b)
    kept, label_variance = 1 - 2 * b + 2 * b**2, non_negative("label_noise", label_noise) ** 2
    square, found = distance**2, np.empty(steps + 1)
    for t in range(steps):
        found[t] = values @ square
        square = square * kept + eta * b * (found[t] + label_variance) + added[t]
    found[steps] = values @ square
    return found / 2


def noise_variance(
    mechanism: AbstractMechanism, rho: float, clip_norm: float, horizon: int | None = None
) -> float:
    """σ² = G² γ²/(2ρ), the variance of each coordinate of the white noise [CorrelatedNoise24, Thm. 1.1]."""
    scale = positive("clip_norm", clip_norm) ** 2 / (2 * positive("rho", rho))
    return scale * squared_sensitivity(mechanism, horizon)


def non_negative(name: str, value: float) -> float:
    """The value, if it is at least 0 and finite."""
    if not 0 <= value < float("inf"):
        raise PlanError(f"{name} must be at least 0 and finite; got {value}.")
    return float(value)


def _energies(mechanism: AbstractMechanism, steps: int, b: Series) -> NDArray[np.float64]:
    """For each step and direction, the noise of the step and what it shares with all noise before it."""
    if isinstance(mechanism, AbstractToeplitz):
        return partial_energies(mechanism.inverse_column(steps), b)
    check_dense_steps(steps)
    decoder = mechanism.decoder(steps)
    covariance = decoder @ decoder.T
    found = np.empty((steps, len(b)))
    for j, rate in enumerate(b):
        # What step s shares with step t counts (1 - b)^(t - s).
        past = np.zeros(steps)
        for t in range(steps):
            powers = (1 - rate) ** np.arange(t, 0, -1)
            past[t] = covariance[t, :t] @ powers
        found[:, j] = np.diag(covariance) + 2 * past
    return found
