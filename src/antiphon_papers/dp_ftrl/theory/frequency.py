"""Frequencies at which to look at a filter, and what gradient descent makes of noise at each of them."""

import math
from functools import lru_cache

import numpy as np

from antiphon.checks import positive
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import (
    BLT,
    AbstractMechanism,
    BandedInverse,
    Independent,
    LambdaCGD,
    NuFTRL,
)
from antiphon.numerics import Series

__all__ = ["noise_fades", "power_spectrum", "response_of", "warped_grid"]

_NODES = 500


def warped_grid(
    width: float, nodes: int = _NODES, *, far: float | None = None
) -> tuple[Series, Series]:
    """Frequencies in (0, π) and the weights of a mean over them, dense around 0.

    ω = width · sinh(s) with Gauss-Legendre nodes in s: a peak at 0 of this width is as smooth in s as
    everything else.

    Args:
        width: Of the narrowest peak at ω = 0, learning rate times smallest curvature.
        nodes: How many frequencies.
        far: Width of a peak at π, 2 less learning rate times largest curvature. If given, the frequencies
            are twice as many, half of them dense around π.

    Example:
        >>> frequencies, weights = warped_grid(0.01)
        >>> round(float(weights @ np.cos(frequencies) ** 2), 12)
        0.5
    """
    if far is None:
        return _dense_at_0(width, nodes, math.pi)
    near, weights = _dense_at_0(width, nodes, math.pi / 2)
    mirrored, others = _dense_at_0(far, nodes, math.pi / 2)
    return np.append(near, math.pi - mirrored), np.append(weights, others)


def _dense_at_0(width: float, nodes: int, last: float) -> tuple[Series, Series]:
    """Frequencies in (0, last), with the weights that they have in a mean over (0, π)."""
    width = min(positive("width", width), 1.0)
    end = math.asinh(last / width)
    x, w = _gauss(nodes)
    s = end * (x + 1) / 2
    return width * np.sinh(s), width * np.cosh(s) * w * end / (2 * math.pi)


@lru_cache(maxsize=8)
def _gauss(nodes: int) -> tuple[Series, Series]:
    x, w = np.polynomial.legendre.leggauss(nodes)
    return x, w


def response_of(values: Series, learning_rate: float, frequencies: Series) -> Series:
    """H = Σ_j λ_j / |1 - ηλ_j - e^iω|² at each frequency [CorrelatedNoise24, eq. 21].

    Example:
        >>> response_of(np.array([1.0]), 0.5, np.array([0.0])).tolist()
        [4.0]
    """
    # |1 - b - e^iω|² = b² + 4(1 - b) sin²(ω/2) keeps its digits as ω → 0, where b is small; as ω → π, where
    # b is near 2, (2 - b)² + 4(b - 1) cos²(ω/2) does.
    near, far = 4 * np.sin(frequencies / 2) ** 2, 4 * np.cos(frequencies / 2) ** 2
    total = np.zeros_like(frequencies)
    for value in values:
        b = learning_rate * value
        total += value / (b**2 + (1 - b) * near if b <= 1 else (2 - b) ** 2 + (b - 1) * far)
    return total


def noise_fades(mechanism: BLT) -> bool:
    """Whether what one step's noise adds to later steps fades: else the noise of a BLT grows for ever.

    Its decoder 1/C has poles where the encoder has zeros: at the eigenvalues of diag(x) - 1aᵀ, which for
    positive scales are all inside the unit circle if Σ a/(1 + x) < 1.

    Example:
        >>> noise_fades(BLT((0.5,), (0.9,))), noise_fades(BLT((1.6,), (0.5,)))
        (True, False)
    """
    a, x = np.array(mechanism.scales), np.array(mechanism.decays)
    return bool((np.abs(np.linalg.eigvals(np.diag(x) - np.tile(a, (len(a), 1)))) < 1).all())


def power_spectrum(mechanism: AbstractMechanism, frequencies: Series) -> Series:
    """|B(ω)|² of the noise that a mechanism adds, per unit of white noise, at each frequency.

    Guarantee:
        Exact for independent, λ-CGD, ν-FTRL, banded-inverse and BLT noise; refused for others, and for a
        BLT whose noise grows from step to step, which has no spectrum.

    Example:
        >>> power_spectrum(NuFTRL(0.36), np.array([0.0, np.pi])).round(12).tolist()
        [0.36, 1.64]
    """
    z = np.exp(1j * frequencies)
    match mechanism:
        case Independent():
            return np.ones_like(frequencies)
        case LambdaCGD(lam):
            return (1 - lam) ** 2 + 4 * lam * np.sin(frequencies / 2) ** 2
        case NuFTRL(nu):
            return np.sqrt(nu**2 + 4 * (1 - nu) * np.sin(frequencies / 2) ** 2)
        case BLT(scales, decays):
            if not noise_fades(mechanism):
                raise UnsupportedError(
                    f"the noise of {mechanism} grows from step to step, its encoder having a zero within "
                    "the unit circle: it has no spectrum and no stationary error. Take scales with "
                    "Σ a/(1 + x) < 1."
                )
            encoder = np.ones_like(z)
            for a, x in zip(scales, decays, strict=True):
                encoder += a * z / (1 - x * z)
            return 1 / np.abs(encoder) ** 2
        case BandedInverse(beta):
            return np.abs(np.polynomial.polynomial.polyval(z, np.array(beta))) ** 2
        case _:
            raise UnsupportedError(
                f"the spectrum of {mechanism} is not known in closed form. Take independent, λ-CGD, "
                "ν-FTRL, banded-inverse or BLT noise."
            )
