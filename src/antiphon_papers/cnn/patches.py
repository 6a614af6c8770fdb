"""The data of [CNNGradientDescent26]: each record is one patch of signal and one of noise."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from antiphon.checks import positive, whole
from antiphon.errors import PlanError

__all__ = ["SignalPatches", "signal_patches"]

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class SignalPatches:
    """Records with what is hidden in them.

    Attributes:
        x: Records, shape (n, 2, d).
        y: Labels, -1 or +1.
        noise: ξ, the noise patch of each record, shape (n, d).
        position: Where the signal is: 0 or 1.
        signal: μ.
        spread: σ_p, the standard deviation of ξ per coordinate of the complement of μ.
    """

    x: Array
    y: Array
    noise: Array
    position: NDArray[np.int64]
    signal: Array
    spread: float

    @property
    def snr(self) -> float:
        """‖μ‖/(σ_p sqrt(d))."""
        return float(np.linalg.norm(self.signal)) / (self.spread * len(self.signal) ** 0.5)


def signal_patches(
    n: int,
    d: int,
    *,
    spread: float,
    seed: int,
    signal: float | ArrayLike = 1.0,
) -> SignalPatches:
    """Records of two patches, y μ and ξ, in an order that a coin decides.

    y is uniform on {-1, +1} and ξ ~ N(0, σ_p² (I - μμᵀ/‖μ‖²)), so that ⟨ξ, μ⟩ = 0
    [CNNGradientDescent26, Def. 1].

    Args:
        n: Number of records.
        d: Numbers in a patch, at least 2.
        spread: σ_p.
        seed: Of the records.
        signal: μ, or its norm for a μ along the first coordinate.

    Example:
        >>> data = signal_patches(100, 20, spread=0.5, seed=0, signal=2.0)
        >>> data.x.shape, float(np.abs(data.noise @ data.signal).max()), round(data.snr, 3)
        ((100, 2, 20), 0.0, 0.894)
    """
    if whole("d", d) < 2:
        raise PlanError(f"d must be at least 2, as noise is orthogonal to the signal; got {d}.")
    mu, sigma = _signal(signal, d), positive("spread", spread)
    rng = np.random.default_rng(seed)
    y = np.where(rng.uniform(size=whole("n", n)) < 0.5, -1.0, 1.0)
    noise = _orthogonal(sigma * rng.standard_normal((n, d)), mu)
    position = rng.integers(2, size=n)
    x, rows = np.empty((n, 2, d)), np.arange(n)
    x[rows, position] = y[:, None] * mu
    x[rows, 1 - position] = noise
    return SignalPatches(x, y, noise, position, mu, sigma)


def _signal(signal: float | ArrayLike, d: int) -> Array:
    mu = np.asarray(signal, np.float64)
    if mu.ndim == 0:
        mu = float(mu) * np.eye(1, d)[0]
    if mu.shape != (d,) or not np.isfinite(mu).all() or not mu.any():
        raise PlanError(
            f"signal is a positive norm or a vector of {d} finite numbers, not all 0; got shape {mu.shape}."
        )
    if np.ndim(signal) == 0:
        positive("signal", mu[0])
    return mu


def _orthogonal(noise: Array, mu: Array) -> Array:
    """The part of each row that is orthogonal to μ; taken twice, so that rounding leaves nothing."""
    direction = mu / np.linalg.norm(mu)
    for _ in range(2):
        noise = noise - np.outer(noise @ direction, direction)
    return noise
