"""The likelihood ratio of λ-CGD noise under Poisson sampling, bounded at every path by a filter.

The pair [KANCorrelated26, Thm. F.8, for Poisson sampling] is Q = N(0, κ²I) and P, the law of
x_t = s_t + κ z_t with s_t = λ s_{t−1} + y_t and y_t ~ Bernoulli(r) independent, t = 1, ..., T.

**The filter.** Let V_t(s) be the likelihood ratio of x_{t+1}, ..., x_T given s_t = s. Completing
squares, V_t(s) = exp(λ a_{t+1} s − λ² b_{t+1} s²/2) G_t(s), where a_t = x_t/κ² + λ a_{t+1},
b_t = 1/κ² + λ² b_{t+1} (both 0 after T), G_T = 1 and

    G_{t−1}(s) = (1 − r) G_t(λs) + r exp(a_t − b_t/2) exp(−λ b_t s) G_t(λs + 1),     L(x) = G_0(0).

The data enter by one factor per step, and G_t is as smooth as a function can be: a mixture
of exponentials exp(−sD) with positive weights and 0 <= D <= D*, the D of a record in every batch.

**Bounds instead of rounding.** The filter keeps G_t at nodes 0 = s_0 < ... < s_K = 1/(1−λ) and replaces
G(u), between neighbours p and q, by (1−θ)G(p) + θG(q). With D' chosen so that this is exact for D = 0 and
D', θ = (1 − e^{−(u−p)D'})/(1 − e^{−(q−p)D'}), the difference to exp(−uD), times exp(uD), is convex in D
with zeros at 0 and D'. So it is an upper bound for all D >= 0 if D' → 0, where θ is linear and the
zero is double, and a lower bound for 0 <= D <= D' if D' = D*. Both steps are positive operators, so by
induction over t the filtered value bounds L(x) from above or from below, *for every x*. Paths are drawn
from the exact chain: no state is rounded, merged or dropped, and the error is of second order.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, no_type_check

import numpy as np
from numba import njit
from numpy.typing import NDArray

from antiphon.accounting.correlated.dominating_pair import Rounding
from antiphon.accounting.monte_carlo.confidence import Array
from antiphon.errors import PlanError, UnsupportedError

__all__ = ["LambdaChain", "check_range", "draw_states", "filtered", "log_ratio"]

_HUGE = 300.0  # log L from which on an upper bound is ∞: nothing smaller loses terms to underflow
_LANES = 64  # paths filtered side by side: enough for vector instructions, few enough for the cache


@dataclass(frozen=True)
class LambdaChain:
    """The hidden chain s_t = λ s_{t−1} + y_t and the nodes on which its likelihood is bounded.

    Attributes:
        lam: λ of the encoder C[t, u] = λ^(t−u), in [0, 1).
        rate: Sampling rate r, in (0, 1].
        steps: Number of noisy releases T, at least 1.
        rounding: Whether `log_ratio` bounds log dP/dQ from above ("up") or from below ("down").
        resolution: Nodes in (0, 1]; above 1 their spacing grows with s.
    """

    lam: float
    rate: float
    steps: int
    rounding: Rounding = "up"
    resolution: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.lam < 1:
            raise PlanError(f"λ must be in [0, 1), so that the chain is bounded; got {self.lam}.")
        if not 0 < self.rate <= 1:
            raise PlanError(f"the sampling rate must be in (0, 1]; got {self.rate}.")
        if self.steps < 1 or self.resolution < 1:
            raise PlanError(
                f"steps and resolution must be at least 1; got {self.steps}, {self.resolution}."
            )
        if self.rounding not in ("up", "down"):
            raise PlanError(f"rounding is 'up' or 'down'; got {self.rounding!r}.")

    def fastest_decay(self) -> float:
        """κ²D*: the sum over j <= T of λ^j (1 − λ^j)/(1−λ), which all participations would give."""
        powers = self.lam ** np.arange(1, self.steps + 1)
        return float(np.sum(powers * (1 - powers))) * self.top

    @property
    def quiet(self) -> float:
        """−log of the probability (1−r)^T of no participation."""
        return -self.steps * math.log1p(-self.rate) if self.rate < 1 else math.inf

    @property
    def top(self) -> float:
        """No state reaches 1/(1−λ)."""
        return 1 / (1 - self.lam)

    def nodes(self) -> Array:
        """0, ..., 1, ..., 1/(1−λ), fixed by λ and the resolution alone."""
        if self.lam == 0:
            return np.array([0.0, 1.0])  # G is constant
        nodes = list(np.arange(self.resolution + 1) / self.resolution)
        while nodes[-1] < self.top:
            nodes.append(min(self.top, nodes[-1] * (1 + 1 / self.resolution)))
        return np.array(nodes)


def log_ratio(chain: LambdaChain, noise_multiplier: float, x: Array) -> Array:
    """Bound on log dP/dQ at each row of ``x``, from above or below as ``chain.rounding`` says.

    Args:
        chain: λ, rate, steps and nodes.
        noise_multiplier: κ, positive.
        x: Paths, of shape (n, steps).

    Guarantee:
        The module's induction, with a margin for the rounding of floating-point numbers. Upper
        bounds above 300, where terms may underflow, are ∞.

    Example:
        >>> chain = LambdaChain(lam=0.5, rate=0.3, steps=3)
        >>> log_ratio(chain, 1.1, np.array([[0.5, -0.2, 1.0]])).round(4)  # -0.0124751808
        array([-0.0125])
    """
    x = np.asarray(x, np.float64)
    if x.ndim != 2 or x.shape[1] != chain.steps:
        raise PlanError(
            f"paths of {chain.steps} steps are an (n, {chain.steps}) array; got {x.shape}."
        )
    if not np.isfinite(x).all():
        raise PlanError("paths must be finite.")
    check_range(chain, noise_multiplier)
    return filtered(chain, noise_multiplier, np.ascontiguousarray(x.T))


def draw_states(chain: LambdaChain, rng: np.random.Generator, count: int) -> Array:
    """Exact states of the chain, of shape (steps, count)."""
    states = np.zeros((chain.steps, count))
    # A binomial number of distinct cells is the same as one coin for each cell.
    hits = rng.choice(
        states.size, rng.binomial(states.size, chain.rate), replace=False, shuffle=False
    )
    states.reshape(-1)[hits] = 1.0
    _decay(states, chain.lam)
    return states


class _Step(NamedTuple):
    """One step of the filter: G(λs) and exp(−λbs) G(λs + 1) by weights on pairs of nodes.

    The rows of ``jump`` belong to the last, second to last, ... step, until b stops changing.
    """

    below: NDArray[np.int64]
    stay: Array  # (2, nodes)
    below_jump: NDArray[np.int64]
    jump: Array  # (rows, 2, nodes)
    b: Array


@lru_cache(maxsize=32)
def _step(chain: LambdaChain, kappa: float) -> _Step:
    lam, nodes = chain.lam, chain.nodes()
    largest = chain.fastest_decay() / kappa**2 if chain.rounding == "down" else 0.0

    def weights(u: Array) -> tuple[NDArray[np.int64], Array]:
        below = np.clip(np.searchsorted(nodes, u, side="right") - 1, 0, len(nodes) - 2)
        gap = nodes[below + 1] - nodes[below]
        part = np.clip(u - nodes[below], 0, gap)
        tilt = largest if largest * gap.max() > 1e-9 else 0.0  # else the same but for rounding
        theta = np.expm1(-tilt * part) / np.expm1(-tilt * gap) if tilt else part / gap
        return below, np.stack([1 - theta, theta])

    below, stay = weights(lam * nodes)
    below_jump, jump = weights(np.minimum(lam * nodes + 1, chain.top))
    b = [1 / kappa**2]
    while len(b) < chain.steps and lam**2 * b[-1] + b[0] > b[-1]:
        b.append(lam**2 * b[-1] + b[0])
    decay = np.exp(-lam * np.outer(b, nodes))
    return _Step(below, stay, below_jump, jump * decay[:, None, :], np.array(b))


def filtered(chain: LambdaChain, kappa: float, x: Array) -> Array:
    """`log_ratio` of the columns of ``x``."""
    step = _step(chain, kappa)
    exponents = np.empty_like(x)
    _exponents(x, chain.lam, kappa, step.b, exponents)
    # L is at least its term with the one participation that fits x best.
    lone = exponents.max(axis=0) + math.log(chain.rate) - chain.quiet
    exponents[:, lone > _HUGE] = 0.0
    log_scale = np.maximum(exponents, 0.0).sum(axis=0)
    ratios = np.abs(exponents)
    np.exp(np.negative(ratios, out=ratios), out=ratios)
    scales = np.empty((chain.steps + 1, x.shape[1]))
    _filter(exponents, ratios, chain.rate, *step[:4], scales)
    log = np.log(scales, out=scales).sum(axis=0) + log_scale
    # Each step rounds some ten positive terms, and the exponent, below 2e4 as 1/(1−λ) <= 100κ, by
    # at most 5e-12/(1−λ).
    margin = 1e-11 * chain.steps * chain.top
    if chain.rounding == "down":
        return np.where(lone > _HUGE, lone, np.where(np.isnan(log), -np.inf, log)) - margin
    return np.where((lone <= _HUGE) & (log <= _HUGE), log + margin, np.inf)


# The import hook that checks types in tests must not wrap what Numba compiles: hence no_type_check.


@no_type_check
@njit(cache=True, nogil=True)
def _decay(states, lam):
    for t in range(1, states.shape[0]):
        for i in range(states.shape[1]):
            states[t, i] += lam * states[t - 1, i]


@no_type_check
@njit(cache=True, nogil=True)
def _exponents(x, lam, kappa, b, out):
    """out_t = a_t − b_t/2."""
    steps, count = x.shape
    a = np.zeros(count)
    scale = 1 / kappa**2
    for back in range(steps):
        t, half = steps - 1 - back, b[min(back, len(b) - 1)] / 2
        for i in range(count):
            a[i] = x[t, i] * scale + lam * a[i]
            out[t, i] = a[i] - half


@no_type_check
@njit(cache=True, nogil=True, error_model="numpy")
def _filter(exponents, ratios, rate, below, stay, below_jump, jump, scales):
    """Products of ``scales`` over steps are L × exp(−sum of the positive exponents).

    Each step divides by exp(max(exponent, 0)) and by G(0) before it, so that nothing overflows.
    """
    steps, count = exponents.shape
    size = len(below)
    now, new = np.empty((size, _LANES)), np.empty((size, _LANES))
    stays, jumps = np.empty(_LANES), np.empty(_LANES)
    for first in range(0, count, _LANES):
        lanes = min(_LANES, count - first)
        now[:] = 1.0
        for back in range(steps):
            t, row = steps - 1 - back, min(back, len(jump) - 1)
            for i in range(lanes):
                scale, ratio = now[0, i], ratios[t, first + i]
                grows = exponents[t, first + i] > 0
                scales[t, first + i] = scale
                stays[i] = (1 - rate) / scale * (ratio if grows else 1.0)
                jumps[i] = rate / scale * (1.0 if grows else ratio)
            for k in range(size):
                p, q = below[k], below_jump[k]
                w0, w1, v0, v1 = stay[0, k], stay[1, k], jump[row, 0, k], jump[row, 1, k]
                for i in range(lanes):
                    new[k, i] = stays[i] * (w0 * now[p, i] + w1 * now[p + 1, i]) + jumps[i] * (
                        v0 * now[q, i] + v1 * now[q + 1, i]
                    )
            now, new = new, now
        scales[steps, first : first + lanes] = now[0, :lanes]


def check_range(chain: LambdaChain, kappa: float) -> None:
    """Raise unless the filter can bound L in floating point at this noise multiplier."""
    if not 0 < kappa < math.inf:
        raise PlanError(f"the noise multiplier must be positive and finite; got {kappa}.")
    # No float underflows if G(s)/G(0) >= exp(−sD*) is above e^-600. If it is not, G_t(s) is lost
    # only where it is below e^-700 G_t(0); as G_t(s) >= (1−r)^(T−t) and L >= (1−r)^t G_t(0), then
    # log L > 700 − quiet, as filtered too, and that is above _HUGE. The exponent of a step, which
    # must not underflow either, is at most _HUGE + quiet − log r, or `lone` is above _HUGE.
    depth = chain.top * chain.fastest_decay() / kappa**2
    if chain.top > 100 * kappa or (depth > 600 and chain.quiet - math.log(chain.rate) > 300):
        raise UnsupportedError(
            f"a noise multiplier of {kappa} is too small for the filter in floating point at "
            f"λ = {chain.lam} and rate {chain.rate}: it hides nothing. Use more noise."
        )
