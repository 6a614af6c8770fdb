"""What linear regression feels of a mechanism: its sensitivity, and the energy left in each direction.

In a direction of curvature λ a step of rate η keeps r = 1 - ηλ of what was there. Noise with decoder
column β then leaves q = Σ_{t,s} β_t β_s r^|t-s| of its variance, per step that independent noise would
leave: 1 without correlation, below 1 where later noise takes earlier noise back.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import (
    BLT,
    AbstractMechanism,
    AbstractToeplitz,
    BandedInverse,
    Independent,
    LambdaCGD,
    NuFTRL,
)
from antiphon.numerics import Series, reciprocal
from antiphon.participation import Once
from antiphon_papers.dp_ftrl.theory.elliptic import nu_integral
from antiphon_papers.dp_ftrl.theory.frequency import noise_fades

__all__ = ["noise_energy", "partial_energies", "squared_sensitivity", "toeplitz"]

_RTOL = 1e-13
_FIRST, _MOST = 1 << 12, 1 << 22


def toeplitz(mechanism: AbstractMechanism) -> AbstractToeplitz:
    """The mechanism, if it is the same at every step; else `UnsupportedError`."""
    if not isinstance(mechanism, AbstractToeplitz):
        raise UnsupportedError(
            f"{mechanism} has no stationary error: its noise depends on the number of steps, or differs "
            "from step to step. Take a Toeplitz mechanism, or ask for a finite number of steps."
        )
    return mechanism


def squared_sensitivity(mechanism: AbstractMechanism, horizon: int | None = None) -> float:
    """γ² for one participation: γ_T² for a horizon of T steps, γ_∞² without one.

    Guarantee:
        From the mechanism itself, never from the integral of |B|⁻², which is not γ_∞² unless β is
        minimum phase [CorrelatedNoise24, eq. 5].
    """
    steps = math.inf if horizon is None else horizon
    return float(mechanism.sensitivity(steps, Once())) ** 2


def noise_energy(mechanism: AbstractMechanism, rates: Series) -> Series:
    """Q of endlessly many steps, for each rate b = ηλ in (0, 2).

    Args:
        mechanism: A Toeplitz mechanism whose decoder fades.
        rates: Learning rate times eigenvalue, one for each direction.

    Guarantee:
        Closed forms for independent, λ-CGD, ν-FTRL (b <= 1), banded-inverse and BLT mechanisms; sums of
        as many terms as matter for others, refused where four million do not suffice.

    Example:
        >>> noise_energy(NuFTRL(0.01), np.array([0.1, 0.05, 0.01])).round(8).tolist()
        [0.24391275, 0.14333708, 0.04252388]
    """
    b = np.asarray(rates, dtype=np.float64)
    if b.ndim != 1 or not ((b > 0) & (b < 2)).all():
        raise PlanError(
            f"each learning rate times eigenvalue must be in (0, 2), or descent diverges; the largest is "
            f"{b.max(initial=0.0):.4g}."
        )
    match mechanism:
        case Independent():
            return np.ones_like(b)
        case LambdaCGD(lam):
            return (1 - lam) ** 2 + 2 * b * lam
        case NuFTRL(nu) if nu > 0 and (b <= 1).all():
            return np.array([x * (2 - x) / (2 * math.pi) * nu_integral(nu, x) for x in b])
        case BLT() if _fades(mechanism):
            return _of_exponentials(mechanism, b)
        case BandedInverse():
            return _of_column(np.array(mechanism.beta), b)
        case _:
            return _of_series(toeplitz(mechanism), b)


def partial_energies(beta: Series, rates: Series) -> NDArray[np.float64]:
    """Q after each of the steps: row t has Σ_{τ,k <= t} β_τ β_k r^|τ-k| for every rate.

    Example:
        >>> partial_energies(np.array([1.0, -1.0]), np.array([0.5])).ravel().tolist()
        [1.0, 1.0]
    """
    found = np.empty((len(beta), len(rates)))
    kept = 1 - np.asarray(rates)
    for j, r in enumerate(kept):
        past = np.concatenate([[0.0], lfilter([1.0], [1.0, -r], beta)[:-1]])
        found[:, j] = np.cumsum(beta * (beta + 2 * r * past))
    return found


def _of_column(beta: Series, b: Series) -> Series:
    """Of a decoder that ends: b(2 - b) Σ_t g_t² with g the answer of 1/(1 - rz), summed beyond its end."""
    found = np.empty_like(b)
    for j, rate in enumerate(b):
        r = 1 - rate
        g = lfilter([1.0], [1.0, -r], beta)
        found[j] = rate * (2 - rate) * (g @ g) + (r * g[-1]) ** 2
    return found


def _of_series(mechanism: AbstractToeplitz, b: Series) -> Series:
    """The same for more and more terms, until they no longer matter."""
    steps, before = _FIRST, np.full_like(b, np.inf)
    while steps <= _MOST:
        with np.errstate(over="ignore", invalid="ignore"):  # of noise that grows: refused below
            found = _of_column(mechanism.inverse_column(steps), b)
        if not np.isfinite(found).all():
            break
        if np.allclose(found, before, rtol=_RTOL, atol=0.0):
            return found
        steps, before = 4 * steps, found
    raise UnsupportedError(
        f"the noise of {mechanism} fades too slowly, or grows: {_MOST:,} terms do not give its error after "
        "endlessly many steps. Ask for a finite number of steps."
    )


def _fades(mechanism: BLT) -> bool:
    a, x = mechanism.scales, mechanism.decays
    return bool(a) and min(a) > 0 and max(x) < 1 and noise_fades(mechanism)


def _of_exponentials(mechanism: BLT, b: Series) -> Series:
    """Of a BLT, whose decoder is 1 - Σ_j w_j y_j^(t-1): all sums over t and s are geometric."""
    w, y = reciprocal(np.array(mechanism.scales), np.array(mechanism.decays))
    pairs = np.outer(w, w) / (1 - np.outer(y, y))
    total = 1 + pairs.sum()
    r = 1 - b
    lagged = r[:, None] / (1 - np.outer(r, y))
    return total + 2 * lagged @ (pairs.sum(axis=0) * y - w)
