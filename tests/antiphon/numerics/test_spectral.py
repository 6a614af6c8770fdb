import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.series import with_zeros

from antiphon.errors import PlanError
from antiphon.numerics import minimum_phase


def power(series, N=2048):
    return np.abs(np.fft.fft(series, N)) ** 2


@given(st.lists(st.floats(-0.9, 0.9), max_size=4), st.floats(0.1, 10))
def test_minimum_phase_gives_back_a_series_without_zeros_in_the_disk(inverses, scale):
    series = np.array(with_zeros(*inverses))
    found = minimum_phase(power(scale * series), len(series))
    np.testing.assert_allclose(found, series, atol=1e-10)


def test_minimum_phase_moves_a_zero_out_of_the_disk():
    # |1 - 2z| = |z - 2| on the circle: 1 - z/2 has that spectrum, up to scale, and 1 - 2z is not it.
    np.testing.assert_allclose(minimum_phase(power([1.0, -2.0]), 3), [1, -0.5, 0], atol=1e-12)


@pytest.mark.parametrize(("N", "terms"), [(7, 2), (8, 0), (8, 5)])
def test_minimum_phase_needs_an_even_number_of_samples_and_at_most_half_as_many_terms(N, terms):
    with pytest.raises(PlanError, match="even number N of samples"):
        minimum_phase(np.ones(N), terms)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_power_spectrum_must_be_positive_and_finite(bad):
    with pytest.raises(PlanError, match="positive and finite"):
        minimum_phase(np.array([1.0, bad, 1.0, 1.0]), 1)
