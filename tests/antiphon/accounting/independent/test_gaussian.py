"""Exact Gaussian accounting, against mpmath and the published table."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.accounting.curve import GaussianProfile, NumericalProfile
from antiphon.accounting.independent.gaussian import (
    compose_gaussians,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_trade_off,
)
from antiphon.errors import PlanError


def exact_delta(mu, epsilon):
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@given(st.floats(0.01, 20), st.floats(-3, 30))
def test_the_profile_is_that_of_fifty_digits(mu, epsilon):
    exact = exact_delta(mu, epsilon)
    if exact < 1e-250:
        return
    assert float(gaussian_delta(mu, epsilon)) == pytest.approx(float(exact), rel=1e-7, abs=0)


@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
def test_the_profile_is_within_1e_9_of_the_formula_where_it_matters(mu):
    for epsilon in (0.0, 0.5, 1.0, 4.0, 8.0):
        assert float(gaussian_delta(mu, epsilon)) == pytest.approx(
            float(exact_delta(mu, epsilon)), abs=1e-9, rel=1e-9
        )


@given(st.floats(1e-3, 50), st.floats(-280, -0.01))
def test_epsilon_is_the_smallest_that_is_proved(mu, log_delta):
    delta = math.exp(log_delta)
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon > 1e-9:
        assert gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta


@given(st.floats(1e-3, 100), st.floats(-60, -0.01))
def test_the_noise_for_a_budget_inverts_the_accounting(epsilon, log_delta):
    delta = math.exp(log_delta)
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_delta(mu * (1 + 1e-6), epsilon) > delta * (1 - 1e-3)


@pytest.mark.parametrize(
    ("rho", "delta", "once", "replaced"),
    [
        (0.1, 1e-5, 1.76005715, 3.84861028),
        (0.5, 1e-5, 4.37717810, 9.99725615),
        (1.0, 1e-5, 6.57297007, 15.45615582),
        (0.05, 1e-6, 1.36757148, 2.92160059),
    ],
)
def test_acceptance_dp_ftrl_15_exact_gdp_column_of_the_zcdp_table(rho, delta, once, replaced):
    mu = math.sqrt(2 * rho)
    assert gaussian_epsilon(mu, delta) == pytest.approx(once, abs=1e-7)
    assert gaussian_epsilon(2 * mu, delta) == pytest.approx(replaced, abs=1e-7)


def test_acceptance_dp_ftrl_15_mu_of_a_budget():
    wanted = {
        1: 0.26805112,
        2: 0.50155169,
        4: 0.92493090,
        8: 1.66603060,
        10: 2.00044562,
        20: 3.44778345,
    }
    for epsilon, mu in wanted.items():
        assert gaussian_mu(epsilon, 1e-5) == pytest.approx(mu, abs=1e-8)


def test_acceptance_kan_correlated_dpsgd_9_noise_for_unit_sensitivity():
    for epsilon, noise in {1: 3.73063163, 0.5: 7.03182668, 2: 1.99381245, 8: 0.60022907}.items():
        assert 1 / gaussian_mu(epsilon, 1e-5) == pytest.approx(noise, abs=1e-7)


def test_no_noise_at_all_and_no_release_at_all_are_the_limits():
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_delta(1e-9, 1.0) == 0.0
    assert gaussian_delta(200.0, 1.0) == pytest.approx(1.0)
    assert gaussian_epsilon(1e-6, 1e-5) == 0.0


def test_releases_compose_in_quadrature():
    assert compose_gaussians([3.0, 4.0]) == pytest.approx(5.0)
    assert compose_gaussians([]) == 0.0


@given(st.floats(0.05, 4), st.floats(1e-4, 0.5))
def test_the_trade_off_curve_is_below_every_line_that_the_profile_allows(mu, false_positive):
    best = float(gaussian_trade_off(mu, false_positive))
    lines = NumericalProfile(lambda e: float(gaussian_delta(mu, e)))
    assert best <= lines.true_positive(false_positive) + 1e-12
    assert lines.true_positive(false_positive) <= best * 1.02 + 1e-9
    assert false_positive <= best <= 1


def test_advantage_and_accuracy_are_those_of_the_best_attack():
    profile = GaussianProfile(1.0)
    gain = max(float(gaussian_trade_off(1.0, a)) - a for a in np.linspace(1e-4, 1 - 1e-4, 9999))
    assert profile.advantage() == pytest.approx(gain, abs=1e-6)
    assert profile.accuracy() == pytest.approx(0.5 + gain / 2, abs=1e-6)


def test_a_numerical_profile_answers_with_a_proved_point():
    profile = NumericalProfile(lambda e: float(gaussian_delta(1.0, e)))
    epsilon = profile.epsilon(1e-5)
    assert profile.delta(epsilon) <= 1e-5
    assert epsilon == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-8)
    assert NumericalProfile(lambda e: 0.5).epsilon(1e-5) == math.inf


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta):
    with pytest.raises(PlanError, match="strictly between 0 and 1"):
        gaussian_epsilon(1.0, delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_is_no_budget_is_refused(epsilon):
    with pytest.raises(PlanError, match="ε must be positive"):
        gaussian_mu(epsilon, 1e-5)


@pytest.mark.parametrize("mu", [-1.0, math.nan])
def test_a_negative_mu_is_refused(mu):
    with pytest.raises(PlanError, match="non-negative"):
        gaussian_delta(mu, 1.0)
    with pytest.raises(PlanError, match="non-negative"):
        gaussian_epsilon(mu, 1e-5)
