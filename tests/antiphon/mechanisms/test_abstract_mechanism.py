import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.sensitivity import attained, brute_force

from antiphon.errors import PlanError
from antiphon.mechanisms import NuFTRL, Sensitivity
from antiphon.mechanisms.abstract_mechanism import check_steps, gram_sensitivity
from antiphon.participation import FixedEpochs, MinSeparation, Once, Patterns, Reshuffled

T = 6
# Entries such as 0 and ±1/2 make ties, zeros and opposite signs as likely as possible.
entries = st.one_of(st.sampled_from([0.0, 0.5, -0.5, 1.0, -1.0]), st.floats(-1, 1, width=16))
encoders = st.lists(entries, min_size=T * T, max_size=T * T).map(
    lambda values: np.tril(np.array(values).reshape(T, T), -1) + np.eye(T)
)


@pytest.mark.parametrize(
    "participation",
    [
        Once(),
        MinSeparation(2, 2),
        MinSeparation(3, 1),
        FixedEpochs(3, 2),
        Reshuffled(3, 2),
        Reshuffled(2, 3),
        Patterns(((0, 2, 5), (1, 2, 3, 4))),
    ],
    ids=repr,
)
@given(encoders)
def test_gram_sensitivity_is_safe_and_exact_only_if_attained(participation, C):
    claimed, found = gram_sensitivity(C.T @ C, participation), brute_force(C, participation)
    assert claimed >= found * (1 - 1e-12)
    if claimed.is_exact:
        assert claimed == pytest.approx(found, rel=1e-9)


def test_three_contributions_that_cannot_all_agree_are_not_exact():
    # Each pair of columns is negatively correlated: whatever the signs, one pair works against the rest.
    X = 1.5 * np.eye(3) - 0.5
    claimed = gram_sensitivity(X, Patterns(((0, 1, 2),)))
    assert not claimed.is_exact
    assert claimed == pytest.approx(math.sqrt(6))
    assert attained(X) == pytest.approx(math.sqrt(4.5))  # three unit vectors at 120 degrees


def test_a_sensitivity_is_a_float_that_knows_whether_it_is_exact():
    value = Sensitivity(2.5, is_exact=True)
    assert (value, value.is_exact, value + 1) == (2.5, True, 3.5)


@pytest.mark.parametrize("T", [1, 7, np.int64(3)])
def test_whole_numbers_of_steps_are_accepted(T):
    check_steps.__wrapped__(T)


@pytest.mark.parametrize("T", [0, -1, 2.5, math.nan, math.inf, "3"])
def test_other_numbers_of_steps_are_refused(T):
    with pytest.raises(PlanError, match="whole number of at least 1"):
        check_steps.__wrapped__(T)


def test_a_state_takes_a_scalar_and_no_tensor_at_all():
    mechanism = NuFTRL(0.1)
    x, _ = mechanism.correlate(torch.tensor(2.0), mechanism.init(torch.tensor(0.0), 3))
    assert x == 2.0
    nothing, state = mechanism.correlate([], mechanism.init([], 3))
    assert (nothing, state.step) == ([], 1)


def test_noise_needs_no_gradient():
    weights = torch.nn.Parameter(torch.ones(3))
    state = NuFTRL(0.1).init(weights, 3)
    x, _ = NuFTRL(0.1).correlate(torch.ones(3), state)
    assert not x.requires_grad
