import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon_papers.common.condition import Condition

sizes = st.floats(1e-9, 1e9)


@given(sizes, sizes)
def test_the_factor_is_at_most_1_exactly_where_the_condition_holds(value, limit):
    for condition in (Condition.at_most("", value, limit), Condition.at_least("", value, limit)):
        assert condition.holds == (condition.factor <= 1)
    assert Condition.at_most("", value, limit).factor == value / limit
    assert Condition.at_least("", value, limit).factor == limit / value


@pytest.mark.parametrize(
    ("value", "limit", "holds", "factor"),
    [
        (0.0, 0.0, True, 1.0),
        (1.0, 0.0, False, math.inf),
        (1.0, math.inf, True, 0.0),
        (math.nan, 1.0, False, math.inf),
    ],
)
def test_extremes(value, limit, holds, factor):
    found = Condition.at_most("x", value, limit)
    assert (found.holds, found.factor) == (holds, factor)
    mirrored = Condition.at_least("x", limit, value)
    assert (mirrored.holds, mirrored.factor) == (holds, factor)
    assert str(found).endswith("holds" if holds else f"fails by a factor of {factor:g}")
