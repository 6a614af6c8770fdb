"""Bounds on the splines and the activation of a two-layer KAN, and on its second layer.

h(v) are the p spline values of one number. With u = σ(a) the derivatives of tanh and of the sigmoid are
polynomials of u, so that every bound here is the largest value of a polynomial on each interval of the
grid: found from the roots of its derivative, and rounded up.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from antiphon.accounting import check_delta
from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.numerics import UniformSplines, spline_pieces

__all__ = ["KANConstants", "SecondLayer", "kan_constants"]

_Array = NDArray[np.float64]
_UP = 1 + 1e-12  # against rounding; roots enter with the square of their error only
# The range of σ, and the largest |σ|, |σ'| and |σ''|.
_ACTIVATIONS = {
    "tanh": ((-1.0, 1.0), (1.0, 1.0, 4 / (3 * math.sqrt(3)))),
    "sigmoid": ((0.0, 1.0), (1.0, 0.25, 1 / (6 * math.sqrt(3)))),
}


@final
@dataclass(frozen=True)
class KANConstants:
    """What Assumption 4.1 bounds, and the vector norms that replace √p times a coordinate's bound.

    Attributes:
        splines: The grid of the hidden values; all but ``slope`` and ``bend`` hold for the inputs' too.
        activation: σ, "tanh" or "sigmoid".
        coordinate: Bounds on one spline and its first two derivatives: the paper's B_b, B'_b, B''_b.
        vector: Bounds on ‖h‖, ‖h'‖ and ‖h''‖: H, H', H''.
        sigma: Bounds on |σ|, |σ'| and |σ''|.
        slope: K, the largest σ'‖h'(u)‖ over the range of σ.
        bend: W, the largest ‖σ'' h'(u) + σ'² h''(u)‖.
    """

    splines: UniformSplines
    activation: str
    coordinate: tuple[float, float, float]
    vector: tuple[float, float, float]
    sigma: tuple[float, float, float]
    slope: float
    bend: float

    @property
    def p(self) -> int:
        """Number of basis functions."""
        return self.splines.size


@lru_cache(maxsize=64)
def kan_constants(splines: UniformSplines | None = None, activation: str = "tanh") -> KANConstants:
    """The constants of a grid and an activation.

    Args:
        splines: The grid of the hidden values, of degree 3 at least (Assumption 4.1 asks for two bounded
            derivatives); None is five cubic intervals on [-1, 1], the reading of the paper's p = 8.
        activation: σ, "tanh" or "sigmoid"; its range must lie within the grid.

    Guarantee:
        Each number is the supremum, rounded up by at most 1e-12 relative (tests maximise on a grid).

    Example:
        >>> c = kan_constants()
        >>> [round(x, 8) for x in (*c.vector, c.slope, c.bend)]
        [0.70710678, 2.25346955, 15.30931089, 2.25346955, 14.12538141]
    """
    grid = UniformSplines() if splines is None else splines
    if activation not in _ACTIVATIONS:
        raise PlanError(f"activation must be one of {[*_ACTIVATIONS]}; got {activation!r}.")
    (low, high), sigma = _ACTIVATIONS[activation]
    if grid.degree < 3:
        raise PlanError(
            f"the theory needs two bounded derivatives: a degree of at least 3; got {grid.degree}."
        )
    if grid.low > low or grid.high < high:
        raise PlanError(
            f"the grid must cover the range [{low:g}, {high:g}] of {activation}; it ends at "
            f"{grid.low:g} and {grid.high:g}."
        )
    used, *ends = _reach(grid, activation)
    orders = [spline_pieces(grid.degree, k) / grid.spacing**k for k in range(3)]
    return KANConstants(
        grid,
        activation,
        _triple([_largest(pieces).max() for pieces in orders]),
        _triple([_largest_norm(pieces[None]).max() for pieces in orders]),
        sigma,
        float(_largest_norm(_slopes(grid, activation)[used], *ends).max() * _UP),
        float(_largest_norm(_bends(grid, activation)[used], *ends).max() * _UP),
    )


@final
@dataclass(frozen=True)
class SecondLayer:
    """What bounds and noise need to know of c, the second layer's coefficients.

    c(0) is drawn without a look at the data, and c(k) is a release that has been paid for: measuring
    either costs no privacy, if the very c that is measured is the one that the step uses.

    Attributes:
        norm: ‖c‖.
        largest: max_j ‖c_j‖ over the units j.
        slope_norm: ‖S(c)‖, where S(c)_j is the largest σ'(u) |c_j · h'(u)| over the range of σ.
        reserve: Probability that ``norm`` or ``slope_norm`` is exceeded; a private run pays it out of δ.
            0 if c was measured.
    """

    norm: float
    largest: float
    slope_norm: float
    reserve: float = 0.0

    @classmethod
    def measured(cls, coef: ArrayLike, constants: KANConstants | None = None) -> "SecondLayer":
        """The norms of c itself.

        Args:
            coef: c, one row of p coefficients per unit.
            constants: Of the grid and the activation; None is the default grid with tanh.

        Guarantee:
            ``slope_norm`` is exact, rounded up by at most 1e-12 relative.

        Example:
            >>> c = SecondLayer.measured([[1, 2, 3, 4, 5, 6, 7, 8]])  # c_j · h' is 2.5 everywhere
            >>> round(c.norm, 4), round(c.slope_norm, 9)
            (14.2829, 2.5)
        """
        known = kan_constants() if constants is None else constants
        c = np.asarray(coef, dtype=np.float64)
        if c.ndim != 2 or c.shape[1] != known.p or not len(c):
            raise PlanError(f"c needs shape (m, {known.p}); got {c.shape}.")
        norms = np.linalg.norm(c, axis=1)
        slopes = _unit_slopes(c, known.splines, known.activation)
        return cls(
            float(np.linalg.norm(norms)), float(norms.max()), float(np.linalg.norm(slopes)) * _UP
        )

    @classmethod
    def a_priori(cls, m: int, delta: float, constants: KANConstants | None = None) -> "SecondLayer":
        """What holds before c(0) ~ N(0, I) is drawn [KANGradientDescent26, Cor. A.2, eq. 7].

        Args:
            m: Width.
            delta: Probability that ``norm`` or ``largest`` is exceeded, half of it for each.
            constants: Of the grid and the activation.

        Guarantee:
            The paper's constants: about 4.4 times what is drawn. ``reserve`` is δ/2, since privacy
            depends on ``norm`` alone.

        Example:
            >>> round(SecondLayer.a_priori(32, 5e-5).norm, 4)
            70.5105
        """
        check_delta(delta)
        known = kan_constants() if constants is None else constants
        p = known.p
        norm = 4 * math.sqrt(p * whole("m", m)) + 2 * math.sqrt(math.log(2 / delta))
        largest = 4 * math.sqrt(p) + 2 * math.sqrt(math.log(2 * m / delta))
        return cls(norm, largest, known.slope * norm, delta / 2)


def _triple(values: list[Any]) -> tuple[float, float, float]:
    first, second, third = (float(v) * _UP for v in values)
    return first, second, third


def _largest(polynomials: _Array, low: Any = 0.0, high: Any = 1.0) -> _Array:
    """Largest |q(t)| for t in [low, high], for each q along the last axis (powers of t)."""
    slopes = polynomials[..., 1:] * np.arange(1, polynomials.shape[-1])
    lows, highs = (np.broadcast_to(end, polynomials.shape[:-1])[..., None] for end in (low, high))
    places = np.concatenate([lows, highs, np.clip(_roots(slopes), lows, highs)], axis=-1)
    values = np.zeros(places.shape)
    for coefficient in np.moveaxis(polynomials, -1, 0)[::-1]:
        values = values * places + coefficient[..., None]
    return np.asarray(np.abs(values).max(-1))


def _roots(polynomials: _Array) -> _Array:
    """Real parts of all roots. A leading coefficient below 1e-8 of the largest is lifted to that.

    A root then moves by about 1e-8, which changes the value at an extremum by the square of it.
    """
    order = polynomials.shape[-1] - 1
    if order < 1:
        return np.zeros((*polynomials.shape[:-1], 0))
    scale = np.abs(polynomials).max(-1)
    floor = np.where(scale > 0, 1e-8 * scale, 1.0)
    lead = polynomials[..., -1]
    lead = np.where(np.abs(lead) < floor, floor, lead)
    companion = np.zeros((*polynomials.shape[:-1], order, order))
    companion[..., range(1, order), range(order - 1)] = 1.0
    companion[..., :, -1] = -polynomials[..., :-1] / lead[..., None]
    return np.asarray(np.linalg.eigvals(companion).real)


def _largest_norm(vectors: _Array, low: Any = 0.0, high: Any = 1.0) -> _Array:
    """Largest norm on each interval, of vectors of polynomials: [interval, function, power]."""
    squares = [[sum((q**2 for q in map(Polynomial, row)), Polynomial([0.0]))] for row in vectors]
    return np.asarray(np.sqrt(_largest(_table(squares)[:, 0], low, high)))


def _table(rows: list[list[Polynomial]]) -> _Array:
    """All coefficients in one array; products may have lost leading zeros."""
    width = max(len(q.coef) for row in rows for q in row)
    return np.array([[np.pad(q.coef, (0, width - len(q.coef))) for q in row] for row in rows])


def _reach(grid: UniformSplines, activation: str) -> tuple[NDArray[np.intp], _Array, _Array]:
    """The intervals that values of σ reach, and the part of each as places in [0, 1]."""
    low, high = _ACTIVATIONS[activation][0]
    starts = grid.low + grid.spacing * np.arange(grid.intervals)
    lows, highs = (np.clip((end - starts) / grid.spacing, 0, 1) for end in (low, high))
    used = np.flatnonzero(lows < highs)
    return used, lows[used], highs[used]


def _derivatives(activation: str, u: Polynomial) -> tuple[Polynomial, Polynomial]:
    """σ' and σ'' as functions of u = σ(a)."""
    if activation == "tanh":
        return 1 - u**2, -2 * u * (1 - u**2)
    return u - u**2, (1 - 2 * u) * (u - u**2)


@lru_cache(maxsize=64)
def _slopes(grid: UniformSplines, activation: str) -> _Array:
    """σ' h' as polynomials: [interval, function, power of t]."""
    first = spline_pieces(grid.degree, 1) / grid.spacing
    slopes = [_derivatives(activation, u)[0] for u in _outputs(grid)]
    return _table([[slope * Polynomial(q) for q in first] for slope in slopes])


def _bends(grid: UniformSplines, activation: str) -> _Array:
    """σ'' h' + σ'² h'' as polynomials: [interval, function, power of t]."""
    first, second = (spline_pieces(grid.degree, k) / grid.spacing**k for k in (1, 2))
    pairs = list(zip(map(Polynomial, first), map(Polynomial, second), strict=True))
    parts = [_derivatives(activation, u) for u in _outputs(grid)]
    return _table([[bend * q + slope**2 * r for q, r in pairs] for slope, bend in parts])


def _outputs(grid: UniformSplines) -> list[Polynomial]:
    """The output u as a function of the place t in each interval."""
    starts = grid.low + grid.spacing * np.arange(grid.intervals)
    return [Polynomial([start, grid.spacing]) for start in starts]


def _unit_slopes(coef: _Array, grid: UniformSplines, activation: str) -> _Array:
    """S(c): for each unit the largest σ'(u) |c_j · h'(u)| over the range of σ."""
    used, *ends = _reach(grid, activation)
    local = np.lib.stride_tricks.sliding_window_view(coef, grid.degree + 1, axis=1)
    polynomials = np.einsum("jqk,qke->jqe", local, _slopes(grid, activation))[:, used]
    return np.asarray(_largest(polynomials, *ends).max(-1))
