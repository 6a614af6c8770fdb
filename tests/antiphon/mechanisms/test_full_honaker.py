import numpy as np
import pytest
from oracles.trees import tree

from antiphon.mechanisms import FullHonaker
from antiphon.participation import Once


@pytest.mark.parametrize("T", [1, 2, 3, 7, 8, 16])
def test_gram_matrix_and_noise_are_those_of_the_tree_with_its_pseudoinverse(T):
    C, A = tree(T), np.tril(np.ones((T, T)))
    square = FullHonaker().encoder(T)
    np.testing.assert_allclose(square.T @ square, C.T @ C, atol=1e-12)
    best, runs = A @ np.linalg.pinv(C), A @ FullHonaker().decoder(T)
    np.testing.assert_allclose(runs @ runs.T, best @ best.T, atol=1e-11)


def test_sensitivity_is_exact():
    found = FullHonaker().sensitivity(16, Once())
    assert found.is_exact
    assert found == pytest.approx(np.sqrt(5))
