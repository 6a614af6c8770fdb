"""Clipping: the laws that a bounded contribution rests on."""

import math

import numpy as np
import pytest

from antiphon.errors import PlanError
from antiphon.numerics import clip_rows


@pytest.mark.parametrize("bound", [1e-3, 0.7, 1.0, 250.0])
def test_acceptance_relu_4_clipping(bound):
    """Ten thousand vectors of all sizes: never longer, unchanged within, same direction, zero to zero."""
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-6, 6, (10_000, 1))
    rows = rng.standard_normal((10_000, 7)) * sizes
    rows[:3] = 0.0
    found = clip_rows(rows, bound)
    norms = np.linalg.norm(rows, axis=1)
    assert (np.linalg.norm(found, axis=1) <= bound).all()
    np.testing.assert_array_equal(found[norms <= bound], rows[norms <= bound])
    long = norms > bound
    assert 1000 < long.sum() < 9999
    np.testing.assert_allclose(np.linalg.norm(found[long], axis=1), bound, rtol=1e-12)
    np.testing.assert_allclose(found[long] / bound, rows[long] / norms[long, None], atol=1e-12)
    assert not found[:3].any()


def test_extreme_entries_neither_overflow_nor_vanish():
    found = clip_rows(np.array([[1e300, 1e300], [1e-300, 0.0], [-1e308, 0.0]]), 2.0)
    np.testing.assert_allclose(found, [[math.sqrt(2)] * 2, [1e-300, 0.0], [-2.0, 0.0]], rtol=1e-12)


def test_bad_input_is_refused():
    for bound in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PlanError, match="clip norm"):
            clip_rows(np.ones((1, 2)), bound)
    for value in (math.nan, math.inf):
        with pytest.raises(PlanError, match="finite"):
            clip_rows(np.array([[value, 1.0]]), 1.0)
