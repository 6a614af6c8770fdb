from itertools import pairwise

import numpy as np
import pytest

from antiphon.errors import PlanError
from antiphon.numerics import fit_inverse_square_root


def errors(T, terms):
    scales, decays = fit_inverse_square_root(T, terms)
    t = np.arange(1, T)
    c = np.cumprod((t - 0.5) / t)
    return np.abs((scales * decays ** (t - 1)[:, None]).sum(1) / c - 1)


@pytest.mark.parametrize("terms", [1, 3, 5, 8])
@pytest.mark.parametrize("T", [1, 7, 12, 60, 100])
def test_scales_are_positive_and_decays_lie_within_0_and_1(T, terms):
    scales, decays = fit_inverse_square_root(T, terms)
    assert len(scales) == len(decays) == terms
    assert (scales > 0).all()
    assert scales.sum() <= 1
    assert ((decays > 0) & (decays < 1)).all()


@pytest.mark.parametrize("terms", [1, 2, 4])
def test_few_steps_are_fitted_exactly(terms):
    assert errors(2 * terms, terms).max() < 1e-13


def test_more_exponentials_fit_better():
    largest = [errors(60, terms).max() for terms in range(1, 6)]
    assert all(b < 0.2 * a for a, b in pairwise(largest))


@pytest.mark.parametrize(("T", "terms"), [(500, 3), (2000, 4)])
def test_no_sum_of_as_many_exponentials_has_a_much_smaller_largest_error(T, terms):
    # With 2m parameters the best largest error is at least the smallest of 2m + 1 extrema that
    # alternate in sign (de la Vallée Poussin).
    scales, decays = fit_inverse_square_root(T, terms)
    t = np.arange(1, T)
    error = (scales * decays ** (t - 1)[:, None]).sum(1) / np.cumprod((t - 0.5) / t) - 1
    turns = np.flatnonzero(np.diff(np.sign(np.diff(error)))) + 1
    extrema = error[[0, *turns, -1]]
    assert len(extrema) == 2 * terms + 1
    assert (extrema[1:] * extrema[:-1] < 0).all()
    assert np.abs(extrema).max() < 1.6 * np.abs(extrema).min()


def test_a_sum_needs_a_term():
    with pytest.raises(PlanError, match="at least one term"):
        fit_inverse_square_root(10, 0)


def test_a_search_that_runs_astray_starts_again():
    assert errors(60, 8).max() < 1e-4  # the first start loses all but one term
