import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.accounting import gaussian_delta
from antiphon.audits import GaussianCurve, PointCurve, ProfileCurve

probabilities = st.floats(0.0, 1.0)


def gaussian_points(mu, count=400):
    grid = np.linspace(0.0, 12.0, count)
    return tuple(zip(grid.tolist(), gaussian_delta(mu, grid).tolist(), strict=True))


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@given(probability=probabilities)
def test_many_points_of_a_gaussian_come_near_its_curve_from_below(mu, probability):
    exact = GaussianCurve(mu).inverse(probability)
    near = ProfileCurve(gaussian_points(mu)).inverse(probability)
    assert near <= exact + 1e-12
    assert near >= exact - 1e-3


@given(st.floats(0, 5), st.floats(0, 0.5), probabilities)
def test_one_point_is_at_least_the_curve_of_that_point(epsilon, delta, probability):
    both = ProfileCurve(((epsilon, delta),)).inverse(probability)
    assert both >= PointCurve(epsilon, delta).inverse(probability) - 1e-12
    # By exchanging the laws and taking complements.
    assert both >= 1 - delta - np.exp(epsilon) * (1 - probability) - 1e-12


@given(
    st.lists(st.tuples(st.floats(0, 8), st.floats(0, 1)), min_size=1, max_size=5),
    probabilities,
    probabilities,
)
def test_a_curve_of_points_is_convex_and_grows_from_zero(points, first, second):
    curve = ProfileCurve(tuple(points))
    middle = curve.inverse((first + second) / 2)
    assert middle <= (curve.inverse(first) + curve.inverse(second)) / 2 + 1e-12
    assert curve.inverse(0.0) == 0.0
    assert curve.inverse(min(first, second)) <= curve.inverse(max(first, second))


def test_a_point_of_infinite_epsilon_says_what_its_delta_says():
    assert ProfileCurve(((np.inf, 0.1),)).inverse(0.5) == 0.0
