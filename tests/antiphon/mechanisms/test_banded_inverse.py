import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.series import energy, with_zeros

from antiphon.errors import UnsupportedError
from antiphon.mechanisms import BandedInverse
from antiphon.participation import Once


@given(st.lists(st.floats(-0.9, 0.9), min_size=1, max_size=3))
def test_endlessly_many_steps_give_the_long_sum(inverses):
    beta = tuple(with_zeros(*inverses))
    found = BandedInverse(beta).sensitivity(math.inf, Once())
    assert found == pytest.approx(math.sqrt(energy(beta, 400)), rel=1e-9)


@pytest.mark.parametrize("beta", [(1.0, -1.0), (1.0, -2.0), (1.0, 0.0, 1.0)])
def test_a_zero_in_the_closed_disk_has_no_limit(beta):
    with pytest.raises(UnsupportedError, match="zero in the closed unit disk"):
        BandedInverse(beta).sensitivity(math.inf, Once())
