import numpy as np
import pytest
from oracles.release_auditors import is_as_claimed, likelihood_ratios

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import GaussianRelease
from antiphon.releases import mean_sensitivity, private_mean

N, MU = 100, 0.5
LOW, HIGH = 2.0, 6.0
VALUES = np.random.default_rng(0).uniform(LOW + 1, HIGH - 1, N)


@pytest.mark.parametrize(
    ("relation", "neighbour"),
    [("add-remove", None), ("replace-one", LOW)],
)
def test_worst_neighbours_are_told_apart_exactly_as_well_as_the_event_says(relation, neighbour):
    here = np.append(VALUES[1:], HIGH)
    there = VALUES[1:] if neighbour is None else np.append(VALUES[1:], neighbour)

    def total(values):  # what is released: the mean times n, whoever is in the table
        return np.array([N * (LOW + HIGH) / 2 + (values - (LOW + HIGH) / 2).sum()])

    def release(generator, mu=MU):
        mean = private_mean(here, (LOW, HIGH), mu=mu, n=N, generator=generator, relation=relation)
        return np.array([mean.value]) * N

    ratios = likelihood_ratios(release, total(here), total(there), MU)
    assert is_as_claimed(ratios, MU)
    if relation == "add-remove":
        wrong = likelihood_ratios(lambda g: release(g, MU * 2**0.5), total(here), total(there), MU)
        assert not is_as_claimed(wrong, MU)
    event = private_mean(here, (LOW, HIGH), mu=MU, relation=relation).event
    assert event == GaussianRelease(MU, "a mean", relation)


def test_a_record_without_contribution_counts_as_an_absent_one():
    assert mean_sensitivity(LOW, HIGH, "zero-out") == mean_sensitivity(LOW, HIGH, "add-remove") == 2
    given = {"mu": MU, "n": N, "generator": Generator.seeded(0)}
    first, second = (
        private_mean(VALUES, (LOW, HIGH), relation=r, **given) for r in ("zero-out", "add-remove")
    )
    assert first[:3] == second[:3] and first.event == GaussianRelease(MU, "a mean", "zero-out")


def test_no_neighbour_changes_the_sum_by_more_than_the_sensitivity():
    middle = (LOW + HIGH) / 2
    for value in (LOW, HIGH, middle, -1e9, 1e9, np.nan, np.inf, -np.inf):
        means = [
            private_mean(v, (LOW, HIGH), mu=1e12, n=N).value
            for v in (VALUES, np.append(VALUES, value))
        ]
        change = N * abs(means[1] - means[0])
        assert change <= mean_sensitivity(LOW, HIGH, "add-remove") + 1e-6
        if value in (LOW, HIGH):
            assert change == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize(("p", "mu"), [(0.5, 5.0), (0.03, 0.5)])
def test_the_intervals_cover_what_they_are_for(p, mu, trials=500):
    draws = (np.random.default_rng(0).random((trials, N)) < p) * (HIGH - LOW) + LOW
    expected = LOW + (HIGH - LOW) * p
    missed, missed_sample = 0, 0
    for seed, values in enumerate(draws):
        mean = private_mean(
            values, (LOW, HIGH), mu=mu, generator=Generator.seeded(seed), confidence=0.9
        )
        missed += not mean.interval[0] <= expected <= mean.interval[1]
        missed_sample += not mean.of_sample[0] <= values.mean() <= mean.of_sample[1]
        assert mean.interval[0] <= mean.of_sample[0] <= mean.of_sample[1] <= mean.interval[1]
    # 10 % at most; 17 % has a false alarm below 1e-6. The sample's is exact: 4 % is as unlikely.
    assert missed / trials < 0.17
    assert 0.04 < missed_sample / trials < 0.17


def test_an_interval_for_the_noise_alone_would_miss_the_expectation(trials=300):
    draws = np.random.default_rng(1).integers(0, 2, (trials, N)).astype(float)
    missed = 0
    for seed, values in enumerate(draws):
        mean = private_mean(values, (0, 1), mu=5.0, generator=Generator.seeded(seed))
        missed += not mean.of_sample[0] <= 0.5 <= mean.of_sample[1]
    assert missed / trials > 0.5  # the two intervals are for different things


def test_the_interval_for_the_expectation_is_that_of_relative_entropy():
    values = np.array([1.0] * 10 + [0.0] * 90)
    low, high = private_mean(values, (0, 1), mu=1e9, confidence=0.9).interval
    grid = np.linspace(1e-9, 1 - 1e-9, 200_001)
    entropy = 0.1 * np.log(0.1 / grid) + 0.9 * np.log(0.9 / (1 - grid))
    inside = grid[entropy <= np.log(4 / 0.1) / 100]
    assert low == pytest.approx(inside.min(), abs=1e-5)
    assert high == pytest.approx(inside.max(), abs=1e-5)
    distance = np.sqrt(np.log(4 / 0.1) / 200)  # Hoeffding's simpler bound is wider
    assert low > 0.1 - distance and high < 0.1 + distance


def test_means_at_the_ends_have_intervals_that_stay_inside():
    for seed in range(50):
        for values in ([0.0], [1.0]):
            mean = private_mean(values, (0, 1), mu=0.01, generator=Generator.seeded(seed))
            assert 0 <= mean.interval[0] <= mean.value <= mean.interval[1] <= 1
    low, high = private_mean(np.zeros(1_000), (0, 1), mu=1e9, confidence=0.9).interval
    assert low == 0 and high == pytest.approx(1 - (0.1 / 4) ** (1 / 1_000), rel=1e-3)


def test_a_public_number_of_records_is_the_divisor_and_the_rest_counts_as_the_middle():
    assert private_mean(np.ones(50), (0, 1), mu=1e9, n=100).value == pytest.approx(0.75)
    assert private_mean([], (0, 1), mu=1e9, n=5).value == pytest.approx(0.5)
    assert private_mean([np.nan, 9.0], (0, 1), mu=1e9).value == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("values", "bounds", "options", "message"),
    [
        (np.zeros((2, 2)), (0, 1), {}, r"shape \(2, 2\)"),
        (["a secret"], (0, 1), {}, "one number per record"),
        ([1.0], (0, 1), {"mu": 0.0}, "mu must be positive"),
        ([1.0], (0, 1), {"n": 0}, "n must be a whole number"),
        ([], (0, 1), {}, "n must be a whole number"),
        ([1.0], (0, 1), {"confidence": 1.0}, "confidence lies strictly between"),
        ([1.0], (1, 0), {}, "low below high"),
        ([1.0], (0, np.inf), {}, "finite"),
        ([1.0], (0, 1), {"relation": "neighbours"}, "neighbouring relation"),
    ],
)
def test_what_cannot_be_is_refused(values, bounds, options, message):
    with pytest.raises(PlanError, match=message) as caught:
        private_mean(values, bounds, **{"mu": 1.0, **options})
    assert "secret" not in str(caught.value)
