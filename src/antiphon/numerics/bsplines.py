"""Uniform B-splines as numbers: a grid of intervals, and the polynomials that meet on each of them.

With h the spacing and t = (x − left end)/h in [0, 1] the place of x within interval q, exactly the
degree + 1 functions b_q, ..., b_{q+degree} differ from zero there, and b_{q+j}(x) = Σ_e P[j, e] tᵉ with one
table P for all intervals. The knots continue evenly beyond both ends, so that there are
intervals + degree functions, which are non-negative and sum to 1 on the domain.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.numerics.arrays import Series

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pieces = NDArray[np.float64]
else:
    from jaxtyping import Float64

    Pieces = Float64[np.ndarray, "functions powers"]

__all__ = ["UniformSplines", "spline_pieces"]

_HIGHEST = 5  # of the degrees: tests compare all of them with de Boor's recursion


@dataclass(frozen=True)
class UniformSplines:
    """All B-splines of one degree on equal intervals of [low, high].

    Attributes:
        intervals: Number of equal intervals, at least 1.
        degree: Of the polynomials, 1 to 5; 3 is cubic, with two continuous derivatives.
        low: Left end of the domain.
        high: Right end of the domain.

    Example:
        >>> splines = UniformSplines(intervals=5)
        >>> splines.size, splines.knots[[0, 3, -4, -1]].round(6).tolist()
        (8, [-2.2, -1.0, 1.0, 2.2])
    """

    intervals: int = 5
    degree: int = 3
    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        whole("intervals", self.intervals)
        _checked_degree(self.degree)
        ends = (self.low, self.high)
        if not (all(map(math.isfinite, ends)) and self.low < self.high):
            raise PlanError(f"the domain needs finite ends with low < high; got {ends}.")

    @property
    def size(self) -> int:
        """Number of basis functions, p = intervals + degree."""
        return self.intervals + self.degree

    @property
    def spacing(self) -> float:
        """Length of one interval, h."""
        return (self.high - self.low) / self.intervals

    @property
    def knots(self) -> Series:
        """All knots, ``degree`` of them beyond each end of the domain."""
        steps = np.arange(-self.degree, self.size + 1, dtype=np.float64)
        return self.low + self.spacing * steps

    def identity(self) -> Series:
        """Coefficients of the spline that is x itself on the domain (the means of inner knots).

        Example:
            >>> UniformSplines(intervals=2).identity().tolist()
            [-2.0, -1.0, 0.0, 1.0, 2.0]
        """
        places = np.arange(self.size, dtype=np.float64) - (self.degree - 1) / 2
        return self.low + self.spacing * places


@lru_cache(maxsize=64)
def spline_pieces(degree: int, order: int = 0) -> Pieces:
    """The table P of an interval's polynomials, or of their derivatives by t: [function, power of t].

    Guarantee:
        Whole numbers are added and divided once, so that each entry is correctly rounded. From the
        cardinal spline Σ_i (−1)ⁱ C(degree + 1, i) (u − i)₊^degree / degree! at u = t + degree − j.

    Example:
        >>> (6 * spline_pieces(3)).round(12).tolist()
        [[1.0, -3.0, 3.0, -1.0], [4.0, 0.0, -6.0, 3.0], [1.0, 3.0, 3.0, -3.0], [0.0, 0.0, 0.0, 1.0]]
    """
    n = _checked_degree(degree)
    powers = range(order, n + 1)
    table = [[_coefficient(n, j, e) * math.perm(e, order) for e in powers] for j in range(n + 1)]
    pieces = np.array(table, np.float64).reshape(n + 1, -1) / math.factorial(n)
    found = pieces if powers else np.zeros((n + 1, 1))
    found.setflags(write=False)  # the table is shared by all callers
    return found


def _coefficient(n: int, j: int, e: int) -> int:
    """Coefficient of tᵉ in the j-th polynomial, times n!."""
    shifts = range(n - j + 1)
    total = sum((-1) ** i * math.comb(n + 1, i) * (n - j - i) ** (n - e) for i in shifts)
    return math.comb(n, e) * total


def _checked_degree(degree: int) -> int:
    if whole("degree", degree) > _HIGHEST:
        raise PlanError(f"degree must be at most {_HIGHEST}; got {degree}.")
    return int(degree)
