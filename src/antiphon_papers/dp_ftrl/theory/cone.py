"""The second-order cone program of the strongly convex bound, by Clarabel through CVXPY, with a proved gap.

For frequencies ω_i with weights w_i, and a multiplier with u, v linear in its weights λ: minimise Σ w_i y_i
over λ and y >= 0, subject to X_i (y_i + 2u_i) >= |Q_i|² and X_i > 0. As it stands y is a small difference
of large numbers, which a solver loses. Measured against the quadratic of curvature m = (1 + μ)/2, whose
response is h = 1/|ζ - m|² with ζ = (1 - e^iω)/η, the same inequality is, with E = 1 + u(1 - μ)²/2,

    y = h (E + W),    X W >= |R|²,    R = E - i(1 - μ)v(ζ - m).

This is what is solved, scaled: λ in units of c/(1 - μ), where c is the smallest constant with X >= 0 (½κ
unless η is near 2); X, about 1 + κ(1 - cos ω)/η², and R in units of their size there; and W inversely to X.
"""

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from antiphon.errors import UnsupportedError
from antiphon.numerics import Rows, Series
from antiphon_papers.dp_ftrl.theory.multipliers import Descent, Multiplier

if TYPE_CHECKING:
    import cvxpy as cp

__all__ = ["ConeSolution", "cone_rows", "solve_cone"]

_GAP = 1e-5
_TOLERANCE = 1e-10


@final
@dataclass(frozen=True)
class ConeSolution:
    """A multiplier, and how good it is on the frequencies it was sought on.

    Attributes:
        multiplier: The multiplier found.
        value: Σ w_i y_i of it.
        gap: A bound on how far the value is from the smallest possible on these frequencies.
        steps: Iterations of the solver.
    """

    multiplier: Multiplier
    value: float
    gap: float
    steps: int


def cone_rows(
    descent: Descent, u: Series, v: Series, frequencies: Series
) -> tuple[Series, Series, Series]:
    """X, Re Q and Im Q of the linear matrix inequality, all divided by η² [CorrelatedNoise24, eq. 93]."""
    eta, mu = descent.learning_rate, descent.mu
    sine, chord = np.sin(frequencies), 2 * np.sin(frequencies / 2) ** 2
    X = -1 + 2 * u * descent.curvature(chord) + 2 * (1 - mu) / eta * v * sine
    real = u * ((1 + mu) - 2 * chord / eta)
    return X, real, -(1 - mu) * v - 2 / eta * u * sine


def solve_cone(
    descent: Descent, frequencies: Series, weights: Series, lags: tuple[int, ...]
) -> ConeSolution:
    """The multiplier with the smallest Σ w_i y_i, to a relative gap of 1e-5.

    Args:
        descent: Learning rate and curvature.
        frequencies: In (0, π).
        weights: Positive, one for each frequency.
        lags: The lags at which the multiplier may have weights.

    Guarantee:
        The solver is not trusted. What it found is projected to a valid multiplier, whose y and value are
        computed again. The gap is that to the dual objective, after the solver's dual variables have been
        made feasible: it is proved, up to rounding. Refused where X is not positive, or the gap is larger.

    Example:
        >>> found = solve_cone(Descent(1.0, 0.1), np.array([0.1, 1.0]), np.array([0.5, 0.5]), (1,))
        >>> round(found.value, 3), found.gap < 1e-5 * found.value
        (37.42, True)
    """
    program = _Program(descent, frequencies, weights, lags)
    found = program.search()
    multiplier = _projected(found, lags)
    value = program.value(multiplier)
    gap = value - program.lower_bound(found.dual)
    if not gap <= _GAP * value:
        raise _unsettled(f"it may be {gap / value:.1e} from the best, more than {_GAP:.0e}")
    return ConeSolution(multiplier, value, max(gap, 0.0), found.steps)


class _Found(NamedTuple):
    """Weights as the solver left them, and its dual variables of X, Re R and Im R."""

    constant: float
    forward: Series
    backward: Series
    dual: tuple[Series, Series, Series]
    steps: int


def _projected(found: _Found, lags: tuple[int, ...]) -> Multiplier:
    """Negative weights become 0, and λ_0 at least their sum: a larger λ_0 only raises X."""
    forward, backward = (np.maximum(w, 0.0).tolist() for w in (found.forward, found.backward))
    constant = max(found.constant, math.fsum((*forward, *backward)))
    return Multiplier(constant, tuple(lags), tuple(forward), tuple(backward))


def _unsettled(reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"the search for a multiplier did not settle: {reason}. Take fewer lags, or a larger learning "
        "rate or strong convexity."
    )


@dataclass(frozen=True)
class _Program:
    """The program in sums λ_t + λ_-t and differences λ_t - λ_-t, with λ_0 as the sum of lag 0."""

    descent: Descent
    frequencies: Series
    weights: Series
    lags: tuple[int, ...]

    @cached_property
    def parts(self) -> tuple[Rows, Rows]:
        """U and V with u = U @ sums and v = V @ differences."""
        t = np.outer(self.frequencies, (0, *self.lags))
        U, V = -np.cos(t), -np.sin(t)
        U[:, 0] = 1.0
        return U, V

    @cached_property
    def rows(self) -> tuple[tuple[Series, Series, Series], tuple[Series, Series, Series]]:
        """What one unit of u, and what one of v, adds to X, Re R and Im R."""
        one, zero = np.ones_like(self.frequencies), np.zeros_like(self.frequencies)
        X_u, _, _ = cone_rows(self.descent, one, zero, self.frequencies)
        X_v, _, _ = cone_rows(self.descent, zero, one, self.frequencies)
        real, imag = self._distance
        spread = 1 - self.descent.mu
        return (X_u + 1, spread**2 / 2 * one, zero), (X_v + 1, spread * imag, -spread * real)

    @cached_property
    def _distance(self) -> tuple[Series, Series]:
        """Real and imaginary part of ζ - m."""
        eta = self.descent.learning_rate
        chord = 2 * np.sin(self.frequencies / 2) ** 2
        return chord / eta - (1 + self.descent.mu) / 2, -np.sin(self.frequencies) / eta

    @cached_property
    def needed(self) -> Series:
        """Weight times h: what the quadratic of curvature m needs at each frequency."""
        real, imag = self._distance
        return self.weights / (real**2 + imag**2)

    @cached_property
    def units(self) -> tuple[float, Series, Series]:
        """Of λ, and of X and R at each frequency: their sizes at twice that, with v as large as u."""
        least = 1 / (2 * float(self.descent.curvature(np.array([0.0, 2.0])).min()))
        unit = least / (1 - self.descent.mu)
        (X, E, _), (_, real, imag) = self.rows
        size = np.sqrt((1 + 2 * unit * E) ** 2 + (2 * unit) ** 2 * (real**2 + imag**2))
        return unit, 2 * unit * X - 1, size

    def search(self) -> _Found:
        """What Clarabel finds, be it only nearly solved: the gap will tell."""
        import cvxpy as cp  # takes a second

        (U, V), (unit, of_X, of_R), ((_, E, _), _) = self.parts, self.units, self.rows
        sums, differences = cp.Variable(U.shape[1]), cp.Variable(V.shape[1])
        # u and v are variables, too: twice as fast as dense expressions in every cone.
        u, v, W = (cp.Variable(len(U)) for _ in range(3))
        cone = self._cone(u, v, W)
        constraints = [u == U @ sums, v == V @ differences, cone]
        constraints += [differences <= sums, -differences <= sums, cp.sum(sums[1:]) <= sums[0]]
        needed = self.needed / self.needed.sum()
        cost = (needed * of_R**2 / of_X) @ W + (needed * unit * E) @ u
        steps = _solve(cp.Problem(cp.Minimize(cost), constraints))
        both, apart = unit * sums.value, unit * differences.value
        forward, backward = (both + apart)[1:] / 2, (both - apart)[1:] / 2
        return _Found(float(both[0]), forward, backward, self._dual(cone), steps)

    def _cone(self, u: "cp.Variable", v: "cp.Variable", W: "cp.Variable") -> "cp.SOC":
        """X W >= |R|² at each frequency, all in their units."""
        import cvxpy as cp

        unit, of_X, of_R = self.units
        X, real, imag = (
            cp.multiply(unit * by_u / size, u) + cp.multiply(unit * by_v / size, v)
            for by_u, by_v, size in zip(*self.rows, (of_X, of_R, of_R), strict=True)
        )
        X, real = X - 1 / of_X, real + 1 / of_R
        return cp.SOC(X + W, cp.vstack([2 * real, 2 * imag, X - W]), axis=0)

    def _dual(self, cone: "cp.SOC") -> tuple[Series, Series, Series]:
        """Dual variables of X, Re R and Im R, no longer scaled."""
        top, (real, imag, difference) = cone.dual_value
        (_, of_X, of_R), total = self.units, self.needed.sum()
        return total * (top + difference) / of_X, 2 * total * real / of_R, 2 * total * imag / of_R

    def value(self, multiplier: Multiplier) -> float:
        """Σ w_i y_i of a multiplier."""
        u, v = multiplier.parts(self.frequencies)
        X, real, imag = cone_rows(self.descent, u, v, self.frequencies)
        if not X.min() > 0:
            raise _unsettled("X is not positive at all frequencies")
        return float(self.weights @ np.maximum((real**2 + imag**2) / X - 2 * u, 0.0))

    def lower_bound(self, dual: tuple[Series, Series, Series]) -> float:
        """A lower bound on Σ w_i y_i of every multiplier with these lags: the dual objective.

        Args:
            dual: Any variables p, r, s of X, Re R and Im R; the better, the better the bound.

        Guarantee:
            Holds whatever the variables. With q = wh, each cone has pX + qW + r Re R + s Im R >= 0 if
            p >= 0 and r² + s² <= 4pq. Hence Σ w_i y_i >= Σ (q + p - r) + a linear function of the
            multiplier, which is not negative for any if it is not for a constant and for each single lag.
            For p = r = s = 0 it is positive there: p, r and s are shrunk until it is not negative.
        """
        p, q = np.maximum(dual[0], 0.0), self.needed
        size = np.maximum(np.hypot(dual[1], dual[2]), 1e-300)
        r, s = (part * np.minimum(1.0, 2 * np.sqrt(p * q) / size) for part in dual[1:])
        (U, V), (by_u, by_v) = self.parts, self.rows
        U = U + U[:, :1]  # λ_0 = λ_t = 1 for each lag t
        spent = (p * by_u[0] + r * by_u[1]) @ U
        spent += np.abs((p * by_v[0] + r * by_v[1] + s * by_v[2]) @ V)
        share = 1 / max(1.0, float((spent / ((q * by_u[1]) @ U)).max()))
        return float(q.sum() + share * (p - r).sum())


def _solve(problem: "cp.Problem") -> int:
    """Solve the problem, or refuse; the solver's iterations."""
    import cvxpy as cp

    precision = dict.fromkeys(("tol_feas", "tol_gap_abs", "tol_gap_rel"), _TOLERANCE)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        try:
            problem.solve(solver=cp.CLARABEL, warm_start=False, accept_unknown=True, **precision)
        except cp.SolverError as error:
            raise _unsettled("the solver failed") from error
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise _unsettled(f"the solver calls it {problem.status}")
    return int(problem.solver_stats.num_iters)
