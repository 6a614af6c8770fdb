import numpy as np
import pytest
from oracles.sensitivity import brute_force
from oracles.trees import honaker_decoder, tree

from antiphon.mechanisms import Honaker
from antiphon.participation import MinSeparation, Once


@pytest.mark.parametrize("T", [1, 2, 3, 6, 8, 13, 16])
def test_prefix_sums_have_the_noise_of_the_recursive_estimates(T):
    A, D = np.tril(np.ones((T, T))), honaker_decoder(T)
    np.testing.assert_allclose(D @ tree(T), A, atol=1e-12)
    prefix = A @ Honaker().decoder(T)
    np.testing.assert_allclose(prefix @ prefix.T, D @ D.T, atol=1e-12)


def test_a_finished_node_of_height_i_has_the_published_variance(T=16):
    for i in range(5):
        assert Honaker().errors(T)[2**i - 1] ** 2 == pytest.approx(2**i / (2 ** (i + 1) - 1))


@pytest.mark.parametrize("T", [5, 8])
@pytest.mark.parametrize("participation", [Once(), MinSeparation(2, 2)], ids=repr)
def test_sensitivity_is_that_of_the_published_tree_and_a_bound_for_what_runs(T, participation):
    claimed = Honaker().sensitivity(T, participation)
    assert not claimed.is_exact
    assert claimed >= brute_force(tree(T), participation) * (1 - 1e-12)
    assert claimed > brute_force(Honaker().encoder(T), participation)
