import numpy as np
import pytest
from oracles.streams import white
from oracles.trees import plain_decoder, tree

from antiphon.errors import PlanError
from antiphon.mechanisms import Tree
from antiphon.participation import FixedEpochs, MinSeparation, Once, Reshuffled

A = np.tril(np.ones((64, 64)))


@pytest.mark.parametrize("T", [1, 2, 5, 8, 13, 16])
def test_prefix_sums_have_the_noise_of_the_tree_over_all_nodes(T):
    prefix = A[:T, :T] @ Tree().decoder(T)
    D = plain_decoder(T)
    np.testing.assert_allclose(D @ tree(T), A[:T, :T])
    np.testing.assert_allclose(prefix @ prefix.T, D @ D.T, atol=1e-12)


@pytest.mark.parametrize("T", [1, 2, 4, 8, 16, 32])
def test_one_participation_meets_as_many_nodes_as_in_the_whole_tree(T):
    found = Tree().sensitivity(T, Once())
    assert found.is_exact
    assert found == pytest.approx(np.linalg.norm(tree(T), axis=0).max())


@pytest.mark.parametrize("T", [3, 6, 12])
def test_the_square_tree_never_has_more_sensitivity_than_the_whole_one(T):
    whole, square = (C.T @ C for C in (tree(T), Tree().encoder(T)))
    assert (square <= whole).all()
    assert Tree().sensitivity(T, FixedEpochs(3, 1)).is_exact


@pytest.mark.parametrize("T", [1, 7, 8, 9])
def test_one_buffer_per_level_is_kept(T):
    assert Tree().init(white(1, 3)[0], T).nbytes == 3 * 8 * (int(np.log2(T)) + 1)


@pytest.mark.parametrize("T", [1, 2, 7, 8, 9, 100])
def test_what_is_known_without_matrices_is_what_matrices_say(T):
    C, prefix = Tree().encoder(T), np.tril(np.ones((T, T))) @ Tree().decoder(T)
    np.testing.assert_allclose(Tree().holders(T), (C**2).sum(axis=0))
    np.testing.assert_allclose(Tree().errors(T), np.linalg.norm(prefix, axis=1))
    for once in (Once(), MinSeparation(1, 1), FixedEpochs(1, T), Reshuffled(1, T)):
        found = Tree().sensitivity(T, once)
        assert found == pytest.approx(np.linalg.norm(C, axis=0).max()) and found.is_exact


def test_a_million_steps_need_no_matrix():
    assert float(Tree().sensitivity(10**6, Once())) ** 2 == pytest.approx(20)
    assert Tree().error(10**6, "max") ** 2 == pytest.approx(19)
    with pytest.raises(PlanError):
        Tree().sensitivity(5, Reshuffled(1, 2))
