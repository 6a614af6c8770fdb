"""Zames-Falb multipliers for gradients of smooth, strongly convex functions, and the error they prove.

A multiplier is λ_0 MINUS non-negative weights at other lags whose sum is at most λ_0. [CorrelatedNoise24,
eq. 91] adds them instead, which is wrong unless gradients are odd around the optimum: see `multiplier_sum`.
Everything is in units in which the smoothness L is 1.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics import Series

__all__ = ["Descent", "Multiplier", "lags_for", "multiplier_sum"]


@final
@dataclass(frozen=True)
class Descent:
    """Gradient descent on a 1-smooth, μ-strongly convex function.

    Attributes:
        learning_rate: η in (0, 2).
        mu: μ in (0, 1).
    """

    learning_rate: float
    mu: float

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < 2:
            raise PlanError(
                f"learning rate times smoothness must be in (0, 2), or descent diverges; got "
                f"{self.learning_rate}."
            )
        if not 0 < self.mu < 1:
            raise PlanError(
                f"strong convexity over smoothness must be strictly between 0 and 1; got {self.mu}."
            )

    @property
    def width(self) -> float:
        """ημ, the width of the peak at ω = 0."""
        return self.learning_rate * self.mu

    def curvature(self, chord: Series) -> Series:
        """μ - (1 + μ)c/η + 2c/η² at c = 1 - cos ω."""
        eta = self.learning_rate
        return self.mu + chord * (2 / eta - (1 + self.mu)) / eta

    def quadratic_response(self, frequencies: Series) -> Series:
        """η² max over λ in [μ, 1] of 1/|1 - ηλ - e^iω|²: no function of the class proves less."""
        eta = self.learning_rate
        chord = 2 * np.sin(frequencies / 2) ** 2
        b = np.clip(chord, eta * self.mu, eta)
        return eta**2 / ((b - chord) ** 2 + np.sin(frequencies) ** 2)


@final
@dataclass(frozen=True)
class Multiplier:
    """λ_0 - Σ_t λ_t e^iωt with λ_t >= 0 and Σ λ_t <= λ_0.

    Attributes:
        constant: λ_0.
        lags: The t > 0 with a weight.
        forward: λ_t of each.
        backward: λ_-t of each.
    """

    constant: float
    lags: tuple[int, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]

    def __post_init__(self) -> None:
        weights = (*self.forward, *self.backward)
        if not len(self.lags) == len(self.forward) == len(self.backward):
            raise PlanError("a multiplier has two weights for each of its lags.")
        if not all(isinstance(t, int) and t > 0 for t in self.lags):
            raise PlanError(f"lags are whole numbers above 0; got {self.lags}.")
        if not (min(weights, default=0.0) >= 0 and math.fsum(weights) <= self.constant < math.inf):
            raise PlanError(
                "the weights of a multiplier are non-negative and add up to at most its constant; "
                f"got a sum of {math.fsum(weights):.6g} against {self.constant:.6g}."
            )

    def parts(self, frequencies: Series) -> tuple[Series, Series]:
        """U = λ_0 - Σ(λ_t + λ_-t) cos tω and v = -Σ(λ_t - λ_-t) sin tω at any frequencies."""
        # Lag by lag, so that a million frequencies do not become a matrix.
        u, v = np.full_like(frequencies, self.constant), np.zeros_like(frequencies)
        for t, forward, backward in zip(self.lags, self.forward, self.backward, strict=True):
            u -= (forward + backward) * np.cos(t * frequencies)
            v -= (forward - backward) * np.sin(t * frequencies)
        return u, v

    def uniform_parts(self, count: int) -> tuple[Series, Series]:
        """The same at ω = πn/count for n = 0..count, by one Fourier transform."""
        coefficients = np.zeros(2 * count, dtype=complex)
        for t, forward, backward in zip(self.lags, self.forward, self.backward, strict=True):
            coefficients[t] += forward
            coefficients[-t] += backward
        sums = np.fft.fft(coefficients)[: count + 1]
        return self.constant - sums.real, sums.imag

    def moments(self, power: int) -> tuple[float, float]:
        """Bounds on the derivatives of u and v of this order: Σ t^power (λ_t ± λ_-t), in size."""
        t = np.array(self.lags, dtype=np.float64) ** power
        forward, backward = np.array(self.forward), np.array(self.backward)
        return float(t @ (forward + backward)), float(t @ np.abs(forward - backward))


def lags_for(descent: Descent, count: int = 32) -> tuple[int, ...]:
    """About ``count`` lags, geometric up to three times the memory κ/η of descent.

    Example:
        >>> lags_for(Descent(1.0, 0.1), 8)
        (1, 2, 3, 4, 7, 11, 18, 30)
    """
    if not (isinstance(count, int) and count >= 0):
        raise PlanError(f"the number of lags must be a whole number, 0 or more; got {count!r}.")
    if count == 0:
        return ()
    longest = max(1, round(3 / descent.width))
    return tuple(sorted({round(t) for t in np.geomspace(1, longest, count)}))


def multiplier_sum(
    theta: ArrayLike,
    gradient: ArrayLike,
    weights: ArrayLike,
    *,
    mu: float,
    smoothness: float,
    sign: int = -1,
) -> float:
    """Mean over a period of Σ_t Λ_t <g - μθ at s, Lθ - g at s - t>, which a valid multiplier keeps >= 0.

    Args:
        theta: A periodic path around the optimum 0.
        gradient: The gradient at each of its points.
        weights: λ_0, λ_1, ..., non-negative.
        mu: μ.
        smoothness: L.
        sign: -1 for λ_0 minus the lags; +1 as printed [CorrelatedNoise24, eq. 91].

    Guarantee:
        Non-negative for sign -1, if the sum of the later weights is at most λ_0 [ZamesFalb68]. For sign
        +1 it is not: L x right and μ x left of 0, on the path 1, -2, 1, -2, ... gives -(L - μ)².

    Example:
        >>> path = np.array([1.0, -2.0] * 4)
        >>> slopes = np.where(path > 0, path, 0.1 * path)
        >>> run = dict(weights=[1.0, 1.0], mu=0.1, smoothness=1.0)
        >>> [round(multiplier_sum(path, slopes, sign=s, **run), 12) for s in (1, -1)]
        [-0.81, 0.81]
    """
    x, g = np.asarray(theta, dtype=np.float64), np.asarray(gradient, dtype=np.float64)
    if x.shape != g.shape or x.ndim != 1:
        raise PlanError("a path has one gradient for each of its points.")
    excess, deficit = g - mu * x, positive("smoothness", smoothness) * x - g
    total = 0.0
    for t, weight in enumerate(np.asarray(weights, dtype=np.float64)):
        total += (1 if t == 0 else sign) * weight * float(excess @ np.roll(deficit, t))
    return float(total / len(x))
