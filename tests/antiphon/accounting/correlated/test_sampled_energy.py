"""Sampled participations, against the laws that are known in closed form."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from antiphon.accounting.correlated.energy import binomial_law
from antiphon.accounting.correlated.lambda_energy import lambda_cgd_law
from antiphon.accounting.correlated.sampled_energy import (
    Bernoulli,
    OncePerEpoch,
    SampledEnergy,
    energies,
    interactions,
)
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Dense, Independent, LambdaCGD, NuFTRL

Z = 4.9  # standard errors that a right normal statistic passes once in a million tests


def rows(coins, count, T, seed=0):
    """Participations as a 0/1 matrix."""
    steps, begins = coins.draw(np.random.default_rng(seed), count)
    y = np.zeros((count, T))
    y[np.repeat(np.arange(count), np.diff(begins)), steps] = 1
    return y


@pytest.mark.parametrize("mechanism", [LambdaCGD(0.7), NuFTRL(0.05)])
def test_energies_are_quadratic_forms(mechanism, T=12):
    matrix = interactions(mechanism, T)
    for coins in (Bernoulli(0.4, T), OncePerEpoch(5, 0.5, T)):
        y = rows(coins, 50, T)
        found = energies(matrix, *coins.draw(np.random.default_rng(0), 50))
        np.testing.assert_allclose(found, ((y @ matrix) * y).sum(axis=1), atol=1e-12)


def test_bernoulli_coins_are_fair():
    y = rows(Bernoulli(0.3, 6), 40_000, 6)
    counts = y.sum(axis=0)
    assert (np.abs(counts - 12_000) < Z * math.sqrt(40_000 * 0.21)).all()
    pairs = (y.T @ y)[np.triu_indices(6, 1)]
    assert (np.abs(pairs - 3600) < Z * math.sqrt(40_000 * 0.09 * 0.91)).all()


def test_one_place_in_every_epoch_and_a_smaller_last_batch():
    y = rows(OncePerEpoch(batches=3, last=0.5, steps=8), 40_000, 8)
    assert (y[:, :3].sum(axis=1) == 1).all() and (y[:, 3:6].sum(axis=1) == 1).all()
    assert (y[:, 6:].sum(axis=1) <= 1).all()  # the last epoch ends after two of three batches
    shares = np.tile([0.4, 0.4, 0.2], 3)[:8]
    error = np.sqrt(40_000 * shares * (1 - shares))
    assert (np.abs(y.sum(axis=0) - 40_000 * shares) < Z * error).all()


def test_limits_lie_above_the_known_law_and_close_to_it():
    matrix = interactions(LambdaCGD(0.5), 100)
    truth = lambda_cgd_law(0.5, 0.05, 100, "upper").delta(6.0, 1.0)
    found = SampledEnergy(matrix, Bernoulli(0.05, 100), 6.0)
    assert found.estimate(1.0, seed=3).delta == pytest.approx(truth, rel=0.1)
    limit = found.certified_delta(1.0, seed=3, paths=100_000)
    assert truth <= limit.delta <= 1.5 * truth
    assert limit.remove == limit.add
    predicted = found.predicted_limit(1.0, 100_000, 1e-6, seed=4)
    assert predicted == pytest.approx(limit.delta, rel=0.1)


def test_limits_fail_as_rarely_as_they_say(trials=200, failure=0.1):
    """More misses than allowed would have probability 1e-6; without a limit there are far more."""
    truth = binomial_law(0.1, 30).delta(1.5, 1.0)
    found = SampledEnergy(interactions(Independent(), 30), Bernoulli(0.1, 30), 1.5)
    limits = [
        found.certified_delta(1.0, seed=s, paths=300, failure=failure).delta for s in range(trials)
    ]
    assert sum(limit < truth for limit in limits) <= binom.isf(1e-6, trials, failure / 2)
    less = binomial_law(0.1, 30).delta(1.1, 1.0)  # the noise really is a quarter smaller
    assert sum(limit < less for limit in limits) > binom.isf(1e-6, trials, failure / 2)


def test_five_per_cent_too_little_noise_is_seen():
    """Two-sided, false alarm 1e-6."""
    truth = binomial_law(0.1, 30).delta(1.5, 1.0)
    for noise, right in ((1.5, True), (0.95 * 1.5, False)):
        sample = SampledEnergy(interactions(Independent(), 30), Bernoulli(0.1, 30), noise)
        estimate = sample.estimate(1.0, seed=5, paths=2000)
        assert (abs(estimate.delta - truth) < Z * estimate.standard_error) == right


def test_gaussian_releases_add_to_the_energy():
    matrix = interactions(Independent(), 1)
    alone = SampledEnergy(matrix, Bernoulli(1.0, 1), 1.0)
    both = SampledEnergy(matrix, Bernoulli(1.0, 1), 1.0, 1.0, mu=math.sqrt(3.0))
    twice = SampledEnergy(matrix, Bernoulli(1.0, 1), 0.5)
    values = [s.contributions(1.0, np.random.default_rng(0), 1)[0, 0] for s in (alone, both, twice)]
    assert values[0] < values[1] == pytest.approx(values[2])


def test_negative_entries_count_by_their_size():
    C = np.array([[1.0, 0.0], [-0.5, 1.0]])
    np.testing.assert_allclose(interactions(Dense(C), 2), np.abs(C.T @ C))


def test_bad_input_is_refused():
    with pytest.raises(UnsupportedError, match="4096"):
        interactions(LambdaCGD(0.5), 5000)
    matrix = interactions(Independent(), 3)
    for noise, amplitude in ((0.0, 1.0), (1.0, -1.0), (math.nan, 1.0)):
        with pytest.raises(PlanError, match="positive"):
            SampledEnergy(matrix, Bernoulli(0.1, 3), noise, amplitude).estimate(1.0, seed=0)
