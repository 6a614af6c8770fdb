"""Accounting conditioned on participations: δ(ε) <= E_y[Gaussian profile at a·sqrt(yᵀ|CᵀC|y)/κ].

y is the 0/1 vector of the steps in which one record takes part. Run the two neighbouring data sets on
the same batches: given y they differ by one Gaussian release of that sensitivity, and the hockey-stick
divergence is jointly convex, so the profile averaged over y bounds the truth. No secrecy of the batches
is used, hence no amplification, and no more is needed than that y does not depend on the data:

=============  ==================================  ==========================================
relation       sampling                            amplitude a
=============  ==================================  ==========================================
zero-out       any that ignores the data           1
add-remove     Poisson                             1
add-remove     batches of a fixed size, batch < n  2 (the record swaps its place with another)
replace-one    any that ignores the data           2
=============  ==================================  ==========================================

The *energy* yᵀ|CᵀC|y has a law that does not depend on κ, so it is computed once and serves all κ and ε.

λ-CGD. C[t, u] = λ^(t-u), so for 0 <= t < T and u <= t, (CᵀC)[u, t] = λ^(t-u) w_t with
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.stats import binom, norm

from antiphon.accounting.gaussian import check_delta, check_epsilon, gaussian_delta
from antiphon.errors import PlanError
from antiphon.linalg import Matrix, Series

__all__ = [
    "EnergyLaw",
    "EnergySample",
    "Side",
    "binomial_delta",
    "binomial_law",
    "lambda_cgd_delta",
    "lambda_cgd_law",
    "sample_energies",
]

Side = Literal["exact", "upper", "lower"]

_SPACING = 0.02  # of neighbouring levels of d, relative
_FLOOR = 0.01  # smallest positive level: below it, 1 + 2d is 1 up to 2 %, and kept in the mean
_BINS = 4096
_TAIL = 1e-15  # mass that may leave the grid
_SLACK = 1e-9  # above all errors of float64 in an energy, relative
_INCREASE = np.concatenate([[1.0], np.geomspace(1.05, 1e4, 40)])


@final
@dataclass(frozen=True, eq=False)
class EnergyLaw:
    """The law of a record's energy yᵀ|CᵀC|y, or a law that bounds it.

    Attributes:
        values: Energies, non-negative.
        probabilities: Their probabilities; those who never take part, whose δ is 0, may be left out.
        side: What `delta` is: exact, an upper bound, or a lower bound, of E_y[Gaussian profile].
        overflow: Mass that left the grid. It counts as an energy above all in an upper bound, as none in
            a lower bound.
        bounds: The smallest and the largest energy of a record that takes part.
    """

    values: Series
    probabilities: Series
    side: Side = "exact"
    overflow: float = 0.0
    bounds: tuple[float, float] = (0.0, math.inf)

    def __post_init__(self) -> None:
        for name in ("values", "probabilities"):  # laws are shared by a cache
            frozen = np.array(getattr(self, name))
            frozen.setflags(write=False)
            object.__setattr__(self, name, frozen)

    @property
    def mean(self) -> float:
        """Expected energy: E‖Cy‖² where CᵀC >= 0."""
        return float(self.values @ self.probabilities)

    def delta(self, noise_multiplier: float, epsilon: float, amplitude: float = 1.0) -> float:
        """Bound on δ at ε, for every record with this law.

        Args:
            noise_multiplier: κ, the standard deviation of z per unit of clip norm; positive.
            epsilon: ε > 0.
            amplitude: a, the change of a record's gradient in units of the clip norm: see the module.

        Guarantee:
            ``side`` says on which side of E_y[profile] it lies. An upper bound is one of the true δ.
        """
        check_epsilon(epsilon)
        _check_positive("the noise multiplier", noise_multiplier)
        _check_positive("the amplitude", amplitude)
        scale = amplitude / noise_multiplier
        squares = self.values * scale**2
        profile = gaussian_delta(np.sqrt(squares), epsilon)
        if self.side != "upper":
            return min(1.0, float(self.probabilities @ profile))
        least, most = self.bounds
        if scale**2 * least >= _inflection(epsilon):
            profile = np.zeros_like(profile)  # concave at all energies there are: lines suffice
        mass = float(self.probabilities.sum())
        lines = _tangents(squares, epsilon, float(self.probabilities @ squares) / mass)
        worst = min(1.0, mass * float(gaussian_delta(scale * math.sqrt(most), epsilon)))
        return min(worst, float(np.min(np.maximum(profile, lines) @ self.probabilities)))

    def epsilon(self, noise_multiplier: float, delta: float, amplitude: float = 1.0) -> float:
        """The smallest ε > 0, to 1e-9, for which `delta` is at most ``delta``; infinite above 1e6."""
        check_delta(delta)
        return _smallest(lambda e: self.delta(noise_multiplier, e, amplitude) <= delta, 1e-6, 1e6)

    def noise_multiplier(self, epsilon: float, delta: float, amplitude: float = 1.0) -> float:
        """The smallest κ, to 1e-9, for which `delta` at ``epsilon`` is at most ``delta``."""
        check_delta(delta)
        largest = math.sqrt(float(self.values.max())) + 1.0
        return amplitude * _smallest(
            lambda k: self.delta(k, epsilon) <= delta, 1e-6, 1e9 * largest / min(1.0, epsilon)
        )


@final
@dataclass(frozen=True, eq=False)
class EnergySample:
    """Energies of independently drawn participation vectors.

    Attributes:
        values: One energy per draw.
    """

    values: Series

    def estimate(self, noise_multiplier: float, epsilon: float, amplitude: float = 1.0) -> float:
        """Unbiased estimate of E_y[profile]: to search with, not to certify."""
        equal = np.full(len(self.values), 1 / len(self.values))
        return EnergyLaw(self.values, equal).delta(noise_multiplier, epsilon, amplitude)

    def delta(
        self,
        noise_multiplier: float,
        epsilon: float,
        amplitude: float = 1.0,
        failure_probability: float = 1e-6,
    ) -> float:
        """Upper confidence bound on E_y[profile], hence on δ.

        Guarantee:
            At least the expectation, but for ``failure_probability`` over the draws, for one triple
            (κ, ε, a) fixed before they were made: profiles lie in [0, 1] and are independent, so the
            Chernoff bound in relative-entropy form applies [Hoeffding63, Thm. 1].
        """
        _check_probability("the failure probability", failure_probability)
        mean = self.estimate(noise_multiplier, epsilon, amplitude)
        return _chernoff(mean, len(self.values), failure_probability)


def binomial_law(rate: float, steps: int) -> EnergyLaw:
    """Energies under independent noise: the number of participations, exact.

    Args:
        rate: Probability in (0, 1] with which a record takes part in a step, independently of others.
        steps: Number of steps T.
    """
    _check_probability("the sampling rate", rate)
    _check_steps(steps)
    counts = np.arange(steps + 1)
    return EnergyLaw(counts.astype(np.float64), binom.pmf(counts, steps, rate))


def binomial_delta(
    rate: float, steps: int, noise_multiplier: float, epsilon: float, amplitude: float = 1.0
) -> float:
    """δ at ε for independent noise, conditioned on participations: a sum over a binomial law.

    Guarantee:
        Exact E_y[profile]; an upper bound on δ (see the module for the amplitude).

    Example:
        >>> f"{binomial_delta(0.01, 1000, 13.2082593, 1.0):.4g}"
        '1e-05'
    """
    return binomial_law(rate, steps).delta(noise_multiplier, epsilon, amplitude)


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


def sample_energies(
    gram: Matrix,
    draw: Callable[[np.random.Generator, int], NDArray[np.bool_]],
    paths: int,
    generator: np.random.Generator,
) -> EnergySample:
    """Energies of any mechanism under any sampling that does not depend on the data.

    Args:
        gram: CᵀC; absolute values are taken, as negative entries need [MultiEpoch23].
        draw: Called with (generator, rows): that many independent participation vectors, rows × T.
        paths: Number of draws.
        generator: Of the draws.
    """
    _check_steps(paths)
    X = np.abs(gram)
    energies = []
    for start in range(0, paths, 4096):
        y = np.asarray(draw(generator, min(4096, paths - start)), dtype=np.float64)
        energies.append(np.einsum("it,it->i", y @ X, y))
    return EnergySample(np.concatenate(energies))


def _inflection(epsilon: float) -> float:
    """Where the Gaussian profile as a function of x = μ² turns from convex to concave.

    Its derivative φ(ε/μ - μ/2)/(2μ) rises up to x = 2(sqrt(1 + ε²) - 1) and falls from there on.
    """
    return 2 * epsilon**2 / (1 + math.sqrt(1 + epsilon**2))


def _tangents(squares: Series, epsilon: float, mean: float) -> NDArray[np.float64]:
    """Tangents of the profile in x = μ² at points beyond its inflection, one of them at the mean.

    Each lies above the profile where that is concave, and its maximum with the profile is convex.
    """
    inflection = _inflection(epsilon)
    x = np.append(inflection * _INCREASE, max(mean, inflection))[:, None]
    mu = np.sqrt(x)
    slope = norm.pdf(epsilon / mu - mu / 2) / (2 * mu)
    return gaussian_delta(mu, epsilon) + slope * (squares - x)


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


def _chernoff(mean: float, draws: int, failure_probability: float) -> float:
    """Largest q >= mean with draws · KL(mean, q) <= log(1/failure)."""
    allowed = -math.log(failure_probability) / draws

    def too_far(q: float) -> bool:
        kept = mean * math.log(mean / q) if mean > 0 else 0.0
        rest = (1 - mean) * math.log((1 - mean) / (1 - q)) if mean < 1 else 0.0
        return kept + rest > allowed

    low, high = mean, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if middle >= 1 or too_far(middle):
            high = middle
        else:
            low = middle
    return high


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest x in [low, high] for which a monotone claim holds, rounded up; infinite if none."""
    if holds(low):
        return low
    if not holds(high):
        return math.inf
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _check_positive(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise PlanError(f"{what} must be positive and finite; got {value}.")


def _check_probability(what: str, value: float) -> None:
    if not 0 < value <= 1:
        raise PlanError(f"{what} must be in (0, 1]; got {value}.")


def _check_steps(steps: int) -> None:
    if not (isinstance(steps, int | np.integer) and steps >= 1):
        raise PlanError(f"steps and draws are whole numbers of at least 1; got {steps!r}.")
