"""The energy of a record under λ-CGD noise, bounded deterministically by a dynamic programme.

C[t, u] = λ^(t-u), so for 0 <= t < T and u <= t, (CᵀC)[u, t] = λ^(t-u) w_t with
w_t = Σ_{k < T-t} λ^(2k). Collecting the pairs by their later step, with d_t = Σ_{u < t} λ^(t-u) y_u,

    yᵀCᵀC y = Σ_t y_t w_t (1 + 2 d_t),    d_{t+1} = λ (d_t + y_t),    d_0 = 0,

which is exact for every horizon T. For T → ∞, w_t → 1/(1 - λ²): the (1 + 2λ s_{t-1})/(1 - λ²) of the
literature, with s_{t-1} = d_t/λ the state before it decays.

The dynamic programme holds the joint law of (d, energy) on a grid of levels that decay exactly, so that
only participations leave the grid. Lower bound: round both down. Upper bound: a value between two grid
points goes to either, with the probabilities that keep its mean. The energy is linear in the past pair
for each future y, so the grid energy Ê has E[Ê | y] = yᵀCᵀCy and, by Jensen, E[f(yᵀCᵀCy)] <= E[g(Ê)] for
every convex g >= f: the error is of second order in the grid, where rounding up costs first order.
"""

import inspect
import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from antiphon.accounting.correlated.energy import EnergyLaw, binomial_law
from antiphon.errors import PlanError
from antiphon.numerics import Series

__all__ = ["lambda_cgd_delta", "lambda_cgd_law"]

_SPACING = 0.02  # of neighbouring levels of d, relative
_FLOOR = 0.01  # smallest positive level: below it, 1 + 2d is 1 up to 2 %, and kept in the mean
_BINS = 4096
_TAIL = 1e-15  # mass that may leave the grid
_SLACK = 1e-9  # above all errors of float64 in an energy, relative


@lru_cache(maxsize=64)
def lambda_cgd_law(
    lam: float, rate: float, steps: int, side: Literal["upper", "lower"] = "upper"
) -> EnergyLaw:
    """Energies under λ-CGD noise, bounded deterministically by dynamic programming.

    Args:
        lam: λ in [0, 1].
        rate: Probability in (0, 1] with which a record takes part in a step, independently of others.
        steps: Number of steps T, with the exact energy of that horizon.
        side: Of E_y[profile]: ``"upper"`` certifies, ``"lower"`` shows how much could still be gained.

    Guarantee:
        As the module derives. λ = 0 and rate 1 are exact. The mean energy of an upper law is exact up
        to 1e-9. Under Poisson sampling and batches of fixed size alike, y has independent entries.
    """
    if not 0 <= lam <= 1:
        raise PlanError(f"λ must be in [0, 1]; got {lam}. 0 is independent noise, 1 is anti-PGD.")
    law = binomial_law(rate, steps)
    if lam == 0:
        return law
    weights = np.cumsum(np.power(lam, 2.0 * np.arange(steps)))[::-1].copy()
    before = lam * np.cumsum(lam ** np.arange(steps * 1.0)) - lam ** np.arange(1.0, steps + 1)
    largest = float(weights @ (1 + 2 * before))  # of taking part in every step
    if rate == 1:
        return EnergyLaw(np.array([largest]), np.ones(1))
    mean = rate * float(weights @ (1 + 2 * rate * before))
    # A whole number of bins for an isolated participation, unless that would need too many bins.
    fine, spread = (4, 24) if side == "upper" else (16, 6)
    bin_width = max(float(weights[0]) / fine, spread * mean / _BINS)
    masses, overflow = _propagate(rate, weights, lam, bin_width, side == "upper")
    while overflow > _TAIL and bin_width * _BINS < largest:
        bin_width *= 2
        masses, overflow = _propagate(rate, weights, lam, bin_width, side == "upper")
    masses = np.trim_zeros(masses, "b")
    values = np.float64(bin_width) * np.arange(len(masses))
    if side == "lower":
        return EnergyLaw(values * (1 - _SLACK), masses, "lower", overflow)
    # What left the grid: d grows by at most 1 per step, from at most 1 above the last level.
    top = float(_levels(lam, steps)[0][-1]) + steps + 2
    ceiling = float(weights.sum()) * (1 + 2 * top) + steps * bin_width
    # Leave out those who never take part, up to what float64 may have lost.
    masses[0] = max(0.0, masses[0] - (1 - rate) ** steps) + 1e-16 * steps
    return EnergyLaw(
        np.append(values * (1 + _SLACK), ceiling),
        np.append(masses, overflow),
        "upper",
        overflow,
        (1 - _SLACK, largest * (1 + _SLACK)),  # w_t >= 1
    )


def lambda_cgd_delta(
    lam: float,
    rate: float,
    steps: int,
    noise_multiplier: float,
    epsilon: float,
    amplitude: float = 1.0,
    side: Literal["upper", "lower"] = "upper",
) -> float:
    """δ at ε for λ-CGD, conditioned on participations; many κ or ε: use `lambda_cgd_law` once.

    Guarantee:
        An upper bound on δ, or with ``side="lower"`` a lower bound on what this accountant could prove.
    """
    return lambda_cgd_law(lam, rate, steps, side).delta(noise_multiplier, epsilon, amplitude)


def _levels(lam: float, steps: int) -> tuple[Series, int, int]:
    """Levels 0 < ... of d λ^-(t mod block), which drop by ``shift`` places every ``block`` steps.

    Their ratio is close to 1 - _SPACING and λ^block = ratio^shift, so decay stays on the grid. One is a
    level, so that an isolated participation does too.
    """
    step = -math.log(lam)
    if step >= _SPACING:
        block, shift = 1, round(step / _SPACING)
        spacing = step / shift
    elif step * steps > _SPACING:
        block, shift = round(_SPACING / step), 1
        spacing = step * block
    else:  # less than one place in the whole run: d λ^-t does not drop at all
        block, shift, spacing = steps + 1, 0, _SPACING
    longest = steps if lam == 1 else min(steps, 1 / (1 - lam))
    above = math.ceil(math.log(3 * longest) / spacing)
    below = math.ceil(-math.log(_FLOOR) / spacing)
    return np.append(0.0, np.exp(spacing * np.arange(-below, above + 1))), shift, block


def _propagate(
    rate: float, weights: Series, lam: float, bin_width: float, keep_mean: bool
) -> tuple[Series, float]:
    """Law of the energy in bins, and the mass that left the grid."""
    levels, shift, block = _levels(lam, len(weights))
    now, later = np.zeros((2, len(levels), _BINS))
    ends, next_ends = np.zeros((2, len(levels)), dtype=np.int64)
    now[0, 0], ends[0], overflow = 1.0, 1, 0.0
    # Places below the smallest positive level, as the share of it that has the same mean.
    fallen = (levels[1] / levels[2]) ** np.arange(max(shift, 1) + 1) * keep_mean
    for t, weight in enumerate(weights):
        age = t % block
        jump = weight * (1 + 2 * levels * lam**age) / bin_width
        whole = np.floor(jump + 1e-10).astype(np.int64)  # _SLACK covers the hair
        part = np.maximum(jump - whole, 0.0) * keep_mean
        joined = levels + lam**-age
        below = np.searchsorted(levels, joined, side="right") - 1
        below[below == len(levels) - 1] = -1
        share = (joined - levels[below]) / (levels[below + 1] - levels[below]) * keep_mean
        drop = shift if age == block - 1 else 0
        overflow += _step(
            now, later, ends, next_ends, whole, part, below, share, drop, fallen, rate
        )
        now, later, ends, next_ends = later, now, next_ends, ends
    return now.sum(axis=0), overflow


def _step_python(
    now: NDArray[np.float64],
    later: NDArray[np.float64],
    ends: NDArray[np.int64],
    next_ends: NDArray[np.int64],
    whole: NDArray[np.int64],
    part: NDArray[np.float64],
    below: NDArray[np.int64],
    share: NDArray[np.float64],
    drop: int,
    fallen: NDArray[np.float64],
    rate: float,
) -> float:
    """One step of the law of (level, energy) from ``now`` to ``later``; the mass that left the grid.

    Row k is zero from ``ends[k]`` on. Taking part moves a row by ``whole`` bins, and ``part`` of it by
    one more, to the row ``below`` (-1: none) and a ``share`` of it to the next; then rows ``drop``.
    """
    rows, bins = now.shape
    moved, overflow = np.zeros(bins + 1), 0.0
    for k in range(rows):
        later[k, : next_ends[k]] = 0.0
        next_ends[k] = 0
    for k in range(rows):
        for takes_part in range(2 if ends[k] > 0 else 0):
            mass, start, bent, row, next_share = 1 - rate, 0, 0.0, k, 0.0
            if takes_part:
                mass, start, bent, row, next_share = rate, whole[k], part[k], below[k], share[k]
            n = min(ends[k], bins - 1 - start) if row >= 0 else 0
            for e in range(max(n, 0), ends[k]):
                overflow += mass * now[k, e]
            if n <= 0:
                continue
            moved[0] = 0.0
            for e in range(n):
                moved[e] += (1 - bent) * now[k, e]
                moved[e + 1] = bent * now[k, e]
            n += 1 if bent > 0 else 0
            for i in range(2):
                to, rest = row + i - drop, 0.0
                if to < 1 and row + i > 0:
                    rest, to = fallen[1 - to], 0
                to = max(to, 0)
                for j in range(2):
                    p = mass * (next_share if i else 1 - next_share) * (rest if j else 1 - rest)
                    if p > 0:
                        for e in range(n):
                            later[to + j, start + e] += p * moved[e]
                        next_ends[to + j] = max(next_ends[to + j], start + n)
    for k in range(rows):  # a little mass at high energies would take most of the time: let it go
        while next_ends[k] > 0 and later[k, next_ends[k] - 1] < 1e-26:
            next_ends[k] -= 1
            overflow += later[k, next_ends[k]]
            later[k, next_ends[k]] = 0.0
    return overflow


# Shape checks in tests wrap functions; what is compiled is the plain one.
_step = njit(cache=True)(inspect.unwrap(_step_python))
