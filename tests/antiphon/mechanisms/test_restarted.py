import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.sensitivity import brute_force

from antiphon.errors import UnsupportedError
from antiphon.mechanisms import Banded, LambdaCGD, NuFTRL, Restarted, Tree
from antiphon.participation import FixedEpochs, MinSeparation, Once

T = 8
inner = [NuFTRL(0.0), LambdaCGD(0.9), Tree(), Banded((1.0, 0.6, -0.5)), Banded((1.0, 0.0, 0.9))]


@pytest.mark.parametrize("mechanism", inner, ids=repr)
@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 4), st.booleans())
def test_sensitivity_is_safe_and_exact_only_if_attained(mechanism, blocks, times, apart, fixed):
    if (times - 1) * apart >= T:
        return
    participation = (FixedEpochs if fixed else MinSeparation)(times, apart)
    restarted = Restarted(mechanism, blocks)
    claimed = restarted.sensitivity(T, participation)
    found = brute_force(restarted.encoder(T), participation)
    assert claimed >= found * (1 - 1e-12)
    if claimed.is_exact:
        assert claimed == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("family", [FixedEpochs, MinSeparation])
def test_whole_epochs_in_every_block_are_exact(family):
    found = Restarted(NuFTRL(0.0), 4).sensitivity(40, family(8, 5))
    block = NuFTRL(0.0).sensitivity(10, family(2, 5))
    assert found.is_exact
    assert found == pytest.approx(2 * block)


def test_blocks_differ_by_at_most_one_step():
    assert Restarted(Tree(), 3).lengths(11) == [4, 4, 3]
    assert Restarted(Tree(), 3).encoder(11).shape == (11, 11)


def test_one_block_is_the_mechanism_itself():
    one, itself = Restarted(NuFTRL(0.1), 1), NuFTRL(0.1)
    np.testing.assert_array_equal(one.encoder(T), itself.encoder(T))
    for participation in (Once(), FixedEpochs(2, 4), MinSeparation(3, 2)):
        assert one.sensitivity(T, participation) == pytest.approx(
            itself.sensitivity(T, participation)
        )


def test_noise_of_finished_blocks_stays_in_the_prefix_sums():
    errors, block = Restarted(LambdaCGD(1.0), 4).errors(T), LambdaCGD(1.0).errors(2)
    np.testing.assert_allclose(errors[1::2] ** 2, block[-1] ** 2 * np.arange(1, 5))


def test_endlessly_many_steps_are_refused():
    with pytest.raises(UnsupportedError, match="fixed in advance"):
        Restarted(LambdaCGD(0.5), 2).sensitivity(math.inf, Once())
