"""Conditional composition against enumeration, quadrature, dp-accounting and closed forms."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from antiphon.accounting.correlated import conditional_composition as conditional
from antiphon.accounting.correlated import conditioned
from antiphon.accounting.correlated.conditional_composition import account, least_noise
from antiphon.accounting.independent import pld, unamplified
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Banded, Dense, Independent, LambdaCGD
from antiphon.plans import FixedSize, GaussianRelease, Plan, Poisson


def plan(mechanism, rate=0.3, steps=3, noise=1.5, **other):
    return Plan(
        n=1000,
        sampling=Poisson(rate),
        steps=steps,
        mechanism=mechanism,
        noise_multiplier=noise,
        **other,
    )


def encoder(rng, T):
    C = np.tril(rng.uniform(-1, 1, (T, T)) * rng.uniform(0, 1, (T, T)), -1)
    return C + np.diag(rng.uniform(0.5, 1.5, T))


def patterns(T, rate):
    """All y, and their probabilities."""
    y = np.array(list(product((0, 1), repeat=T)))
    return y, np.prod(np.where(y, rate, 1 - rate), axis=1)


def exact(C, rate, kappa, epsilons, points):
    """H(P‖Q) and H(Q‖P) at each ε by the trapezoidal rule over the 2^T mixture."""
    T = len(C)
    y, weights = patterns(T, rate)
    means = y @ np.abs(C).T / kappa
    axis = np.linspace(-7, 7 + means.max(), points)
    x = np.stack(np.meshgrid(*[axis] * T, indexing="ij"), axis=-1).reshape(-1, T)
    q = np.exp(-(x**2).sum(1) / 2) * ((axis[1] - axis[0]) / math.sqrt(2 * math.pi)) ** T
    L = np.exp(x @ means.T - (means**2).sum(1) / 2) @ weights
    factors = [math.exp(e) for e in epsilons]
    remove = [np.sum(q * np.maximum(L - f, 0)) for f in factors]
    return remove, [np.sum(q * np.maximum(1 - f * L, 0)) for f in factors]


@settings(max_examples=40)
@given(
    T=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    rate=st.floats(0.02, 0.9),
    kappa=st.floats(0.7, 6),
    failure=st.sampled_from([1e-6, 1e-3, 0.02]),
)
def test_certified_is_above_the_truth_in_both_directions(T, seed, rate, kappa, failure):
    C = encoder(np.random.default_rng(seed), T)
    epsilons = (0.01, 0.1, 0.5, 1.5)
    remove, add = exact(C, rate, kappa, epsilons, {1: 4001, 2: 500, 3: 70}[T])
    wanted = plan(Dense(C), rate, T, kappa)
    whole = conditional._composed(wanted, np.abs(C), rate, kappa, failure)
    certified = account(wanted, failures=(failure,)).profile
    for epsilon, forth, back in zip(epsilons, remove, add, strict=True):
        assert whole._pmf_remove.get_delta_for_epsilon(epsilon) + failure >= forth - 1e-6
        assert whole._pmf_add.get_delta_for_epsilon(epsilon) + failure >= back - 1e-6
        assert certified.delta(epsilon) >= max(forth, back) - 1e-6


@pytest.mark.parametrize("remove", [True, False])
def test_thresholds_fail_no_more_often_than_they_say(remove, draws=200_000, failure=0.05):
    rng = np.random.default_rng(0)
    for C, rate, kappa in (
        (np.abs(encoder(rng, 4)), 0.3, 1.0),
        (np.array(LambdaCGD(0.7).encoder(5)), 0.1, 2.0),
        (np.array(Banded((1.0, 0.6)).encoder(6)), 0.5, 0.7),
    ):
        T = len(C)
        p = conditional._posteriors(C, rate, kappa, failure, remove=remove)
        y = rng.random((draws, T)) < (rate if remove else 0.0)
        x = y @ C.T + kappa * rng.standard_normal((draws, T))
        fails = np.zeros(draws, bool)
        for t in range(T):
            for s in np.nonzero(C[t, :t])[0]:
                c = C[:t, s]
                odds = np.log(rate / (1 - rate)) + (x[:, :t] @ c - c @ c / 2) / kappa**2
                fails |= odds > np.log(p[t, s] / (1 - p[t, s]))
        assert fails.sum() <= binom.isf(1e-6, draws, failure)
        if not remove:  # exact quantiles: only the union bound is lost
            assert fails.mean() > failure / 4


def test_laws_dominate_the_posterior_where_no_threshold_fails(T=5, rate=0.25, kappa=1.2):
    rng = np.random.default_rng(1)
    checked = 0
    for _ in range(30):
        C = np.abs(encoder(rng, T))
        p = conditional._posteriors(C, rate, kappa, 0.5, remove=False)
        y, prior = patterns(T, rate)
        x = (rng.random(T) < rate) @ C.T + kappa * rng.standard_normal(T)
        for t in range(1, T):
            odds = np.log(rate / (1 - rate)) + (
                C[:t, :t].T @ x[:t] - (C[:t, :t] ** 2).sum(0) / 2
            ) / (kappa**2)
            if (odds > np.log(p[t, :t] / (1 - p[t, :t]))).any():
                break
            means = y @ C[:t].T
            posterior = prior * np.exp((means @ x[:t] - (means**2).sum(1) / 2) / kappa**2)
            sums = y[:, : t + 1] @ C[t, : t + 1]
            law = conditional._law(C[t, : t + 1], p[t, : t + 1])
            for level in np.unique(sums):
                above = posterior[sums >= level].sum() / posterior.sum()
                # Rounding up may only move mass upwards.
                assert law.probabilities[law.means >= level].sum() >= above - 1e-12
            checked += 1
    assert checked > 30


def test_laws_are_rounded_up_and_not_by_much():
    rng = np.random.default_rng(2)
    weights, chances = 0.9 ** np.arange(60), rng.uniform(0.01, 0.2, 60)
    law = conditional._law(weights, chances)
    assert law.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert len(law.means) <= 130
    draws = (rng.random((100_000, 60)) < chances) @ weights
    for level in (0.05, 0.2, 0.5, 1.0, 2.0):
        limit = binom.isf(1e-6, 100_000, min(1.0, law.probabilities[law.means >= level].sum()))
        assert (draws >= level).sum() <= limit
    mean = float(weights @ chances)
    assert mean < law.means @ law.probabilities < 1.03 * mean


@pytest.mark.parametrize("remove", [True, False])
def test_privacy_loss_of_a_mixture_equals_quadrature_and_dp_accounting(remove):
    means, chances, kappa = [0.0, 0.5, 1.7], [0.85, 0.1, 0.05], 1.3
    found = conditional._pmf(
        conditional._Law(np.array(means), np.array(chances)), kappa, 1e-4, remove=remove
    )
    theirs = MixtureGaussianPrivacyLoss(
        kappa, means, chances, adjacency_type=AdjacencyType.REMOVE if remove else AdjacencyType.ADD
    )
    x = np.linspace(-15, 20, 200_001)
    q = norm.pdf(x, scale=kappa)
    p = sum(c * norm.pdf(x, m, kappa) for m, c in zip(means, chances, strict=True))
    for epsilon in (-0.1, 0.0, 0.05, 0.12, 0.8, 2.0):
        f, (top, base) = math.exp(epsilon), (p, q) if remove else (q, p)
        true = np.sum(np.maximum(top - f * base, 0)) * (x[1] - x[0])
        assert found.get_delta_for_epsilon(epsilon) == pytest.approx(true, rel=1e-4, abs=1e-8)
        assert found.get_delta_for_epsilon(epsilon) >= true - 1e-9
        assert theirs.get_delta_for_epsilon([epsilon])[0] == pytest.approx(true, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("mechanism", [Independent(), LambdaCGD(0.0), Banded((-2.0,))])
@pytest.mark.parametrize(("rate", "steps", "noise"), [(0.01, 1000, 1.4), (0.2, 50, 3.0)])
def test_independent_noise_gives_the_pld_of_dp_sgd(mechanism, rate, steps, noise):
    wanted = plan(mechanism, rate, steps, noise)
    ours, theirs = account(wanted).profile, pld.account(wanted).profile
    for epsilon in (0.2, 1.0, 2.0):
        assert ours.delta(epsilon) == pytest.approx(theirs.delta(epsilon), rel=2e-3, abs=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_one_step_is_the_subsampled_gaussian(rate):
    wanted = plan(LambdaCGD(0.9), rate, 1, 0.8)
    ours, theirs = account(wanted).profile, pld.account(wanted).profile
    for epsilon in (0.1, 1.0, 3.0):
        assert ours.delta(epsilon) == pytest.approx(theirs.delta(epsilon), rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("mechanism", [LambdaCGD(0.6), Banded((1.0, -0.5, 0.25))])
def test_rate_one_is_the_gaussian(mechanism):
    wanted = plan(mechanism, 1.0, 12, 6.0)
    ours, theirs = account(wanted).profile, unamplified.account(wanted).profile
    for epsilon in (0.5, 1.0, 3.0):
        assert theirs.delta(epsilon) * (1 - 1e-6) <= ours.delta(epsilon)
        assert ours.delta(epsilon) <= theirs.delta(epsilon) * 1.01


def test_less_noise_or_more_steps_or_a_larger_rate_means_more():
    def delta(rate, steps, noise):
        wanted = plan(LambdaCGD(0.5), rate, steps, noise)
        return account(wanted, failures=(1e-7,)).profile.delta(1.0)

    base = delta(0.05, 12, 4.0)
    assert min(delta(0.05, 12, 3.5), delta(0.05, 16, 4.0), delta(0.07, 12, 4.0)) > base


@pytest.mark.slow
def test_a_thousand_steps_beat_conditioning_on_participations():
    wanted = plan(LambdaCGD(0.5), 0.01, 1000, None)
    noise = least_noise(wanted, 1.0, 1e-5)
    assert account(wanted.with_noise(noise)).profile.delta(1.0) <= 1e-5
    assert account(wanted.with_noise(0.995 * noise)).profile.delta(1.0) > 1e-5
    assert 2.58 < noise < 0.4 * conditioned.least_noise(wanted, 1.0, 1e-5)


def test_signs_of_the_encoder_do_not_matter_and_zero_out_equals_add_remove():
    one = account(plan(Banded((1.0, -0.5)), steps=5)).profile.delta(1.0)
    assert account(plan(Banded((1.0, 0.5)), steps=5)).profile.delta(1.0) == one
    assert account(plan(Banded((1.0, 0.5)), steps=5, relation="zero-out")).profile.delta(1.0) == one


def test_releases_beside_training_are_paid_for():
    alone = account(plan(LambdaCGD(0.5))).profile
    both = account(plan(LambdaCGD(0.5), extra=(GaussianRelease(0.5),))).profile
    assert both.delta(1.0) > alone.delta(1.0)


def test_the_account_names_its_theorem_and_its_failure():
    found = account(plan(LambdaCGD(0.5)))
    assert found.route == "conditional composition"
    assert "MatrixAmplification24" in found.references
    assert not found.is_tight
    assert "1e-07 or 1e-10" in found.theorem
    assert found.profile.epsilon(1e-11) == math.inf  # below every δ₁ nothing is proved
    assert found.profile.epsilon(1e-9) < math.inf


def test_what_cannot_be_bounded_is_refused():
    with pytest.raises(UnsupportedError, match="Poisson"):
        account(Plan(n=10, sampling=FixedSize(2), steps=3, mechanism=LambdaCGD(0.5)))
    with pytest.raises(UnsupportedError, match="replace-one"):
        account(plan(LambdaCGD(0.5), relation="replace-one"))
    with pytest.raises(UnsupportedError, match="steps"):
        account(plan(LambdaCGD(0.5), steps=5000))
    with pytest.raises(UnsupportedError, match="leaves nothing"):
        least_noise(plan(LambdaCGD(0.5)), 1.0, 1e-11)
    with pytest.raises(PlanError):
        least_noise(plan(LambdaCGD(0.5)), -1.0, 1e-5)
    with pytest.raises(PlanError, match="noise multiplier"):
        account(plan(LambdaCGD(0.5), noise=None))
