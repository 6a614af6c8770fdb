import copy
import pickle

import numpy as np
import pytest

from antiphon.mechanisms import Dense
from antiphon.participation import FixedEpochs, Once, Patterns

C = [[1.0], [0.5, 2.0], [0.25, -1.0, 4.0]]


def test_rows_up_to_the_diagonal_and_a_square_matrix_are_the_same():
    square = np.array([[1, 0, 0], [0.5, 2, 0], [0.25, -1, 4]])
    assert Dense(C) == Dense(square)
    assert hash(Dense(C)) == hash(Dense(square))


def test_zeros_of_either_sign_are_equal_and_hash_equal():
    positive, negative = Dense([[1.0], [0.0, 1.0]]), Dense([[1.0], [-0.0, 1.0]])
    assert positive == negative
    assert hash(positive) == hash(negative)


def test_the_encoder_is_a_copy_that_does_not_change():
    given = np.tril(np.ones((3, 3)))
    mechanism = Dense(given)
    given[0, 0] = 7
    mechanism.encoder(3)[0, 0] = 7
    mechanism.decoder(3)[0, 0] = 7
    assert mechanism == Dense(np.tril(np.ones((3, 3))))
    np.testing.assert_allclose(mechanism.decoder(3) @ mechanism.encoder(3), np.eye(3))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_entries_cannot_be_written_to_even_in_a_copy(again):
    with pytest.raises(ValueError, match="read-only"):
        again(Dense(C)).C[0, 0] = 7


def test_fewer_steps_use_the_leading_block():
    np.testing.assert_array_equal(Dense(C).encoder(2), [[1, 0], [0.5, 2]])


def test_sensitivity_is_exact_where_signs_agree():
    mechanism = Dense(C)
    assert mechanism.sensitivity(3, Once()).is_exact
    assert mechanism.sensitivity(3, Once()) == 4
    # Columns 0 and 1 meet with 0.5 * 2 - 0.25 = 0.75, columns 1 and 2 with -4.
    assert mechanism.sensitivity(3, Patterns(((0, 1),))) ** 2 == pytest.approx(1.3125 + 5 + 1.5)
    assert mechanism.sensitivity(3, FixedEpochs(2, 1)) ** 2 == pytest.approx(5 + 16 + 8)


def test_printing_shows_the_size_only():
    assert repr(Dense(C)) == "Dense(C of 3 steps)"
