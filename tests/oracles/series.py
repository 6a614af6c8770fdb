"""Sums of power series, with as many digits as they take."""

from collections.abc import Sequence

import mpmath as mp


def reciprocal(series: Sequence[float], terms: int) -> list[mp.mpf]:
    """First coefficients of 1/series, by the schoolbook recursion."""
    c: list[mp.mpf] = []
    for t in range(terms):
        total = mp.fsum(series[i] * c[t - i] for i in range(1, min(t + 1, len(series))))
        c.append((mp.mpf(t == 0) - total) / series[0])
    return c


def energy(series: Sequence[float], terms: int) -> float:
    """Σ_t c_t² of the reciprocal series over the first ``terms`` terms."""
    with mp.workdps(50):
        return float(mp.fsum(c**2 for c in reciprocal(series, terms)))


def nu_autocorrelation(nu: float, lag: int) -> mp.mpf:
    """Σ_u c_u c_{u+lag} of (1 - (1-ν)z)^(-1/2), as an integral over the unit circle."""
    keep = 1 - mp.mpf(nu)

    def spectrum(angle: mp.mpf) -> mp.mpf:
        return mp.cos(lag * angle) / abs(1 - keep * mp.expjpi(angle / mp.pi))

    peak = [mp.mpf(0), *(nu * mp.mpf(10) ** i for i in range(8) if nu * 10**i < 1)]
    turns = [mp.pi * i / max(1, lag) for i in range(1, max(1, lag) + 1)]
    return mp.quad(spectrum, sorted({*peak, *turns})) / mp.pi


def with_zeros(*inverses: float) -> list[float]:
    """The coefficients, rounded to float64, of Π (1 - r z)."""
    with mp.workdps(50):
        series = [mp.mpf(1)]
        for r in inverses:
            series = [a - r * b for a, b in zip([*series, 0], [0, *series], strict=True)]
        return [float(a) for a in series]
