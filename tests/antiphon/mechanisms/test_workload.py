import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.streams import white

from antiphon.mechanisms import PREFIX_SUMS, Workload

rates = st.lists(st.floats(0.01, 1), min_size=1, max_size=8).map(tuple)


@given(st.floats(0, 0.99), rates)
def test_rows_are_the_iterates_of_momentum_sgd(momentum, rates):
    T = len(rates)
    gradients = white(T).numpy()
    velocity, position, path = 0.0, 0.0, []
    for gradient, rate in zip(gradients, rates, strict=True):
        velocity = momentum * velocity + gradient
        position = position - rate * velocity
        path.append(-position)
    A = Workload(momentum, rates).matrix(T)
    np.testing.assert_allclose(A @ gradients, path, atol=1e-10)
    np.testing.assert_array_equal(np.triu(A, 1), 0.0)
    np.testing.assert_array_equal(Workload(momentum, rates).column(T), A[:, 0])


def test_the_default_is_prefix_sums(T=5):
    np.testing.assert_array_equal(PREFIX_SUMS.matrix(T), np.tril(np.ones((T, T))))
    assert Workload() == PREFIX_SUMS


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_constant_rate_of_1_changes_nothing(momentum, T=6):
    constant = Workload(momentum, (1.0,) * T)
    np.testing.assert_array_equal(constant.matrix(T), Workload(momentum).matrix(T))
    assert Workload(momentum).is_toeplitz
    assert not constant.is_toeplitz
