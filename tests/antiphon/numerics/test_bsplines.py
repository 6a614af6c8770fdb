"""The polynomials of uniform B-splines: exact tables, and grids that are checked."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.interpolate import BSpline

from antiphon.errors import PlanError
from antiphon.numerics import UniformSplines, spline_pieces


def de_boor(degree, j, t):
    """The j-th function on an interval, exactly, by the recursion on integer knots."""

    def b(i, k):
        if k == 0:
            return Fraction(i == degree)
        u = t + degree
        return ((u - i) * b(i, k - 1) + (i + k + 1 - u) * b(i + 1, k - 1)) / k

    return b(j, degree)


@pytest.mark.parametrize("degree", range(1, 6))
def test_pieces_are_those_of_the_recursion(degree):
    pieces = spline_pieces(degree)
    for t in (Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1)):
        for j in range(degree + 1):
            value = float(np.polynomial.Polynomial(pieces[j])(float(t)))
            assert value == pytest.approx(float(de_boor(degree, j, t)), abs=1e-15)


@pytest.mark.parametrize("degree", range(1, 6))
def test_pieces_of_derivatives_are_derivatives_of_pieces(degree):
    for order in range(degree + 1):
        for piece, found in zip(spline_pieces(degree), spline_pieces(degree, order), strict=True):
            expected = np.polynomial.Polynomial(piece).deriv(order).coef
            np.testing.assert_allclose(
                found, np.pad(expected, (0, len(found) - len(expected))), atol=1e-15
            )
    assert spline_pieces(degree, degree + 1).tolist() == [[0.0]] * (degree + 1)


def test_the_shared_table_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        spline_pieces(3)[0, 0] = 1.0


@pytest.mark.parametrize("splines", [UniformSplines(), UniformSplines(1, 5, 0.0, 3.0)])
def test_knots_carry_one_basis_that_sums_to_one(splines):
    knots = splines.knots
    assert len(knots) == splines.size + splines.degree + 1
    np.testing.assert_allclose(np.diff(knots), splines.spacing, rtol=1e-12)
    basis = BSpline(knots, np.eye(splines.size), splines.degree)
    np.testing.assert_allclose(basis(np.linspace(splines.low, splines.high, 11)).sum(1), 1.0)


def test_bad_grids_are_refused():
    for intervals in (0, -3, True):
        with pytest.raises(PlanError, match="intervals must be a whole number"):
            UniformSplines(intervals)
    with pytest.raises(PlanError, match="degree must be a whole number of at least 1; got 0"):
        UniformSplines(degree=0)
    with pytest.raises(PlanError, match="degree must be at most 5; got 6"):
        spline_pieces(6)
    for low, high in ((1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf)):
        with pytest.raises(PlanError, match="low < high; got"):
            UniformSplines(low=low, high=high)
