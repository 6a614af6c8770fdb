"""One wording for the same mistake, wherever it is made."""

import math

import numpy as np
import pytest

from antiphon.checks import positive, whole
from antiphon.errors import PlanError


def test_good_values_come_back_as_plain_numbers():
    assert type(whole("n", np.int64(3))) is int
    assert type(positive("σ", np.float32(0.5))) is float
    assert positive("σ", 2) == 2.0


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None, math.nan, math.inf])
def test_what_is_not_a_whole_number_is_refused(value):
    with pytest.raises(PlanError, match="n must be a whole number of at least 1; got"):
        whole("n", value)


@pytest.mark.parametrize("value", [0, -1.0, True, "3", None, math.nan, math.inf])
def test_what_is_not_positive_and_finite_is_refused(value):
    with pytest.raises(PlanError, match="σ must be positive and finite; got"):
        positive("σ", value)
