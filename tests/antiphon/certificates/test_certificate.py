"""Certificates: the number, the reason, and what it means."""

import json

import pytest

import antiphon as ap
from antiphon.accounting.independent import unamplified
from antiphon.accounting.independent.gaussian import gaussian_epsilon
from antiphon.certificates import round_up
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent, NuFTRL, Tree
from antiphon.plans import GaussianRelease, PureRelease


@pytest.fixture
def plan():
    return ap.Plan(
        n=1000, sampling=ap.FullBatch(), steps=100, mechanism=Independent(), noise_multiplier=40.0
    )


def test_a_certificate_quotes_the_proved_number_and_its_reason(plan):
    certificate = ap.certify(plan, delta=1e-5)
    assert certificate.epsilon == pytest.approx(gaussian_epsilon(10 / 40, 1e-5))
    assert certificate.delta == 1e-5
    assert certificate.is_tight
    assert certificate.route == "gaussian"
    assert "BalleWang18" in certificate.references
    assert any("public" in line for line in certificate.assumptions)
    assert certificate.plan is plan
    assert certificate.version == ap.__version__


def test_it_says_what_epsilon_means(plan):
    attacks = ap.certify(plan, delta=1e-5).attacks
    assert attacks.accuracy == pytest.approx(0.5 + attacks.advantage / 2)
    assert 0.01 < attacks.true_positive_at_1_percent < 0.03
    assert 0.001 < attacks.true_positive_at_01_percent < attacks.true_positive_at_1_percent


def test_it_prints_and_exports(plan):
    certificate = ap.certify(plan, delta=1e-5)
    text = str(certificate)
    for part in (
        "differential privacy",
        "one example more or less",
        "any attack",
        "assumes",
        plan.hash[:16],
    ):
        assert part in text
    values = json.loads(certificate.to_json())
    assert values["epsilon"] == certificate.epsilon
    assert values["plan_hash"] == plan.hash
    assert ap.Plan.from_json(json.dumps(values["plan"])) == plan


def test_a_certificate_of_another_plan_is_refused(plan):
    values = json.loads(ap.certify(plan, delta=1e-5).to_json())
    assert ap.Certificate.from_json(json.dumps(values)).plan == plan
    values["plan"]["noise_multiplier"] *= 2
    with pytest.raises(PlanError, match="changed since it was written"):
        ap.Certificate.from_json(json.dumps(values))


def test_a_release_beside_training_is_named(plan):
    from dataclasses import replace

    with_bound = replace(plan, extra=(GaussianRelease(0.2, "a private bound"),))
    certificate = ap.certify(with_bound, delta=1e-5)
    assert certificate.epsilon > ap.certify(plan, delta=1e-5).epsilon
    assert "a private bound was released: with Gaussian noise, μ = 0.2" in certificate.assumptions
    pure = replace(plan, extra=(PureRelease(0.1, "a count"),))
    assert "a count was released: with ε = 0.1" in ap.certify(pure, delta=1e-5).assumptions


def test_an_unfinished_plan_is_not_certified():
    for changes in ({"mechanism": "auto"}, {"mechanism": Tree()}):
        plan = ap.Plan(n=10, sampling=ap.FullBatch(), steps=2, **changes)
        with pytest.raises(PlanError, match="calibrate"):
            ap.certify(plan, delta=1e-5)


def test_shuffled_batches_are_never_accounted_as_poisson():
    # n = 6000, batches of 60, 10 epochs, noise 1: a peer prints 1.84; 9.36 is a proved lower bound.
    shuffled = ap.Plan(
        n=6000,
        sampling=ap.ShuffledEpochs(60),
        steps=1000,
        mechanism=Independent(),
        relation="zero-out",
        noise_multiplier=1.0,
    )
    certificate = ap.certify(shuffled, delta=1e-5)
    assert certificate.epsilon == pytest.approx(17.857, abs=1e-3)
    assert not certificate.is_tight  # a random order may well be more private than its worst


def test_correlated_noise_over_epochs_is_paid_in_full():
    plan = ap.Plan(
        n=50_000,
        sampling=ap.ShuffledEpochs(500),
        steps=2000,
        mechanism=NuFTRL(0.0037),
        relation="zero-out",
        noise_multiplier=4.445674,
    )
    worst = unamplified.account(plan).profile.epsilon(1e-5)
    assert worst == pytest.approx(10.0, abs=1e-5)
    # The place in the order is drawn at random, and a late one costs a little less.
    assert 9.9 < ap.certify(plan, delta=1e-5).epsilon < worst


def test_what_cannot_be_proved_is_refused():
    plan = ap.Plan(n=100, sampling=ap.OnePass(10), steps=10, mechanism=Tree(), noise_multiplier=1.0)
    with pytest.raises(UnsupportedError, match="not a change of one record"):
        ap.certify(plan, delta=1e-5)


@pytest.mark.parametrize(
    ("value", "text"), [(1.00004, "1.001"), (1.0, "1"), (0.99991, "1"), (12.3401, "12.35")]
)
def test_printed_bounds_are_rounded_up(value, text):
    assert round_up(value) == text
    assert float(round_up(value)) >= value
