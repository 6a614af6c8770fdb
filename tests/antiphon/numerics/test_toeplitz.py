import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.series import energy, with_zeros

from antiphon.errors import UnsupportedError
from antiphon.numerics import all_pole_energy, gram, invert, lower, multiply

numbers = st.floats(-1, 1, width=16)
columns = st.lists(numbers, max_size=8).map(lambda tail: np.array([1.0, *tail]))
inside = st.floats(-0.9, 0.9)


@given(columns)
def test_lower_has_the_column_below_every_diagonal_entry(column):
    T = len(column)
    entries = [[column[i - j] if i >= j else 0.0 for j in range(T)] for i in range(T)]
    np.testing.assert_array_equal(lower(column), entries)


@given(columns, columns)
def test_multiply_is_the_dense_product(a, b):
    T = min(len(a), len(b))
    dense = lower(a[:T]) @ lower(b[:T])
    np.testing.assert_allclose(multiply(a[:T], b[:T]), dense[:, 0], atol=1e-12)


def test_multiply_is_the_same_with_and_without_the_fast_transform():
    a, b = np.random.default_rng(0).normal(size=(2, 700))
    np.testing.assert_allclose(multiply(a, b), np.convolve(a, b)[:700], atol=1e-11)


@given(columns, st.integers(1, 12))
def test_invert_is_the_dense_inverse_whatever_the_length_of_the_column(column, T):
    padded = np.pad(column, (0, T))[:T]
    np.testing.assert_allclose(
        lower(invert(column, T)) @ lower(padded), np.eye(T), atol=1e-9 * 2.0**T
    )


def test_invert_returns_the_growth_of_a_series_that_is_not_minimum_phase():
    np.testing.assert_array_equal(invert(np.array([1.0, -2.0]), 5), [1, 2, 4, 8, 16])
    assert not np.isfinite(invert(np.array([1.0, -2.0]), 2000)).all()


@given(columns)
def test_gram_is_the_dense_product(column):
    C = lower(column)
    np.testing.assert_allclose(gram(column), C.T @ C, atol=1e-12)


def test_gram_refuses_what_does_not_fit_into_memory():
    with pytest.raises(UnsupportedError, match="dense 20001 x 20001 matrix"):
        gram(np.ones(20_001))


@given(st.lists(inside, max_size=3), st.floats(0.5, 2))
def test_all_pole_energy_is_the_long_sum(inverses, scale):
    beta = [scale * b for b in with_zeros(*inverses)]
    expected = energy(beta, 400)
    assert all_pole_energy(np.array(beta)) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.floats(-1.5, 1.5).filter(lambda r: abs(abs(r) - 1) > 1e-3), max_size=4))
def test_all_pole_energy_is_finite_exactly_if_no_zero_is_in_the_closed_disk(inverses):
    found = all_pole_energy(np.array(with_zeros(*inverses)))
    assert (found is None) == any(abs(r) > 1 for r in inverses)


@pytest.mark.parametrize("beta", [(1, -1), (1, 0, 1), (1, -2, 1), (2, -1, -1), (1, -2), (1, -4, 4)])
def test_all_pole_energy_is_none_for_zeros_on_or_in_the_unit_circle(beta):
    assert all_pole_energy(np.array(beta, dtype=float)) is None


def test_all_pole_energy_ignores_trailing_zeros():
    assert all_pole_energy(np.array([2.0, 0.0, 0.0])) == 0.25


@pytest.mark.parametrize(
    "inverses", [(0.99,) * 4, (0.99,) * 6, (0.98,) * 5, (0.99, 0.99, 0.99, 1 - 1e-7)]
)
def test_all_pole_energy_keeps_its_digits_for_zeros_close_to_the_circle(inverses):
    # An energy that is too small is a sensitivity that is too small.
    beta = with_zeros(*inverses)
    found, partial = all_pole_energy(np.array(beta)), energy(beta, 6000)
    assert found is None or found >= partial * (1 - 1e-9)
