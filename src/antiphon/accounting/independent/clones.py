"""Hiding among clones: what a random order of N reports hides of one of them.

Report i is drawn from R_i(z, x): z is all that was released before, x the record whose turn it is, and the
order of the records is uniform and secret. Neighbours differ in one record, x⁰ or x¹ (replaced or zeroed);
P_b = R_i(z, x^b).

**Pure randomizers** [FeldmanMcMillanTalwar21, sec. 3]. If all R_i(z, ·) are ε₀-DP,

- P_b = q Q_b + (1 - q) Q_(1-b) with q = e^ε₀/(1 + e^ε₀), for two laws Q₀, Q₁ (randomised response);
- R_i(z, x) >= e^-ε₀ P_b for both b, so R_i(z, x) >= e^-ε₀ (P₀ + P₁)/2 = e^-ε₀ (Q₀ + Q₁)/2.

So the weights are the same for every i, z and x. Draw in advance, for each other record, whether it is a
clone (probability e^-ε₀) and then of Q₀ or of Q₁ (one half each); for the differing record, whether it
draws Q_b. Given the *numbers* of draws from Q₀ and from Q₁, the places of these draws, and who stands in
the other places, are uniform and independent of b; from them the release is simulated step by step, however
R_i depends on z. So no pair is worse than (A + D, C - A + 1 - D) against (A + 1 - D, C - A + D), with
C ~ Bin(N - 1, e^-ε₀), A ~ Bin(C, 1/2) and D ~ Bern(q): the clones' two halves belong to e^-ε₀ as a whole.

**Gaussian randomizers**, R_i(z, x) = N(g_i(z, x), σ² I), are not ε₀-DP for any ε₀. Our proof:

1. *Clones of the pair itself.* Let M = (P₀ + P₁)/2, p = e^-ε₀, and δ₀ the Gaussian profile at ε₀ of the
   largest distance ‖g - g'‖/σ of two records. As ∫(P_b - e^ε₀ R)₊ <= δ₀ for R = R_i(z, x), the mass d of
   (pM - R)₊ is at most p δ₀. Move so much from R - min(R, pM), in proportion, to where pM is above R: the
   result is p M + (1 - p) L with some law L, at a total variation distance of d from R.
2. *The price.* Do so for all N - 1 others, step by step: the releases move by t = (N - 1) p δ₀ at most, for
   either neighbour, and A₀(S) <= A₀'(S) + t <= e^ε A₁'(S) + δ' + t <= e^ε A₁(S) + δ' + (1 + e^ε) t. The
   differing record is left as it is.
3. *One fixed pair.* P₀ and P₁ are images of N(±μ/2, 1), μ their largest distance, under one random map that
   depends on i and z only (scale, add independent noise); M is the image of the mean of the two. So draw
   in advance who is a clone, and a value w for each: from N(±μ/2, 1) for the differing record, from the
   mean of the two for a clone. Given C, the number of clones, the places of these C + 1 and who stands in
   the others are uniform and independent of b and of the values, which stand in uniformly random order:
   the release is simulated, step by step, from C and the values in that order.
4. *Its divergence.* Relative to the mean, N(±μ/2, 1) has density 1 ± T, T = tanh(μw/2); relative to
   C + 1 = m clones, the values have density 1 ± ΣT/m. With a = tanh(ε/2) the divergence given C is
   (1 + e^ε) E[(ΣT/m - a)₊], the same both ways. As P(C = m - 1)/m = P(Bin(N, p) = m)/(Np), in the mean over
   C it is (1 + e^ε)/(Np) E[(Y₁ + … + Y_N)₊] with independent Y: T - a with probability p, else 0.

Steps 1 and 2 cost (1 + e^ε) e^-ε₀ per N δ₀, less than the published (1 + e^ε)(1 + e^-ε₀/2). The larger gain
is in 4: it keeps the law of T, of which randomised response takes the extremes ± tanh(ε₀/2). The form is
that of the privacy blanket [BalleBellGasconNissim19, sec. 5]; [SuChengWang25] sum it by Fourier transform
for pure randomizers.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import logsumexp, ndtr
from scipy.stats import binom

from antiphon.accounting.independent.gaussian import gaussian_delta
from antiphon.errors import PlanError
from antiphon.numerics import Series

__all__ = ["clones_delta", "gaussian_clones_delta"]

_TAIL = 1e-18  # of the number of clones: left out, and added to δ
_NEGLIGIBLE = 1e-16  # a δ below which no amplification is sought
_TOO_FAR = (
    20.0  # a distance at which no number of reports hides anything: e^-200 of them would be clones
)
_CELLS = 16  # of the lattice, per standard deviation of T
_ALIAS = 25.0  # e^-25 of each tail may wrap around
_TILTS = np.geomspace(1e-3, 300.0, 160)


def clones_delta(reports: int, local_epsilon: float, epsilon: float) -> float:
    """δ at ε of N shuffled reports from adaptive ε₀-DP randomizers, one record replaced or zeroed.

    Args:
        reports: N.
        local_epsilon: ε₀.
        epsilon: ε >= 0.

    Guarantee:
        An upper bound [FeldmanMcMillanTalwar21]; exact for its pair of laws up to a rounding up by 1e-10
        relative and 2e-18 absolute. The improved bound of 2023 is not used: by its erratum it needs more
        of the randomizers.

    Example:
        >>> round(clones_delta(30, 1.0, 0.2), 9)
        0.043004477
    """
    _check(reports, epsilon)
    if not 0 < local_epsilon < math.inf:
        raise PlanError(f"the local ε₀ must be positive and finite; got {local_epsilon}.")
    p, t, a = math.exp(-local_epsilon), math.tanh(local_epsilon / 2), math.tanh(epsilon / 2)
    if a >= t:
        return 0.0
    low, high = binom.ppf(_TAIL, reports - 1, p), binom.isf(_TAIL, reports - 1, p)
    C = np.arange(max(0.0, low - 1), min(reports - 1, high + 1) + 1)
    left = binom.cdf(C[0] - 1, reports - 1, p) + binom.sf(C[-1], reports - 1, p)
    # J of the m draws are from Q₀; E[(2J - m)₊ beyond k]/m is half an atom of Bin(m - 1, 1/2).
    m = C + 1
    k = np.floor(m * (1 + a / t) / 2) + 1
    excess = 0.5 * t * binom.pmf(k - 1, C, 0.5) - a * binom.sf(k - 1, m, 0.5)
    mean = float(np.sum(binom.pmf(C, reports - 1, p) * np.maximum(excess, 0.0)))
    return min(1.0, (1 + math.exp(epsilon)) * mean * (1 + 1e-10) + float(left))


@lru_cache(maxsize=4096)
def gaussian_clones_delta(reports: int, own: float, apart: float, epsilon: float) -> float:
    """δ at ε of N shuffled adaptive Gaussian reports that differ in one record.

    Args:
        reports: N.
        own: Largest distance of the two versions of the differing record, per unit of noise.
        apart: Largest distance of any two records, per unit of noise; at least ``own``.
        epsilon: ε >= 0.

    Guarantee:
        An upper bound by the proof above, for the ε₀ that serves best, and never above the Gaussian
        profile without shuffling. T is spread to a lattice with its mean kept, which only raises the mean
        of a convex function; wrapping and rounding are added.

    Example:
        >>> f"{gaussian_clones_delta(10_000, 0.8, 0.8, 0.2):.2e}"
        '3.25e-05'
    """
    _check(reports, epsilon)
    if not 0 < own <= apart < math.inf:
        raise PlanError(f"distances must be positive, own <= apart; got {own} and {apart}.")
    alone = float(gaussian_delta(own, epsilon))
    if reports == 1 or alone < _NEGLIGIBLE or epsilon > 100 or apart > _TOO_FAR:
        return alone
    best, share, local = alone, 0.25, 0.0
    for _ in range(3):  # the choice of ε₀ improves with the share of Chernoff's bound that is true
        before, local = local, _local_epsilon(reports, own, apart, epsilon, share)
        if abs(local - before) < 0.003 * local:
            break
        p = math.exp(-local)
        mean, share = _excess(reports, p, own, math.tanh(epsilon / 2))
        price = (reports - 1) * p * float(gaussian_delta(apart, local))
        best = min(best, (1 + math.exp(epsilon)) * (mean / (reports * p) + price))
    return best


def _local_epsilon(reports: int, own: float, apart: float, epsilon: float, share: float) -> float:
    """A good ε₀, by a share of Chernoff's bound, (x)₊ <= e^(λx - 1)/λ. Any choice is valid."""
    local = np.linspace(0.0, apart * (apart / 2 + 9), 130)[1:]
    growth = _law(own).log_growth - _TILTS * math.tanh(epsilon / 2) - local[:, None]
    stay = np.log(-np.expm1(-local))[:, None]
    chernoff = (reports * np.logaddexp(stay, growth) - np.log(_TILTS)).min(axis=1) - 1
    hidden = chernoff + math.log(share / reports) + local
    price = math.log(reports) - local + np.log(np.maximum(gaussian_delta(apart, local), 1e-300))
    total = np.logaddexp(hidden, price)
    i = min(max(int(total.argmin()), 1), len(local) - 2)
    before, here, after = total[i - 1 : i + 2]
    bend = before - 2 * here + after
    shift = float(np.clip(0.5 * (before - after) / bend, -1, 1)) if bend > 0 else 0.0
    return float(local[i] + shift * (local[1] - local[0]))


class _Law(NamedTuple):
    """T = tanh(μw/2): its standard deviation, and log E[e^(λT)] at each tilt, both from above."""

    deviation: float
    log_growth: Series


@lru_cache(maxsize=256)
def _law(own: float) -> _Law:
    w = np.append(np.linspace(0.0, 9.0 + own / 2, 300), np.inf)
    t = np.append(np.tanh(own * w[:-1] / 2), 1.0)
    weights = 2 * _spread(own, w, t)
    two_sided = np.concatenate([-t, t])
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate([weights, weights]) / 2)
    growth = logsumexp(_TILTS[:, None] * two_sided + logs, axis=1)
    return _Law(math.sqrt(float(np.sum(weights * t**2))), np.asarray(growth))


def _spread(own: float, w: Series, t: Series) -> Series:
    """Weights at the points t that keep, in each cell of w, the mass and the mean of T.

    The mass is that of the mean of N(±μ/2, 1), and T times its density is half of their difference.
    """
    # From the nearer side, so that far cells keep their digits.
    sign = np.where(w[:-1] >= 0, -1.0, 1.0)
    plus, minus = (
        np.abs(ndtr(sign * (w[1:] - mean)) - ndtr(sign * (w[:-1] - mean)))
        for mean in (own / 2, -own / 2)
    )
    mass, moment = (plus + minus) / 2, (plus - minus) / 2
    width = np.diff(t)
    upper = np.divide(moment - t[:-1] * mass, width, out=mass.copy(), where=width > 0)
    upper = np.clip(upper, 0.0, mass)
    return np.append(mass - upper, 0.0) + np.append(0.0, upper)


def _excess(reports: int, p: float, own: float, a: float) -> tuple[float, float]:
    """E[(Y₁ + … + Y_N)₊] from above, by the Fourier transform of the exponentially tilted law.

    Also its share of Chernoff's bound.
    """
    step = _law(own).deviation / _CELLS
    index = np.arange(math.floor((-1 - a) / step), math.ceil((1 - a) / step) + 1)
    y = np.float64(step) * index
    with np.errstate(divide="ignore"):
        w = 2 / own * np.arctanh(np.clip(y + a, -1.0, 1.0))
    law = p * _spread(own, w, y + a)
    law[index == 0] += 1 - p
    # Tilted by e^(λy) with the λ of Chernoff's bound, the sum is around 0 and keeps its digits there.
    tilts = _TILTS[::4]
    growth = np.log(np.exp(tilts[:, None] * y) @ law)
    best = int((reports * growth - np.log(tilts)).argmin())
    tilt, scale = float(tilts[best]), float(growth[best])
    chernoff = math.exp(reports * (scale + 1e-14)) / (math.e * tilt)  # rounded up
    if chernoff < _NEGLIGIBLE * reports * p:
        return chernoff, 1.0
    tilted = law * np.exp(tilt * y - scale)
    above, below = (_reach(reports, tilted, side * y) for side in (1, -1))
    ends = math.ceil(above / step), math.ceil(below / step)
    size = next_fast_len(max(sum(ends) + 2, len(index)), real=True)
    buffer = np.zeros(size)
    np.add.at(buffer, index % size, tilted)
    total = irfft(rfft(buffer) ** reports, size)[1 : ends[0] + 1]
    s = step * np.arange(1, len(total) + 1)
    mean = float(np.sum(s * np.exp(-tilt * s) * np.maximum(total, 0.0)))
    # s e^(-λs) <= 1/(eλ): so much for each unit of probability that wraps around or is rounded away.
    # Rounding: N roundings of 1e-16 in each power, few of which matter, and as many in the transforms.
    lost = 2 * math.exp(-_ALIAS) + 1e-9 + 1e-12 * reports
    share = math.e * tilt * mean + lost
    return chernoff * share, share


def _reach(reports: int, law: Series, y: Series) -> float:
    """A value that the sum of N draws passes with probability at most e^-25, by Chernoff's bound."""
    deviation = math.sqrt(float(np.sum(law * y**2)))
    steepest = min(600 / float(np.abs(y).max()), 14 / max(deviation * math.sqrt(reports), 1e-9))
    rates = steepest * np.geomspace(1e-3, 1, 24)
    growth = np.log(np.exp(rates[:, None] * y) @ law)
    return max(0.0, float(np.min((reports * growth + _ALIAS) / rates)))


def _check(reports: int, epsilon: float) -> None:
    if not reports >= 1:
        raise PlanError(f"the number of reports must be at least 1; got {reports}.")
    if not 0 <= epsilon < math.inf:
        raise PlanError(f"ε must be non-negative and finite; got {epsilon}.")
