import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.sensitivity import brute_force

from antiphon.errors import UnsupportedError
from antiphon.mechanisms import BLT, Banded, BandedInverse, LambdaCGD
from antiphon.numerics import lower
from antiphon.participation import FixedEpochs, MinSeparation, Once, Patterns, Reshuffled

T = 7
entries = st.one_of(st.sampled_from([0.0, 0.5, -0.5, 1.0, -1.0]), st.floats(-1, 1, width=16))
tails = st.lists(entries, max_size=T - 1)
families = [MinSeparation(2, 2), MinSeparation(3, 2), FixedEpochs(3, 2), FixedEpochs(2, 3)]
others = [Once(), Reshuffled(2, 4), Patterns(((0, 1, 4), (2, 6)))]


@pytest.mark.parametrize("kind", [Banded, BandedInverse])
@pytest.mark.parametrize("participation", [*families, *others], ids=repr)
@given(tails)
def test_signed_columns_are_safe_and_exact_only_if_attained(kind, participation, tail):
    mechanism = kind((1.0, *tail))
    claimed = mechanism.sensitivity(T, participation)
    found = brute_force(mechanism.encoder(T), participation)
    assert claimed >= found * (1 - 1e-12)
    if claimed.is_exact:
        assert claimed == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("participation", families, ids=repr)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=T))
def test_decreasing_columns_are_exact(participation, column):
    coef = tuple(sorted((x + 1e-3 for x in column), reverse=True))
    claimed = Banded(coef).sensitivity(T, participation)
    assert claimed.is_exact
    assert claimed == pytest.approx(brute_force(Banded(coef).encoder(T), participation), rel=1e-9)


@given(tails)
def test_one_participation_and_far_participations_are_exact(tail):
    mechanism = Banded((1.0, *tail[:2]))
    for participation in (Once(), MinSeparation(2, 3), FixedEpochs(2, 4)):
        claimed = mechanism.sensitivity(T, participation)
        assert claimed.is_exact
        assert claimed == pytest.approx(brute_force(mechanism.encoder(T), participation), rel=1e-9)


def test_a_column_that_rises_again_is_bounded_from_above():
    # The closed form for decreasing columns would give 1.90 here.
    claimed = Banded((1.0, 0.0, 0.9)).sensitivity(5, MinSeparation(2, 1))
    assert claimed == pytest.approx(math.sqrt(2 * (1 + 0.81) + 2 * 0.9), abs=1e-9)
    assert claimed >= 2.32


def test_many_steps_use_the_smallest_decreasing_column_above():
    coef = (1.0, -0.5, 0.75)
    claimed = Banded(coef).sensitivity(3000, MinSeparation(2, 1))
    assert not claimed.is_exact
    assert claimed == pytest.approx(np.linalg.norm([1, 1.75, 1.5, 0.75]))


def test_a_column_beyond_the_range_of_floats_has_no_sensitivity():
    with pytest.raises(UnsupportedError, match="beyond the range of float64"):
        BandedInverse((1.0, -2.0)).sensitivity(2000, Once())


def test_a_listed_schedule_of_very_many_steps_is_refused_with_a_way_out():
    with pytest.raises(UnsupportedError, match="Use a mechanism whose first column"):
        LambdaCGD(0.9).sensitivity(30_000, Patterns(((0, 1),)))


@pytest.mark.parametrize(
    ("mechanism", "participation", "why"),
    [
        (LambdaCGD(0.9), Patterns(((0, 1),)), "no sensitivity for endlessly many"),
        (LambdaCGD(0.9), Reshuffled(2, 5), "no sensitivity for endlessly many"),
        (Banded((1.0, -0.5)), MinSeparation(2, 1), "not non-negative and non-increasing"),
        (BLT((0.9, 0.8), (0.95, 0.3)), FixedEpochs(2, 9), "not non-negative and non-increasing"),
    ],
)
def test_endlessly_many_steps_are_refused_with_the_reason(mechanism, participation, why):
    with pytest.raises(UnsupportedError, match=why):
        mechanism.sensitivity(math.inf, participation)


@given(tails)
def test_column_and_inverse_column_are_those_of_the_dense_matrices(tail):
    mechanism = BandedInverse((1.0, *tail))
    np.testing.assert_array_equal(lower(mechanism.column(T)), mechanism.encoder(T))
    np.testing.assert_array_equal(lower(mechanism.inverse_column(T)), mechanism.decoder(T))
