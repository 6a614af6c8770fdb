"""The best Toeplitz correlations for a known spectrum, as mechanisms like any other.

|B|² = 1/√h minimises the stationary error without feedback over all filters (the equality case of Cauchy
and Schwarz in [CorrelatedNoise24, Thm. C.18]). A causal, invertible β with that power spectrum comes from
its cepstrum. What then runs is a finite decoder or a BLT near it, and is certified by its own
sensitivity: how it was found costs no privacy, as long as the spectrum is public.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from antiphon.checks import positive, whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import BLT, BandedInverse, quasi_newton
from antiphon.numerics import Series, minimum_phase
from antiphon_papers.dp_ftrl.theory.frequency import noise_fades, response_of, warped_grid
from antiphon_papers.dp_ftrl.theory.spectrum import Spectrum, eigenvalues

__all__ = ["OptimalFilter", "best_filter", "factor", "filter_against", "fit_blt"]

_MOST_SAMPLES = 1 << 21
_FIT_NODES = 250
_ZEROS_OUTSIDE, _STIFF = 0.98, 1e4


@final
@dataclass(frozen=True, eq=False)
class OptimalFilter:
    """A power spectrum |B|², and the mechanisms made from it.

    Attributes:
        value: The functional it minimises: γ_∞² times the mean of |B|² against the response.
        response: What an error makes of noise at each frequency; |B|² is its inverse square root.
        width: Of its peak at ω = 0.
        terms: How many coefficients `column` and `encoder` have.
    """

    value: float
    response: Callable[[Series], Series]
    width: float
    terms: int

    @cached_property
    def column(self) -> Series:
        """First coefficients of β, β_0 = 1."""
        return factor(lambda w: 1 / np.sqrt(self.response(w)), self.width, self.terms)

    @cached_property
    def encoder(self) -> Series:
        """First coefficients of 1/β."""
        return factor(lambda w: np.sqrt(self.response(w)), self.width, self.terms)

    def mechanism(self, steps: int) -> BandedInverse:
        """β as it is, cut after ``steps`` coefficients: exact for runs of that length, with O(T) state."""
        T = whole("steps", steps)
        if self.terms < T:
            raise PlanError(
                f"the filter was computed for {self.terms} steps; got {T}. Ask for more terms."
            )
        return BandedInverse(tuple(self.column[:T].tolist()))

    def buffered(self, buffers: int = 6) -> BLT:
        """The best BLT for the same response: constant memory, a sensitivity for any number of steps."""
        return fit_blt(self.response, self.width, buffers)


def best_filter(*, spectrum: Spectrum, learning_rate: float, terms: int = 4096) -> OptimalFilter:
    """The Toeplitz correlations that minimise the error of linear regression with this spectrum.

    Args:
        spectrum: Eigenvalues of H, given or estimated on PUBLIC data (`spectrum_of`).
        learning_rate: η.
        terms: How many coefficients of β are wanted: the number of steps of a run.

    Guarantee:
        Minimum phase, so that 1/β is a valid encoder. No Toeplitz mechanism has a smaller `filter_error`.

    Example:
        >>> found = best_filter(spectrum=[1.0], learning_rate=0.1)
        >>> [round(x, 10) for x in found.mechanism(3).beta]
        [1.0, -0.45, -0.10125]
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    if eta * values.max() >= 1:
        raise PlanError(
            f"ηλ_max must be below 1; it is {eta * values.max():.4g}. Take a smaller learning rate."
        )
    return filter_against(lambda w: response_of(values, eta, w), eta * float(values.min()), terms)


def filter_against(
    response: Callable[[Series], Series], width: float, terms: int = 4096
) -> OptimalFilter:
    """The Toeplitz correlations with the smallest γ_∞² times the mean of |B|² against any response.

    Args:
        response: Positive function of frequencies in [0, π].
        width: Of its peak at ω = 0.
        terms: How many coefficients of β are wanted.

    Example:
        >>> found = filter_against(lambda w: np.ones_like(w), 1.0, 8)
        >>> found.column.round(12).tolist()[:3]
        [1.0, 0.0, 0.0]
    """
    frequencies, weights = warped_grid(width)
    there = np.asarray(response(frequencies))
    if not ((there > 0) & (there < math.inf)).all():
        raise PlanError("a response must be positive and finite at every frequency.")
    value = float(weights @ np.sqrt(there)) ** 2
    return OptimalFilter(value, response, width, whole("terms", terms))


def factor(power: Callable[[Series], Series], width: float, terms: int) -> Series:
    """First coefficients of the minimum-phase β with |B(ω)|² = power(ω).

    Args:
        power: Positive function of frequencies in [0, π].
        width: Of its narrowest feature, which is at ω = 0.
        terms: How many coefficients, β_0 = 1.

    Guarantee:
        Sampled so densely that the cepstrum, which fades like e^(-width n), wraps around by e^-40.

    Example:
        >>> beta = factor(lambda w: np.abs(1 - 0.9 * np.exp(1j * w)), 0.1, 3)
        >>> beta.round(10).tolist()
        [1.0, -0.45, -0.10125]
    """
    needed = max(2 * whole("terms", terms), 80 / positive("width", width))
    samples = 1 << max(14, math.ceil(math.log2(needed)))
    if samples > _MOST_SAMPLES:
        raise UnsupportedError(
            f"this filter needs {samples:,} frequencies to resolve a width of {width:.3g} at ω = 0, "
            f"more than "
            f"{_MOST_SAMPLES:,}. Leave the smallest eigenvalues out, or add a ridge."
        )
    half = power(np.linspace(0, np.pi, samples // 2 + 1))
    return minimum_phase(np.concatenate([half, half[-2:0:-1]]), terms)


def fit_blt(response: Callable[[Series], Series], width: float, buffers: int = 6) -> BLT:
    """The BLT with the smallest γ_∞² times the mean of |B|² against a response.

    Quasi-Newton in the logarithms of scales and rates, where both factors are means over frequencies;
    buffers are added one after another, since from one start alone they may merge.

    Args:
        response: Positive function of frequencies in [0, π]: what an error makes of noise there.
        width: Of its peak at ω = 0.
        buffers: Number of exponentials.

    Guarantee:
        Positive scales and decays below 1, and noise that fades: the mean of |B|² sees |C| alone, which a
        zero and its mirror image in the unit circle share, so Σ a/(1 + x) is kept below 1. Certified by
        its own sensitivity, however good the fit is.

    Example:
        >>> from antiphon.mechanisms import NuFTRL
        >>> found = fit_blt(lambda w: 1 / np.abs(1 - 0.9 * np.exp(1j * w)) ** 2, 0.1, 3)
        >>> best = NuFTRL(0.1).column(4)
        >>> bool(np.allclose(found.column(4), best, rtol=0.02))
        True
    """
    filter_against(response, width)  # which refuses what is no response
    frequencies, weights = warped_grid(width, _FIT_NODES)
    h = weights * response(frequencies)
    z = np.exp(1j * frequencies)

    def objective(p: Series) -> tuple[float, Series]:
        scales, rates = np.exp(p[: len(p) // 2]), np.exp(p[len(p) // 2 :])
        decays = np.exp(-rates)
        parts = z[:, None] / (1 - np.outer(z, decays))
        C = 1 + parts @ scales
        power = np.abs(C) ** 2
        energy, error = float(weights @ power), float(h @ (1 / power))
        by_power = weights / energy - h / power**2 / error
        by_scales = 2 * by_power @ (C.conj()[:, None] * parts).real
        # ∂/∂x of z/(1 - xz) is its square, and ∂x/∂(log rate) = -x rate.
        by_decays = 2 * scales * (by_power @ (C.conj()[:, None] * parts**2).real)
        gradient = np.concatenate([by_scales * scales, -by_decays * decays * rates])
        # What Σ a/(1 + x) is above its limit by, so that no zero of C comes into the unit circle.
        above = max(0.0, float((scales / (1 + decays)).sum()) - _ZEROS_OUTSIDE)
        slopes = np.concatenate(
            [scales / (1 + decays), scales * decays * rates / (1 + decays) ** 2]
        )
        return (
            math.log(energy) + math.log(error) + _STIFF * above**2,
            gradient + 2 * _STIFF * above * slopes,
        )

    best: Series | None = None
    for count in range(1, whole("buffers", buffers) + 1):
        # (1 - z)^(-1/2) as an integral over rates, from the fastest to the width of the peak.
        rates = np.geomspace(1.5, 0.7 * min(1.0, width), count)
        spacing = math.log(1.5 / rates[-1] + 1) / (math.pi * max(1, count - 1))
        starts = [_logarithms(np.sqrt(rates) * np.exp(-rates) * spacing, rates)]
        if best is not None:
            scales, rates = np.exp(best[: count - 1]), np.exp(best[count - 1 :])
            for fast in (4 * rates.max(), 0.3 * rates.min()):
                starts.append(_logarithms(np.append(scales, 0.02), np.append(rates, fast)))
        bounds: list[tuple[float | None, float | None]] = [(-25.0, 2.0)] * count
        bounds += [(math.log(1e-3 * width), math.log(20.0))] * count
        low, high = np.array(bounds, dtype=np.float64).T
        found = [quasi_newton(objective, np.clip(p, low, high), bounds) for p in starts]
        best = min(found, key=lambda p: objective(p)[0])
    assert best is not None
    blt = _blt(best)
    if not noise_fades(blt):
        raise UnsupportedError(
            f"no BLT of {buffers} buffers was found for this response whose noise fades. Take another "
            "number, or `mechanism(steps)`, which is exact."
        )
    return blt


def _blt(p: Series) -> BLT:
    """Of the logarithms of scales and rates, the fastest first."""
    scales, rates = np.exp(p[: len(p) // 2]), np.exp(p[len(p) // 2 :])
    order = np.argsort(-rates)
    return BLT(tuple(scales[order].tolist()), tuple(np.exp(-rates[order]).tolist()))


def _logarithms(scales: Series, rates: Series) -> Series:
    return np.log(np.concatenate([scales, rates]))
