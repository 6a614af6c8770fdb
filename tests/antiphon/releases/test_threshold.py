import math

import numpy as np
import pytest

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.releases import (
    private_threshold,
    public_threshold,
    threshold_slack,
    thresholds,
)
from antiphon_papers.relu import threshold_zcdp


def outcomes(runs, values, *args, **options):
    return np.array(
        [
            private_threshold(values, *args, generator=Generator.seeded(i), **options)[0]
            for i in range(runs)
        ]
    )


def test_acceptance_3_noise_is_that_of_all_counts_and_one_threshold_is_refused():
    f, smallest, largest = 3.0, 2**-5, 8.0
    points = thresholds(smallest, largest)
    levels = len(points) - 1
    assert levels == 8
    assert threshold_zcdp(f, levels, "printed") == pytest.approx((levels + 1) / (2 * levels * f**2))
    _, event = private_threshold([1.0], smallest, largest, mu=1 / f)
    assert event.mu**2 / 2 == pytest.approx(threshold_zcdp(f, levels, "fixed"))
    for pair in ((1.0, 1.0), (1.0, 0.5)):
        with pytest.raises(PlanError, match="above the smallest"):
            private_threshold([1.0], *pair, mu=1.0)
    with pytest.raises(PlanError, match="above the smallest"):
        public_threshold([1.0], 1.0, 1.0)


def test_the_noise_of_a_count_has_the_variance_of_all_queries():
    # One threshold decides: the count there is 5, needed are 8, so it passes with Φ(-3/(sqrt(3) f)).
    f, runs = 2.0, 4_000
    found = outcomes(runs, [0.5] * 5 + [9.0] * 3, 1.0, 4.0, mu=1 / f, slack=0.0)
    chance = 0.5 * math.erfc(3 / (math.sqrt(3) * f) / math.sqrt(2))
    error = math.sqrt(chance * (1 - chance) / runs)
    assert abs(np.mean(found == 1.0) - chance) < 4 * error  # false alarms: 6e-5
    printed = 0.5 * math.erfc(3 / (math.sqrt(2) * f) / math.sqrt(2))
    assert abs(np.mean(found == 1.0) - printed) > 4 * error  # L instead of L + 1 is seen


def test_acceptance_24_a_small_block_at_the_papers_noise_chooses_by_noise_alone():
    residuals = np.full(3, 0.9)
    found = outcomes(2_500, residuals, 2**-5, 8.0, mu=1 / 184.9, slack=0.0)
    assert np.mean(found == 2**-5) == pytest.approx(0.498, abs=0.02)
    assert public_threshold(residuals, 2**-5, 8.0) == 1.0


def test_a_large_block_finds_the_threshold_within_what_is_guaranteed():
    values = np.random.default_rng(0).exponential(size=4_000)
    smallest, largest, mu = 2**-4, 16.0, 0.2
    slack = threshold_slack(smallest, largest, mu)
    found = outcomes(300, values, smallest, largest, mu=mu)
    failed = [
        (values <= s).sum() < len(values) - 2 * slack or (values <= s / 2).all() for s in found
    ]
    assert np.mean(failed) <= 0.1
    assert set(found) <= set(thresholds(smallest, largest))


def test_a_share_is_a_quantile_between_doublings():
    values = np.concatenate([np.full(600, 0.3), np.full(400, 3.0)])
    assert set(outcomes(20, values, 2**-6, 16.0, mu=1.0, share=0.5)) == {0.5}
    assert set(outcomes(20, values, 2**-6, 16.0, mu=1.0, share=0.7)) == {4.0}
    # The number that is needed is public: with n = 100 every count passes.
    assert set(outcomes(20, values, 2**-6, 16.0, mu=1.0, share=0.5, n=100)) == {0.5}


def test_absolute_values_count_and_what_is_not_finite_is_below_nothing():
    assert set(outcomes(20, [-3.0] * 2_000, 1.0, 8.0, mu=1.0)) == {4.0}
    assert set(outcomes(20, [np.nan] * 2_000, 1.0, 8.0, mu=1.0)) == {8.0}
    assert public_threshold([-3.0, 0.1], 1.0, 8.0) == 4.0
    assert public_threshold([100.0], 1.0, 8.0) == 8.0


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        ([[1.0]], {}, "one number per record"),
        ([1.0], {"mu": 0.0}, "mu"),
        ([1.0], {"share": 0.0}, "share"),
        ([1.0], {"n": 0}, "n must be"),
        ([1.0], {"smallest": -1.0}, "smallest"),
    ],
)
def test_what_means_nothing_is_refused(values, options, words):
    given = {"smallest": 1.0, "largest": 4.0, "mu": 1.0} | options
    with pytest.raises(PlanError, match=words):
        private_threshold(values, **given)


def test_a_failure_probability_is_one():
    with pytest.raises(PlanError, match="failure"):
        threshold_slack(1.0, 4.0, 1.0, failure=1.0)
