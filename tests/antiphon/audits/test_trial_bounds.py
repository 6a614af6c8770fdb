"""Audits by independent trials, against the binomial sum and by exact or simulated coverage."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from antiphon.audits import (
    binomial_lower,
    binomial_upper,
    epsilon_from_rates,
    mu_from_guesses,
    trade_off_band,
)
from antiphon.errors import PlanError


def at_least(successes, trials, p):
    """The binomial sum, term by term."""
    with mpmath.workdps(30):
        p = mpmath.mpf(p)
        return float(
            sum(
                mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k)
                for k in range(successes, trials + 1)
            )
        )


@given(st.integers(1, 60), st.data(), st.floats(0.5, 0.999))
def test_limits_are_where_the_binomial_sum_says(trials, data, confidence):
    successes = data.draw(st.integers(0, trials))
    low = binomial_lower(successes, trials, confidence)
    high = binomial_upper(successes, trials, confidence)
    if successes:
        assert at_least(successes, trials, low) == pytest.approx(1 - confidence, rel=1e-8)
    if successes < trials:
        assert at_least(successes + 1, trials, high) == pytest.approx(confidence, rel=1e-8)
    assert 0 <= low <= successes / trials <= high <= 1


def test_none_and_all_have_exact_limits():
    assert binomial_lower(0, 7, 0.95) == 0.0
    assert binomial_upper(7, 7, 0.95) == 1.0
    assert binomial_lower(7, 7, 0.95) == pytest.approx(0.05 ** (1 / 7))
    assert binomial_upper(0, 7, 0.95) == pytest.approx(1 - 0.05 ** (1 / 7))


@pytest.mark.parametrize("trials", [1, 10, 100, 1000])
@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_the_best_attack_on_a_gaussian_is_overrated_at_most_as_often_as_stated(mu, trials):
    law = binom(trials, norm.cdf(mu / 2))
    wrong = sum(
        law.pmf(k) for k in range(trials + 1) if mu_from_guesses(k, trials, 0.95) > mu + 1e-12
    )
    assert wrong <= 0.05 + 1e-9


def test_many_guesses_find_nearly_all_of_mu():
    trials = 10**6
    assert mu_from_guesses(round(trials * norm.cdf(0.5)), trials, 0.95) == pytest.approx(
        1, rel=0.01
    )
    assert mu_from_guesses(trials // 2, trials, 0.95) == 0.0
    assert mu_from_guesses(0, trials, 0.95) == 0.0
    assert math.isfinite(mu_from_guesses(trials, trials, 0.95))


def test_rates_overrate_an_attack_at_most_as_often_as_stated():
    """Exact: the worst (ε, δ)-DP test, which has TPR = δ + e^ε FPR, over all outcomes of 15 + 15 runs."""
    runs, delta = 15, 0.05
    for epsilon, fpr in [(0.0, 0.4), (1.0, 0.1), (1.0, 0.25)]:
        tpr = delta + math.exp(epsilon) * fpr
        wrong = sum(
            binom.pmf(f, runs, fpr) * binom.pmf(t, runs, tpr)
            for f in range(runs + 1)
            for t in range(runs + 1)
            if epsilon_from_rates(f, runs, t, runs, delta, 0.5) > epsilon + 1e-12
        )
        assert 0.01 < wrong <= 0.5  # neither too often, nor so seldom that the test says nothing


def test_both_tails_of_an_attack_count():
    one = epsilon_from_rates(0, 1000, 300, 1000, 1e-5, 0.95)
    mirrored = epsilon_from_rates(700, 1000, 1000, 1000, 1e-5, 0.95)
    assert one == pytest.approx(mirrored, rel=1e-9)
    low, high = binomial_lower(300, 1000, 0.975), binomial_upper(0, 1000, 0.975)
    assert one == pytest.approx(math.log((low - 1e-5) / high))


@given(st.integers(0, 20), st.integers(0, 20), st.floats(0, 0.99))
def test_every_outcome_gives_a_finite_epsilon(false, true, delta):
    epsilon = epsilon_from_rates(false, 20, true, 20, delta, 0.95)
    assert 0 <= epsilon < 10
    assert epsilon_from_rates(false, 20, true, 20, min(0.99, delta + 0.01), 0.95) <= epsilon
    assert epsilon_from_rates(false, 20, true, 20, delta, 0.9) >= epsilon


def test_a_band_holds_for_all_thresholds_at_once():
    """400 experiments at 80 %: more than 120 failures have probability below 1e-6."""
    rng, mu, cuts = np.random.default_rng(0), 1.0, np.linspace(-1, 2, 7)
    alpha, beta = norm.sf(cuts), norm.cdf(cuts - mu)
    failures = tighter = 0
    for _ in range(400):
        band = trade_off_band(rng.normal(mu, 1, 200), rng.normal(0, 1, 300), 0.8, cuts)
        holds = (band.alpha_low <= alpha) & (alpha <= band.alpha_high)
        holds &= (band.beta_low <= beta) & (beta <= band.beta_high)
        failures += not holds.all()
        half = band.alpha + (band.alpha_high - band.alpha) / 2
        tighter += not (alpha <= half).all()
    assert binom.sf(120, 400, 0.2) < 1e-6
    assert failures <= 120
    assert tighter > 120  # limits half as wide would not hold


def test_a_band_counts_errors_and_holds_the_single_limits():
    band = trade_off_band([0.0, 1.0, 1.0, 3.0], [0.0, 0.0, 1.0], 0.9, [-1.0, 0.0, 1.0, 5.0])
    np.testing.assert_allclose(band.alpha, [1, 1 / 3, 0, 0])
    np.testing.assert_allclose(band.beta, [0, 1 / 4, 3 / 4, 1])
    share = 1 - 0.1 / 16
    np.testing.assert_allclose(band.alpha_high, [binomial_upper(k, 3, share) for k in (3, 1, 0, 0)])
    np.testing.assert_allclose(band.beta_low, [binomial_lower(k, 4, share) for k in (0, 1, 3, 4)])


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.1, 95, math.nan])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(PlanError, match=r"strictly between 0 and 1; got .* 0\.95 is usual"):
        binomial_lower(1, 2, confidence)
    with pytest.raises(PlanError, match="strictly between 0 and 1"):
        trade_off_band([0.0], [0.0], confidence, [0.0])


@pytest.mark.parametrize(("successes", "trials"), [(3, 2), (-1, 2), (True, 2)])
def test_counts_that_cannot_be_are_refused(successes, trials):
    for bound in (binomial_lower, binomial_upper):
        with pytest.raises(
            PlanError, match="successes must be a whole number from 0 to trials = 2"
        ):
            bound(successes, trials, 0.95)
    with pytest.raises(PlanError, match="correct must be"):
        mu_from_guesses(successes, trials, 0.95)
    with pytest.raises(PlanError, match="false_positives must be"):
        epsilon_from_rates(successes, trials, 1, 2, 0.1, 0.95)


def test_other_values_without_a_meaning_are_refused():
    with pytest.raises(PlanError, match="trials must be a whole number of at least 1; got 0"):
        binomial_lower(0, 0, 0.95)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(PlanError, match="δ must be at least 0 and below 1; got"):
            epsilon_from_rates(1, 2, 1, 2, delta, 0.95)
    for scores in ([], [math.nan], [[1.0]]):
        with pytest.raises(PlanError, match="scores_in must be a non-empty list"):
            trade_off_band(scores, [0.0], 0.95, [0.0])
