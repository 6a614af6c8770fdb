import numpy as np
import pytest
from oracles.release_auditors import is_as_claimed, likelihood_ratios

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import GaussianRelease
from antiphon.releases import private_accuracy

N, MU = 100, 0.5
RIGHT = np.arange(N) < 80


def test_worst_neighbours_are_told_apart_exactly_as_well_as_the_event_says():
    def release(generator, mu=MU):
        return np.array([private_accuracy(RIGHT, mu=mu, generator=generator).value]) * N

    ratios = likelihood_ratios(release, np.array([80]), np.array([79]), MU)
    assert is_as_claimed(ratios, MU)
    wrong = likelihood_ratios(lambda g: release(g, MU * 2**0.5), np.array([80]), np.array([79]), MU)
    assert not is_as_claimed(wrong, MU)
    assert private_accuracy(RIGHT, mu=MU).event == GaussianRelease(MU, "an accuracy")


@pytest.mark.parametrize("p", [0.5, 0.97])
def test_the_interval_covers_the_probability_of_being_right(p, trials=500):
    draws, missed = np.random.default_rng(0).random((trials, N)) < p, 0
    for seed, right in enumerate(draws):
        low, high = private_accuracy(
            right, mu=MU, generator=Generator.seeded(seed), confidence=0.9
        ).interval
        missed += not low <= p <= high
    # 10 % at most; 17 % has a false alarm below 1e-6.
    assert missed / trials < 0.17


def test_the_interval_shrinks_to_the_binomial_one_as_noise_vanishes():
    low, high = private_accuracy(RIGHT, mu=1e9, generator=Generator.seeded(0)).interval
    assert 0.69 < low < 0.72 and 0.87 < high < 0.89


def test_values_and_limits_stay_within_0_and_1():
    for seed in range(50):
        score = private_accuracy([True], mu=0.01, generator=Generator.seeded(seed))
        assert 0 <= score.interval[0] <= score.interval[1] <= 1
        assert 0 <= score.value <= 1


def test_a_public_number_of_records_is_the_divisor():
    score = private_accuracy(RIGHT, mu=1e9, n=160, generator=Generator.seeded(0))
    assert score.value == pytest.approx(0.5)
    assert private_accuracy([], mu=1e9, n=5).value == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("correct", "options", "message"),
    [
        (np.zeros((2, 2), bool), {}, r"shape \(2, 2\)"),
        ([0.5, 1.0], {}, "one True or False per record"),
        ([True], {"mu": 0.0}, "mu must be positive"),
        ([True], {"n": 0}, "n must be a whole number"),
        ([], {}, "n must be a whole number"),
        ([True], {"confidence": 1.0}, "confidence lies strictly between"),
    ],
)
def test_what_cannot_be_is_refused(correct, options, message):
    with pytest.raises(PlanError, match=message):
        private_accuracy(correct, **{"mu": 1.0, **options})
