import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import PureRelease
from antiphon.releases import private_quantile
from antiphon.releases.quantile import _distance

GRID = np.array([0.0, 1.0, 2.0, 4.0])
values = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 9.0]), max_size=8)
quantiles = st.floats(0, 1)


def law(x, q, epsilon, sensitivity):
    """The exponential mechanism, slow and obvious."""
    weights = []
    for t in GRID:
        below, up_to = sum(v < t for v in x), sum(v <= t for v in x)
        distance = max(0.0, below - q * len(x), q * len(x) - up_to)
        weights.append(math.exp(-epsilon * distance / (2 * sensitivity)))
    return np.array(weights) / sum(weights)


@given(values, st.sampled_from([-1.0, 0.0, 1.5, 9.0]), st.sampled_from([0.0, 2.0, 9.0]), quantiles)
def test_one_record_changes_every_distance_by_at_most_the_sensitivity(x, record, other, q):
    def distances(extra):
        return _distance(np.sort(np.array(x + extra)), q, GRID)

    added = np.abs(distances([record]) - distances([])).max()
    replaced = np.abs(distances([record]) - distances([other])).max()
    assert added <= max(q, 1 - q) + 1e-9
    assert replaced <= 1 + 1e-9


@given(values, st.sampled_from([-1.0, 0.0, 1.5, 9.0]), quantiles)
def test_the_law_of_neighbours_differs_by_at_most_epsilon(x, record, q):
    delta, epsilon = max(q, 1 - q), 0.8
    here, there = law([*x, record], q, epsilon, delta), law(x, q, epsilon, delta)
    assert np.abs(np.log(here / there)).max() <= epsilon + 1e-9


@pytest.mark.parametrize(("relation", "sensitivity"), [("add-remove", 0.75), ("replace-one", 1.0)])
def test_points_are_drawn_by_the_law_that_is_proved(relation, sensitivity, trials=1_000):
    x, q, epsilon = [0.5, 1.5, 1.5, 3.0, 3.0, 3.0], 0.25, 1.0
    drawn = [
        private_quantile(
            x, q, epsilon=epsilon, relation=relation, generator=Generator.seeded(seed), grid=GRID
        )[0]
        for seed in range(trials)
    ]
    observed = [drawn.count(t) for t in GRID]
    assert chisquare(observed, trials * law(x, q, epsilon, sensitivity)).pvalue > 1e-6
    # Twice the privacy loss, as by a forgotten factor of two, would be seen.
    assert chisquare(observed, trials * law(x, q, 2 * epsilon, sensitivity)).pvalue < 1e-6


def test_quantiles_of_many_records_are_near_the_true_ones():
    x = np.random.default_rng(0).lognormal(size=20_000)
    for q in (0.05, 0.5, 0.95):
        value, event = private_quantile(x, q, epsilon=0.5, generator=Generator.seeded(1))
        assert 0.5 <= value / np.quantile(x, q) <= 2
        assert event == PureRelease(0.5, "a quantile", "add-remove")


def test_what_is_not_finite_counts_nowhere():
    x = [1.0, 2.0, 3.0]
    dirty = [*x, math.nan, math.inf, -math.inf]
    for seed in range(5):
        generator = Generator.seeded(seed)
        clean, same = (
            private_quantile(v, 0.5, epsilon=1.0, generator=generator) for v in (x, dirty)
        )
        assert clean == same


def test_no_records_at_all_still_give_a_point_of_the_grid():
    value, _ = private_quantile([], 0.5, epsilon=1.0, grid=GRID)
    assert value in GRID


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantile": 1.5}, r"lies in \[0, 1\]; got 1.5"),
        ({"quantile": math.nan}, "got nan"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"grid": []}, "at least one"),
        ({"grid": [0.0, math.inf]}, "finite numbers"),
        ({"relation": "swap"}, "relation is one of"),
        ({"x": ["a"]}, "for numbers"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    arguments = {"x": [1.0], "quantile": 0.5, "epsilon": 1.0, **options}
    with pytest.raises(PlanError, match=message):
        private_quantile(**arguments)
