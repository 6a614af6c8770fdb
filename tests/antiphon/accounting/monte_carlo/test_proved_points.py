"""Points proved by Monte Carlo: found, proved with fresh paths, remembered, and quoted honestly."""

import math
from dataclasses import replace
from importlib import import_module

import pytest

import antiphon as ap
from antiphon import cache
from antiphon.accounting.correlated import mixture
from antiphon.accounting.correlated.lambda_pair import LambdaPair
from antiphon.accounting.monte_carlo import proved_points as certification
from antiphon.accounting.monte_carlo.confidence import Certified
from antiphon.accounting.monte_carlo.proved_points import (
    FAILURE,
    Point,
    least_epsilon,
    least_noise,
    prove,
)
from antiphon.accounting.monte_carlo.sampled import AbstractSampled
from antiphon.accounting.search.edition import edition
from antiphon.accounting.search.registry import curves
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Banded, Independent, LambdaCGD, NuFTRL
from antiphon.plans import GaussianRelease, PureRelease

DELTA = 1e-2
calibrate_module = import_module("antiphon.accounting.search.calibration")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def shared_cache(kept, monkeypatch):
    """Calibrations that several tests look at are made once."""
    monkeypatch.setenv("ANTIPHON_CACHE", str(kept))


@pytest.fixture
def plan():
    return ap.Plan(n=1000, sampling=ap.Poisson(0.1), steps=20, mechanism=LambdaCGD(0.5))


def test_calibrated_noise_is_certified_and_close_to_the_lower_bound(shared_cache, plan):
    found = ap.calibrate(plan, epsilon=1.0, delta=DELTA)
    pair = LambdaPair(0.5, 0.1, 20, found.noise_multiplier)
    assert pair.estimate(1.0, seed=9).delta < DELTA
    less = LambdaPair(0.5, 0.1, 20, found.noise_multiplier / 1.3)
    assert less.lower_bound(1.0, seed=9, paths=20_000) > DELTA
    certificate = ap.certify(found, DELTA)
    assert certificate.epsilon == 1.0  # the point it was calibrated for, not one more
    assert certificate.route == "mixture"
    assert certificate.confidence == pytest.approx(1 - FAILURE, abs=1e-12)
    assert "wrong with probability at most 1e-06" in str(certificate)
    assert not certificate.is_tight


def test_the_same_point_is_certified_elsewhere_without_the_cache(shared_cache, plan, monkeypatch):
    found = ap.calibrate(plan, epsilon=1.0, delta=DELTA)
    monkeypatch.setenv("ANTIPHON_CACHE", "")
    assert ap.certify(found, DELTA, epsilon=1.0).epsilon == 1.0
    searched = ap.certify(found, DELTA).epsilon
    assert 0.9 < searched < 1.1


def test_a_calibration_is_remembered_and_draws_nothing_again(plan, monkeypatch):
    first = ap.calibrate(plan, epsilon=1.0, delta=DELTA)
    monkeypatch.setattr(certification, "prove", None)
    assert ap.calibrate(plan, epsilon=1.0, delta=DELTA) == first


def test_one_proof_serves_data_of_every_size_and_clip_norm(plan, monkeypatch):
    first = ap.calibrate(plan, epsilon=1.0, delta=DELTA)
    other = replace(plan, n=70_000, clip_norm=0.3)
    monkeypatch.setattr(certification, "prove", None)
    found = ap.calibrate(other, epsilon=1.0, delta=DELTA)
    assert found == other.with_noise(first.noise_multiplier)
    certificate = ap.certify(found, DELTA)
    assert certificate.epsilon == 1.0
    assert certificate.plan.n == 70_000


@pytest.mark.parametrize("sampling", [ap.Poisson(0.1), ap.BallsInBins(10)], ids=["Poisson", "bins"])
def test_what_is_sampled_is_the_same_for_data_of_every_size_and_clip_norm(plan, sampling):
    plan = replace(plan, sampling=sampling)
    small, large = (mixture.route(p) for p in (plan, replace(plan, n=70_000, clip_norm=0.3)))
    estimates = [route.at(1.5).estimate(0.5, seed=1, paths=200) for route in (small, large)]
    assert estimates[0] == estimates[1]
    assert certification.identity(plan) == certification.identity(replace(plan, n=5000))


def test_batches_of_a_fixed_size_have_a_proof_for_each_number_of_records(plan):
    fixed = replace(plan, sampling=ap.FixedSize(100), relation="zero-out")
    assert certification.identity(fixed) != certification.identity(replace(fixed, n=2000))
    for change in ({"steps": 21}, {"mechanism": LambdaCGD(0.4)}, {"relation": "zero-out"}):
        assert certification.identity(plan) != certification.identity(replace(plan, **change))


def test_more_paths_need_less_noise(shared_cache, plan, monkeypatch):
    monkeypatch.setattr(calibrate_module, "curves", lambda tight=False: curves())
    usual = ap.calibrate(plan, 1.0, DELTA).noise_multiplier
    assert ap.calibrate(plan, 1.0, DELTA, tight=True).noise_multiplier < usual


def test_an_epsilon_that_is_not_proved_is_refused(plan):
    noisy = plan.with_noise(1.5)
    with pytest.raises(PlanError, match="not proved"):
        ap.certify(noisy, DELTA, epsilon=0.2)


def test_attacks_come_from_a_band_and_contain_the_truth(plan):
    found = ap.certify(plan.with_noise(2.0), DELTA)
    pair = LambdaPair(0.5, 0.1, 20, 2.0)
    truth = pair.estimate(1e-9, seed=3, paths=20_000)
    assert truth.delta - 4.9 * truth.standard_error < found.attacks.advantage < 1.2 * truth.delta
    assert found.attacks.accuracy == pytest.approx((1 + found.attacks.advantage) / 2)
    assert 0.01 < found.attacks.true_positive_at_1_percent < 0.2


def test_a_profile_is_the_last_limit_proved_and_never_rises():
    band = tuple(0.3 / (1 + i) for i in range(len(certification.BAND)))
    profile = Point(1.0, 1.2, 1e-3, FAILURE, 100, "mixture", band).profile
    values = [profile.delta(e) for e in (0.0, 0.05, 0.5, 1.19, 1.2, 3.0, 20.0)]
    assert values == sorted(values, reverse=True)
    assert values[0] == band[0] and values[4] == 1e-3


class Scripted(AbstractSampled):
    """Limits that were written down, and the failure probabilities that were asked for."""

    def __init__(self, limits):
        self.limits, self.failures, self.seeds = iter(limits), [], []

    def check(self):
        pass

    def expected(self, epsilon, *, seed, paths):
        raise NotImplementedError

    contributions = spread = expected

    def certified_delta(self, epsilon, *, seed, paths, failure, progress):
        self.failures.append(failure)
        self.seeds.append(seed)
        limit = next(self.limits)
        return Certified(limit, limit, paths, failure)

    def band(self, epsilons, **options):
        return [1.0] * len(epsilons)


def scripted(plan, monkeypatch, limits):
    sampled = Scripted(limits)
    route = replace(mixture.route(plan), at=lambda noise: sampled)
    monkeypatch.setattr(certification, "estimated_noise", lambda *_, **__: 3.0)
    monkeypatch.setattr(certification, "estimated_epsilon", lambda *_, **__: 1.0)
    return sampled, route


def test_each_attempt_takes_fresh_paths_and_half_of_what_is_left(plan, monkeypatch):
    sampled, route = scripted(plan, monkeypatch, [2 * DELTA, 1.5 * DELTA, DELTA])
    point = least_noise(plan, route, 1.0, DELTA)
    assert sampled.failures == [FAILURE / 8, FAILURE / 16, FAILURE / 32]
    assert len(set(sampled.seeds)) == 3
    assert point.noise_multiplier > 3.0
    assert point.failure == FAILURE >= 2 * (sum(sampled.failures) + FAILURE / 4)


def test_an_epsilon_grows_until_it_is_proved(plan, monkeypatch):
    sampled, route = scripted(plan, monkeypatch, [2 * DELTA, DELTA])
    point = least_epsilon(plan.with_noise(3.0), route, DELTA)
    assert 1.0 < point.epsilon < 1.1
    assert len(set(sampled.seeds)) == 2


def test_it_gives_up_instead_of_quoting_what_is_not_proved(plan, monkeypatch):
    _, route = scripted(plan, monkeypatch, [2 * DELTA] * 20)
    with pytest.raises(UnsupportedError, match="did not certify"):
        least_noise(plan, route, 1.0, DELTA)
    with pytest.raises(UnsupportedError, match="did not certify"):
        least_epsilon(plan.with_noise(3.0), route, DELTA)


def test_points_picked_by_their_result_add_their_failures(plan, monkeypatch):
    _, route = scripted(plan, monkeypatch, [DELTA] * 3)
    noisy = plan.with_noise(3.0)
    for epsilon in (1.0, 0.9, 0.9):  # the last is the same point again
        prove(noisy, route, epsilon, DELTA)
    found = least_epsilon(noisy, route, DELTA)
    assert (found.epsilon, found.failure) == (0.9, 2 * FAILURE)
    assert least_epsilon(noisy, route, 2 * DELTA).delta == 2 * DELTA


def test_the_point_a_plan_was_calibrated_for_is_not_proved_twice(shared_cache, plan, monkeypatch):
    found = ap.calibrate(plan, epsilon=1.0, delta=DELTA)

    def refuse(*args, **options):
        raise AssertionError("paths were drawn")

    for name in ("certified_delta", "predicted_limit"):
        monkeypatch.setattr(LambdaPair, name, refuse)
    certificate = ap.certify(found, DELTA, epsilon=1.0)
    assert (certificate.epsilon, certificate.route) == (1.0, "mixture")
    assert certificate.confidence == pytest.approx(1 - FAILURE, abs=1e-12)
    # Neither a plan with less noise nor another ε nor another δ is that point.
    others = [
        (found.with_noise(0.999 * found.noise_multiplier), DELTA, 1.0),
        (found, DELTA, 0.999),
        (found, 0.999 * DELTA, 1.0),
    ]
    for other, delta, epsilon in others:
        with pytest.raises(AssertionError, match="paths were drawn"):
            ap.certify(other, delta, epsilon=epsilon)


def test_failed_attempts_add_to_the_failure_probability_of_what_is_proved(plan, monkeypatch):
    """One ε after the other until one is proved: 136 attempts were once quoted as a single one."""
    noisy = plan.with_noise(3.0)
    _, route = scripted(plan, monkeypatch, [2 * DELTA, 2 * DELTA, 2 * DELTA, DELTA, DELTA])
    proof = import_module("antiphon.accounting.search.proof")

    def none(plan, tight):
        raise UnsupportedError("no curve")

    monkeypatch.setattr(proof, "sampled_routes", lambda plan: [route])
    monkeypatch.setattr(proof, "open_routes", none)
    for epsilon in (0.7, 0.8, 0.7):
        with pytest.raises(PlanError, match="is not proved for this plan"):
            ap.certify(noisy, DELTA, epsilon=epsilon)
    found = ap.certify(noisy, DELTA, epsilon=1.0)
    assert 1 - found.confidence == pytest.approx(FAILURE * (1 + 2 / 8), rel=1e-6)
    again = ap.certify(noisy, DELTA)
    assert (again.epsilon, again.confidence) == (1.0, found.confidence)
    other = ap.certify(plan.with_noise(3.1), DELTA, epsilon=1.0)
    assert 1 - other.confidence == pytest.approx(FAILURE, rel=1e-6)


def test_proofs_of_other_accountants_are_not_quoted(shared_cache, plan, monkeypatch):
    found = ap.calibrate(plan, epsilon=1.0, delta=DELTA)
    key = {"plan": certification.identity(found)}
    assert cache.load("points", key | {"edition": edition()})
    assert certification.known_point(found, mixture.route(found), DELTA, 1.0) is not None
    monkeypatch.setattr(certification, "edition", lambda: "another")
    assert certification.known_point(found, mixture.route(found), DELTA, 1.0) is None


def test_a_damaged_cache_costs_time_and_nothing_else(plan):
    first = ap.calibrate(plan, epsilon=1.0, delta=DELTA)
    for path in cache.folder().rglob("*.json"):
        path.write_text(path.read_text()[:-7])
    assert ap.calibrate(plan, epsilon=1.0, delta=DELTA) == first


def test_releases_beside_training_are_paid_for(shared_cache, plan):
    alone = ap.calibrate(plan, 1.0, DELTA).noise_multiplier
    for event in (GaussianRelease(0.2), PureRelease(0.2)):
        both = ap.calibrate(replace(plan, extra=(event,)), 1.0, DELTA)
        assert both.noise_multiplier > 1.02 * alone
    with pytest.raises(PlanError, match="already cost more"):
        ap.calibrate(replace(plan, extra=(GaussianRelease(3.0),)), 1.0, DELTA)


@pytest.mark.parametrize("mechanism", [NuFTRL(0.1), Banded((1.0, 0.5)), Independent()])
def test_balls_in_bins_need_less_noise_than_the_worst_order(mechanism):
    question = ap.Plan(n=1000, sampling=ap.BallsInBins(10), steps=20, mechanism=mechanism)
    found = ap.calibrate(question, 1.0, DELTA)
    fixed = replace(question, sampling=ap.ShuffledEpochs(100), relation="zero-out")
    assert found.noise_multiplier < 0.9 * ap.calibrate(fixed, 1.0, DELTA).noise_multiplier
    assert ap.certify(found, DELTA).epsilon <= 1.0


def test_reshuffled_epochs_are_averaged_over_their_orders():
    question = ap.Plan(
        n=1000,
        sampling=ap.ShuffledEpochs(10, reshuffle=True),
        steps=500,
        mechanism=LambdaCGD(0.95),
        relation="zero-out",
    )
    found = ap.calibrate(question, 1.0, DELTA)
    worst = float(LambdaCGD(0.95).sensitivity(500, question.participation))
    assert found.noise_multiplier < 0.95 * worst / ap.accounting.gaussian_mu(1.0, DELTA)
    assert ap.certify(found, DELTA).route == "conditioned"


def test_small_deltas_that_would_take_days_are_refused(plan):
    question = replace(plan, steps=1000)
    route = mixture.route(question)
    with pytest.raises(UnsupportedError, match="more than a day"):
        least_noise(question, route, 1.0, 1e-9)
    # The conditioned bound still serves it.
    assert math.isfinite(ap.certify(question.with_noise(60.0), 1e-9).epsilon)
