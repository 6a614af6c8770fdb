"""Composition by privacy loss distributions."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.integrate import quad
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from antiphon.accounting import calibrate, most_steps
from antiphon.accounting.account import is_independent
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.independent import pld, unamplified
from antiphon.accounting.independent.gaussian import gaussian_delta, gaussian_epsilon
from antiphon.accounting.independent.pld import _bracket, _secant
from antiphon.accounting.search.registry import best_account
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Banded, Dense, Independent, LambdaCGD, NuFTRL, Restarted, Tree
from antiphon.plans import (
    BallsInBins,
    Block,
    CyclicPoisson,
    FixedSize,
    FullBatch,
    GaussianRelease,
    OnePass,
    Plan,
    Poisson,
    PureRelease,
    ShuffledEpochs,
)


def plan(sampling, steps, relation="add-remove", noise=None, mechanism=None, n=10_000, **rest):
    return Plan(
        n=n,
        sampling=sampling,
        steps=steps,
        mechanism=mechanism or Independent(),
        relation=relation,
        noise_multiplier=noise,
        **rest,
    )


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(0.01, 1.0, 100), (0.1, 2.0, 10), (0.001, 0.7, 1000)]
)
def test_poisson_is_within_half_a_percent_of_dp_accounting_and_above_its_optimistic_estimate(
    rate, noise, steps
):
    profile = pld.account(plan(Poisson(rate), steps, noise=noise)).profile
    ours = profile.epsilon(1e-5)
    pessimistic, optimistic = (
        privacy_loss_distribution.from_gaussian_mechanism(
            noise, sampling_prob=rate, value_discretization_interval=1e-4, pessimistic_estimate=side
        ).self_compose(steps)
        for side in (True, False)
    )
    assert ours <= pessimistic.get_epsilon_for_delta(1e-5) * 1.005
    assert ours >= optimistic.get_epsilon_for_delta(1e-5)


def test_one_step_is_the_subsampled_gaussian():
    rate, sigma = 0.2, 1.3
    profile = pld.account(plan(Poisson(rate), 1, noise=sigma)).profile
    for epsilon in (0.1, 0.5, 1.0):

        def remove(x, e=epsilon):
            mixture = (1 - rate) * norm.pdf(x, 0, sigma) + rate * norm.pdf(x, 1, sigma)
            return max(0.0, mixture - math.exp(e) * norm.pdf(x, 0, sigma))

        assert profile.delta(epsilon) == pytest.approx(
            quad(remove, -15, 15, limit=400)[0], rel=1e-4
        )


def test_replace_one_under_poisson_is_a_mixture_against_its_mirror():
    rate, sigma, epsilon = 0.3, 1.0, 0.5
    profile = pld.account(plan(Poisson(rate), 1, "replace-one", noise=sigma)).profile

    def excess(x):
        there, back = (
            (1 - rate) * norm.pdf(x, 0, sigma) + rate * norm.pdf(x, m, sigma) for m in (1, -1)
        )
        return max(0.0, there - math.exp(epsilon) * back)

    assert profile.delta(epsilon) == pytest.approx(quad(excess, -15, 15, limit=400)[0], rel=1e-5)


def test_rate_one_is_the_gaussian_answer():
    numerical = pld.account(plan(Poisson(1.0), 10, noise=8.0)).profile.epsilon(1e-5)
    exact = unamplified.account(plan(FullBatch(), 10, noise=8.0)).profile.epsilon(1e-5)
    assert numerical == pytest.approx(exact, rel=1e-3)
    assert numerical >= exact


@pytest.mark.parametrize(
    ("relation", "wanted"),
    [
        ("replace-one", {0.5: 5.253, 1: 3.18, 2: 2.10, 8: 1.22}),
        ("zero-out", {1: 2.43, 2: 1.82}),
    ],
)
def test_acceptance_kan_correlated_dpsgd_19_fixed_size_noise(relation, wanted):
    lower = {0.5: 3.04, 1: 2.16, 2: 1.68, 8: 1.085}
    for epsilon, noise in wanted.items():
        question = plan(FixedSize(100), 1000, relation)
        at, below = (
            pld.account(question.with_noise(noise * f), grid=1e-3).profile.epsilon(1e-5)
            for f in (1.01, 0.99)
        )
        assert at <= epsilon <= below
        assert noise > lower[epsilon]


@pytest.mark.parametrize(
    ("sampling", "steps", "budget", "wanted"),
    [
        (Poisson(0.01), 1000, (1.0, 1e-5), 1.4147),
        (Poisson(0.01), 1000, (3.0, 1e-6), 0.8653),
        (Poisson(0.01), 10_000, (3.0, 1e-6), 1.7083),
        (FullBatch(), 100, (1.0, 1e-5), 37.3063),
    ],
)
def test_calibration_meets_the_published_noise_and_is_certified(sampling, steps, budget, wanted):
    epsilon, delta = budget
    found = calibrate(plan(sampling, steps), epsilon, delta)
    assert found.noise_multiplier == pytest.approx(wanted, rel=6e-4)
    assert best_account(found, delta).profile.epsilon(delta) <= epsilon
    less = found.with_noise(found.noise_multiplier * 0.995)
    assert best_account(less, delta).profile.epsilon(delta) > epsilon


@pytest.mark.parametrize(
    ("rate", "steps", "budget", "wanted"),
    [
        (256 / 60_000, 4688, (1.0, 1e-5), 1.3065),
        (256 / 60_000, 4688, (8.0, 1e-5), 0.5645),
        (0.01, 1000, (3.0, 1e-6), 0.8653),
        (0.01, 10_000, (3.0, 1e-6), 1.7084),
        (1.0, 100, (1.0, 1e-5), 37.306),
    ],
)
def test_the_benchmark_plans_are_calibrated_with_few_fine_evaluations(
    monkeypatch, rate, steps, budget, wanted
):
    seen, account = [], pld.account

    def counting(question, *, grid=None):
        seen.append(grid)
        return account(question, grid=grid)

    monkeypatch.setattr(pld, "account", counting)
    noise = pld.least_noise(plan(Poisson(rate), steps, n=60_000), *budget)
    assert noise == pytest.approx(wanted, rel=1e-4)
    assert seen.count(None) <= 3
    assert len(seen) <= 12
    certified = account(plan(Poisson(rate), steps, noise=noise, n=60_000)).profile
    assert certified.epsilon(budget[1]) <= budget[0]


def test_calibration_beside_a_costly_release():
    found = calibrate(plan(Poisson(0.01), 100, extra=(PureRelease(0.9),)), 1.0, 1e-5)
    assert pld.account(found).profile.epsilon(1e-5) <= 1.0
    less = found.with_noise(found.noise_multiplier * 0.998)
    assert pld.account(less).profile.epsilon(1e-5) > 1.0


def test_the_search_for_noise_brackets_from_either_side():
    for root in (-3.0, 0.01, 4.0):
        low, high = _bracket(lambda x, root=root: 20 * (root - x) + (root - x) ** 3, 0.0)
        assert low < root <= high
        found, slope = _secant(lambda x, root=root: 20 * (root - x) + (root - x) ** 3, low, high)
        assert found == pytest.approx(root, abs=1e-4)
        assert slope == pytest.approx(-20, rel=0.3)
    with pytest.raises(UnsupportedError, match="no noise below a multiplier of a million"):
        _bracket(lambda x: 1.0, 0.0)


def test_a_banded_encoder_under_cyclic_poisson_is_dp_sgd_of_one_group():
    coef = (1.0, 0.5, 0.25)
    cyclic = plan(CyclicPoisson(0.1, cycle=4), 40, noise=2.0, mechanism=Banded(coef))
    alone = plan(Poisson(0.1), 10, noise=2.0 / np.linalg.norm(coef))
    ours, theirs = (pld.account(p, grid=1e-4).profile.epsilon(1e-5) for p in (cyclic, alone))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_independent_noise_is_recognised_in_any_dress():
    wanted = pld.account(plan(Poisson(0.1), 6, noise=1.0), grid=1e-3).profile.epsilon(1e-5)
    for same in (LambdaCGD(0.0), Banded((1.0,)), Dense(np.eye(6))):
        dressed = plan(Poisson(0.1), 6, noise=1.0, mechanism=same)
        assert pld.account(dressed, grid=1e-3).profile.epsilon(1e-5) == pytest.approx(wanted)
    scaled = plan(Poisson(0.1), 6, noise=2.0, mechanism=Banded((2.0,)))
    assert pld.account(scaled, grid=1e-3).profile.epsilon(1e-5) == pytest.approx(wanted)


def test_two_blocks_are_one_gaussian_of_their_joint_noise():
    blocks = (Block("first", 1.0, 3.0), Block("second", 0.5, 4.0))
    joint = plan(FullBatch(), 1, blocks=blocks)
    assert unamplified.account(joint).profile.epsilon(1e-5) == pytest.approx(
        gaussian_epsilon(math.hypot(1 / 3, 1 / 4), 1e-5)
    )
    with pytest.raises(PlanError, match="noise multipliers of their own"):
        calibrate(joint, 1.0, 1e-5)


def test_releases_beside_training_are_paid_for():
    gaussian = plan(FullBatch(), 4, noise=4.0, extra=(GaussianRelease(0.5, "a threshold"),))
    mu = math.hypot(0.5, 2 / 4)
    assert unamplified.account(gaussian).profile.epsilon(1e-5) == pytest.approx(
        gaussian_epsilon(mu, 1e-5)
    )
    alone = plan(Poisson(0.1), 10, noise=1.0)
    both = plan(Poisson(0.1), 10, noise=1.0, extra=(PureRelease(0.3, "bounds"),))
    first, second = (pld.account(p, grid=1e-3).profile.epsilon(1e-5) for p in (alone, both))
    assert first < second <= first + 0.3 + 1e-6
    with pytest.raises(UnsupportedError, match="PLD accountant can"):
        unamplified.account(both)
    budgeted = calibrate(plan(FullBatch(), 4, extra=(GaussianRelease(0.1),)), 1.0, 1e-5)
    assert best_account(budgeted, 1e-5).profile.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(PlanError, match="already cost more"):
        calibrate(plan(FullBatch(), 4, extra=(GaussianRelease(3.0),)), 1.0, 1e-5)


def test_multi_epoch_ftrl_needs_the_noise_of_the_specification():
    # dp-ftrl V4: the single-pass noise would be seven to thirty times too weak.
    for epsilon, noise in {1: 33.177737, 4: 9.615129, 10: 4.445674}.items():
        question = plan(ShuffledEpochs(500), 2000, "zero-out", mechanism=NuFTRL(0.0037), n=50_000)
        worst = unamplified.account(question.with_noise(noise)).profile.epsilon(1e-5)
        assert worst == pytest.approx(epsilon, rel=1e-6)
        # The random place in the order saves half a per cent.
        assert 0.99 * noise < calibrate(question, epsilon, 1e-5).noise_multiplier < noise


def test_acceptance_kan_correlated_dpsgd_25_cyclic_participation_without_amplification():
    for lam, noise in {0.0: 11.797293, 0.5: 13.622341, 0.9: 27.065493}.items():
        question = plan(BallsInBins(100), 1000, mechanism=LambdaCGD(lam))
        found = unamplified.account(question.with_noise(noise * (1 + 1e-7))).profile.epsilon(1e-5)
        assert found == pytest.approx(1.0, abs=1e-6)


def test_replacing_doubles_the_noise_of_every_unamplified_plan():
    once = calibrate(plan(OnePass(100), 100, "zero-out", mechanism=Tree()), 2.0, 1e-5)
    twice = calibrate(plan(OnePass(100), 100, "replace-one", mechanism=Tree()), 2.0, 1e-5)
    assert twice.noise_multiplier == pytest.approx(2 * once.noise_multiplier)


def test_more_steps_a_higher_rate_and_less_noise_never_lower_epsilon():
    def epsilon(rate=0.05, steps=20, noise=1.2):
        return pld.account(plan(Poisson(rate), steps, noise=noise), grid=1e-3).profile.epsilon(1e-5)

    base = epsilon()
    assert epsilon(steps=21) >= base
    assert epsilon(rate=0.06) >= base
    assert epsilon(noise=1.1) >= base


def test_most_steps_fills_the_budget_and_no_more():
    question = plan(Poisson(0.05), 60, noise=1.0)
    found = most_steps(question, 2.0, 1e-5)
    assert 1 <= found.steps < 60
    from dataclasses import replace

    assert best_account(found, 1e-5).profile.epsilon(1e-5) <= 2.0
    longer = replace(found, steps=found.steps + 1)
    assert best_account(longer, 1e-5).profile.epsilon(1e-5) > 2.0
    assert most_steps(plan(FullBatch(), 3, noise=50.0), 2.0, 1e-5).steps == 3
    with pytest.raises(PlanError, match="not even one step"):
        most_steps(plan(FullBatch(), 3, noise=0.1), 1.0, 1e-5)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (plan(Poisson(0.1), 10, noise=1.0, mechanism=LambdaCGD(0.5)), "steps are not independent"),
        (
            plan(CyclicPoisson(0.1, 2), 10, noise=1.0, mechanism=Banded((1.0, 0.5, 0.2))),
            "at most 2 bands",
        ),
        (plan(CyclicPoisson(0.1, 2), 10, noise=1.0, mechanism=NuFTRL(0.1)), "at most 2 bands"),
        (plan(FixedSize(10), 10, noise=1.0), "no amplified bound for add-remove"),
        (plan(FixedSize(10_000), 10, "zero-out", noise=1.0), "FullBatch"),
        (plan(ShuffledEpochs(10), 10, "zero-out", noise=1.0), "Poisson or FixedSize"),
    ],
)
def test_what_the_pld_accountant_cannot_prove_it_refuses(question, message):
    with pytest.raises(UnsupportedError, match=message):
        pld.account(question)


@pytest.mark.parametrize("sampling", [OnePass(10), ShuffledEpochs(10), FixedSize(10)])
def test_places_given_by_row_are_refused_under_add_remove(sampling):
    with pytest.raises(UnsupportedError, match="not a change of one record"):
        unamplified.account(plan(sampling, 10, noise=1.0))


def test_a_correlated_plan_under_poisson_costs_at_most_its_worst_pattern():
    question = plan(Poisson(0.1), 4, noise=5.0, mechanism=LambdaCGD(0.5))
    worst = np.linalg.norm(LambdaCGD(0.5).encoder(4).sum(1))
    alone = unamplified.account(question)
    assert alone.profile.delta(1.0) == pytest.approx(float(gaussian_delta(worst / 5.0, 1.0)))
    assert not alone.is_tight
    found = best_account(question, 1e-5)
    assert found.route == "moments"
    assert found.profile.epsilon(1e-5) <= alone.profile.epsilon(1e-5)


def test_no_route_at_all_names_every_reason():
    with pytest.raises(UnsupportedError, match=r"gaussian, rdp: .*pld: .*conditioned: .*moments: "):
        best_account(plan(FixedSize(10), 10, noise=1.0, mechanism=Tree()), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "enough", "too_little"),
    [(0.05, 0.76, 0.7218), (0.2, 1.01 * 0.574, 0.99 * 0.574), (0.5, 1.01 * 0.517, 0.99 * 0.517)],
)
def test_acceptance_relu_7_poisson_with_one_record_per_step(epsilon, enough, too_little):
    # The specification's 0.798 at ε = 0.05 is from a coarser grid: less is proved to be enough, and the
    # central limit's 0.7218 is too little.
    n, delta = 16512, 16512**-1.1
    for noise, is_enough in ((enough, True), (too_little, False)):
        profile = pld.account(plan(Poisson(1 / n), n, noise=noise, n=n)).profile
        assert (profile.delta(epsilon) <= delta) is is_enough


@pytest.mark.parametrize(("steps", "noise"), [(1000, 40.0), (10_000, 100.0)])
def test_what_transforms_lose_is_made_up_for(steps, noise):
    """At rate 1 the truth is Gaussian; without an allowance δ = 1e-12 came out 16 % too small."""
    profile = pld.account(plan(Poisson(1.0), steps, noise=noise)).profile
    for delta in (1e-8, 1e-10, 1e-11, 1e-12):
        assert profile.epsilon(delta) >= gaussian_epsilon(math.sqrt(steps) / noise, delta)
    assert profile.epsilon(1e-15) == math.inf


def test_a_restarted_mechanism_of_more_blocks_than_a_corner_is_certified():
    question = plan(FullBatch(), 8, noise=20.0, mechanism=Restarted(LambdaCGD(0.5), 4))
    assert best_account(question, 1e-5).profile.epsilon(1e-5) > 0
    assert is_independent(Restarted(Independent(), 4), 8)
    apart = plan(Poisson(0.1), 8, noise=2.0, mechanism=Restarted(Independent(), 4))
    plain = plan(Poisson(0.1), 8, noise=2.0)
    assert best_account(apart, 1e-5).profile.epsilon(1e-5) == pytest.approx(
        best_account(plain, 1e-5).profile.epsilon(1e-5)
    )


def test_a_curve_that_is_no_number_proves_nothing():
    profile = NumericalProfile(lambda epsilon: math.nan)
    assert profile.delta(1.0) == 1.0
    assert profile.epsilon(1e-5) == math.inf


def test_the_number_of_threads_changes_no_digit():
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            profile = pld.account(plan(Poisson(0.125), 8, noise=4.0)).profile
            found.append((profile.delta(0.2), profile.epsilon(1e-3)))
    assert found[0] == found[1]
