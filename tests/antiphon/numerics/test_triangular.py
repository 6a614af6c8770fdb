from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from antiphon.errors import PlanError
from antiphon.numerics import lower_root, signs_agree

squares = st.integers(1, 6).flatmap(lambda n: arrays(float, (n, n), elements=st.floats(-1, 1)))
signs = st.integers(1, 6).flatmap(
    lambda n: arrays(float, (n, n), elements=st.sampled_from([-1.0, 0.0, 0.0, 1.0]))
)


@given(squares)
def test_lower_root_is_the_triangular_matrix_with_that_gram_matrix(M):
    X = M.T @ M + np.eye(len(M))
    C = lower_root(X)
    np.testing.assert_allclose(C.T @ C, X, atol=1e-12)
    assert not np.triu(C, 1).any()
    assert (np.diagonal(C) > 0).all()


@given(squares)
def test_lower_root_gives_a_triangular_matrix_back(M):
    C = np.tril(M, -1) + np.diag(1 + np.abs(np.diagonal(M)))
    np.testing.assert_allclose(lower_root(C.T @ C), C, atol=1e-9)


def test_lower_root_refuses_a_singular_matrix():
    with pytest.raises(PlanError, match="not positive definite"):
        lower_root(np.zeros((2, 2)))


def try_all_signs(X):
    choices = product((1.0, -1.0), repeat=len(X))
    return any((np.outer(s, s) * X >= 0).all() for s in choices)


@given(signs)
def test_signs_agree_exactly_if_some_choice_of_signs_makes_the_matrix_non_negative(M):
    X = np.triu(M) + np.triu(M, 1).T
    np.fill_diagonal(X, 1.0)
    assert signs_agree(X) == try_all_signs(X)


@given(squares)
def test_signs_of_two_rows_always_agree(M):
    C = M[:, :2]
    assert signs_agree(C.T @ C)
