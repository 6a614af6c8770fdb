"""From a power spectrum to the causal series that has it."""

import numpy as np

from antiphon.errors import PlanError
from antiphon.numerics.arrays import Series

__all__ = ["minimum_phase"]


def minimum_phase(power: Series, terms: int) -> Series:
    """First ``terms`` coefficients of the minimum-phase series B with |B(ω)|² = power, scaled to B_0 = 1.

    Args:
        power: |B|² at ω = 2πn/N, n = 0..N-1; positive and finite, N even. N must be large against the
            inverse distance of B's nearest singularity from the unit circle: the cepstrum wraps
            around with that decay.
        terms: How many coefficients to return, at most N/2.

    Guarantee:
        B and 1/B are analytic in the unit disk, so 1/B is a valid encoder column whose energy is the
        integral of 1/power (the condition that [CorrelatedNoise24, eq. 5] leaves out).

    Example:
        >>> z = np.exp(-2j * np.pi * np.arange(256) / 256)
        >>> minimum_phase(np.abs(1 - 0.5 * z) ** 2, 3).round(12) + 0.0
        array([ 1. , -0.5,  0. ])
    """
    N = len(power)
    if N % 2 or not 1 <= terms <= N // 2:
        raise PlanError(
            f"need an even number N of samples and 1 <= terms <= N/2; got {N=}, {terms=}."
        )
    if not (np.isfinite(power).all() and (power > 0).all()):
        raise PlanError("a power spectrum must be positive and finite at every frequency.")
    cepstrum = np.fft.ifft(0.5 * np.log(power)).real
    # Folding the negative times onto the positive ones makes the series causal and keeps |B|.
    cepstrum[1 : N // 2] *= 2
    cepstrum[N // 2 + 1 :] = 0
    series: Series = np.fft.ifft(np.exp(np.fft.fft(cepstrum))).real
    return series[:terms] / series[0]
