"""The integrals over all frequencies that the theory of ν-DP-FTRL is made of, in closed form."""

import math

import numpy as np
from scipy.special import elliprf, elliprj

from antiphon.errors import PlanError
from antiphon_papers.dp_ftrl.theory.frequency import warped_grid

__all__ = ["lemma_f13", "lemma_f13_printed", "nu_energy", "nu_integral"]

_CANCELS = 1e4  # (a/b)² above which the two elliptic integrals lose digits against each other


def nu_energy(nu: float) -> float:
    """γ_∞² of ν-DP-FTRL, (2/π) K(1 - ν), in Carlson's form, which keeps its digits as ν → 0.

    Example:
        >>> round(nu_energy(0.01), 8), nu_energy(1.0)
        (2.13687826, 1.0)
    """
    return 2 / math.pi * float(elliprf(0, _within("ν", nu) * (2 - nu), 1))


def nu_integral(a: float, b: float) -> float:
    """I(a, b) = ∫ |1 - a - e^iω| / |1 - b - e^iω|² dω over a period.

    Args:
        a: ν in (0, 1].
        b: Learning rate times eigenvalue, in (0, 1].

    Guarantee:
        A complete elliptic integral of the third kind [CorrelatedNoise24, Lem. C.21 bounds it], to ten
        digits; where b is so far below a that its terms would cancel, by quadrature.

    Example:
        >>> round(nu_integral(0.01, 0.02), 10)
        11.2329088758
    """
    a, b = _within("a", a), _within("b", b)
    modulus = (a / (2 - a)) ** 2
    shape = (a * (1 - b / 2) / (b * (1 - a / 2))) ** 2
    if shape > _CANCELS:
        frequencies, weights = warped_grid(b)
        chord = 4 * np.sin(frequencies / 2) ** 2
        values = np.sqrt(a**2 + (1 - a) * chord) / (b**2 + (1 - b) * chord)
        return 2 * math.pi * float(weights @ values)
    third = elliprf(0, modulus, 1) + (1 - shape) / 3 * elliprj(0, modulus, 1, shape)
    return 2 * a**2 / (b**2 * (1 - a / 2)) * float(third)


def lemma_f13(a: float) -> float:
    """∫ dω / (1 - a cos ω) over a period: 2π/sqrt(1 - a²), for |a| < 1.

    Example:
        >>> round(lemma_f13(0.6), 9)
        7.853981634
    """
    _inside(a)
    return 2 * math.pi / math.sqrt((1 - a) * (1 + a))


def lemma_f13_printed(a: float) -> float:
    """The same as printed, 2π/(1 - a²): wrong unless a = 0 [CorrelatedNoise24, Lem. F.13]."""
    _inside(a)
    return 2 * math.pi / ((1 - a) * (1 + a))


def _within(name: str, value: float) -> float:
    if not 0 < value <= 1:
        raise PlanError(f"{name} must be in (0, 1]; got {value}.")
    return float(value)


def _inside(a: float) -> None:
    if not -1 < a < 1:
        raise PlanError(f"a must be strictly between -1 and 1, or the integral diverges; got {a}.")
