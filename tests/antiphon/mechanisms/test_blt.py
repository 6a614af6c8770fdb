import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.sensitivity import brute_force
from oracles.streams import white

from antiphon.errors import UnsupportedError
from antiphon.mechanisms import BLT
from antiphon.participation import FixedEpochs, MinSeparation, Once

buffers = st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 0.9)), max_size=3)


@given(buffers)
def test_column_is_the_sum_of_exponentials(pairs):
    scales, decays = tuple(a for a, _ in pairs), tuple(x for _, x in pairs)
    column = BLT(scales, decays).column(6)
    assert column[0] == 1
    for t in range(1, 6):
        assert column[t] == pytest.approx(sum(a * x ** (t - 1) for a, x in pairs), abs=1e-12)


@given(buffers, st.sampled_from([Once(), FixedEpochs(3, 4), MinSeparation(2, 1)]))
def test_endlessly_many_steps_give_the_limit(pairs, participation):
    total = max(1.0, sum(abs(a) for a, _ in pairs))
    mechanism = BLT(tuple(abs(a) / total / 1.01 for a, _ in pairs), tuple(x for _, x in pairs))
    limit = mechanism.sensitivity(math.inf, participation)
    assert limit == pytest.approx(mechanism.sensitivity(600, participation), rel=1e-12)


def test_a_buffer_that_never_fades_has_no_limit():
    with pytest.raises(UnsupportedError, match="decay of 1"):
        BLT((0.5,), (1.0,)).sensitivity(math.inf, Once())


def test_a_buffer_without_a_scale_does_not_count():
    assert BLT((0.0,), (1.0,)).sensitivity(math.inf, Once()) == 1
    assert BLT((0.0, 0.5), (1.0, 0.5)).sensitivity(math.inf, Once()) == pytest.approx(
        math.sqrt(4 / 3)
    )


@pytest.mark.parametrize("scales", [(0.9, 0.8), (0.5, -0.7)])
def test_several_participations_are_bounded_if_the_column_rises_or_changes_sign(scales):
    mechanism, participation = BLT(scales, (0.9, 0.6)), MinSeparation(3, 2)
    claimed = mechanism.sensitivity(8, participation)
    assert claimed >= brute_force(mechanism.encoder(8), participation) * (1 - 1e-12)
    assert mechanism.sensitivity(8, Once()).is_exact


def test_memory_does_not_grow():
    z = white(50, 4)
    mechanism = BLT((0.3, 0.2), (0.9, 0.4))
    state = mechanism.init(z[0], 50)
    for row in z:
        assert state.nbytes == 2 * z[0].nbytes
        _, state = mechanism.correlate(row, state)
    assert all(torch.isfinite(b).all() for kept in state.buffers for b in kept)
