"""Plans certified given their participations."""

import math
from dataclasses import replace

import numpy as np
import pytest

import antiphon as ap
from antiphon.accounting import best_account
from antiphon.accounting.correlated import conditioned
from antiphon.accounting.correlated.energy import binomial_delta
from antiphon.accounting.correlated.lambda_energy import lambda_cgd_law
from antiphon.accounting.independent import pld, unamplified
from antiphon.accounting.independent.gaussian import gaussian_delta
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import Banded, Dense, Independent, LambdaCGD, NuFTRL, Tree
from antiphon.plans import GaussianRelease, PureRelease


def plan(sampling, mechanism, relation="add-remove", steps=1000, noise=None, **rest):
    return ap.Plan(
        n=10_000,
        sampling=sampling,
        steps=steps,
        mechanism=mechanism,
        relation=relation,
        noise_multiplier=noise,
        **rest,
    )


@pytest.mark.parametrize(("lam", "wanted"), [(0.0, 13.2083), (0.5, 15.50), (0.9, 34.42)])
def test_fixed_size_batches_with_correlated_noise_are_certified_for_zero_out(lam, wanted):
    question = plan(ap.FixedSize(100), LambdaCGD(lam), "zero-out")
    noise = conditioned.least_noise(question, 1.0, 1e-5)
    assert noise == pytest.approx(wanted, rel=2e-3)
    certificate = ap.certify(question.with_noise(noise), delta=1e-5)
    assert certificate.epsilon <= 1.0 + 1e-9
    assert certificate.route == ("pld" if lam == 0 else "conditioned")


def test_calibration_takes_the_conditioned_route_where_it_needs_the_least_noise():
    question = plan(ap.FixedSize(100), LambdaCGD(0.5), "zero-out")
    found = ap.calibrate(question, 1.0, 1e-5)
    assert found.noise_multiplier == pytest.approx(15.4925, rel=1e-3)
    assert best_account(found, 1e-5).route == "conditioned"
    alone = unamplified.account(found).profile.epsilon(1e-5)
    assert alone > 5  # what the worst pattern, every single step, would cost


def test_amplitudes_follow_relation_and_sampling():
    for sampling, relation, amplitude in [
        (ap.Poisson(0.01), "add-remove", 1),
        (ap.Poisson(0.01), "zero-out", 1),
        (ap.Poisson(0.01), "replace-one", 2),
        (ap.FixedSize(100), "zero-out", 1),
        (ap.FixedSize(100), "add-remove", 2),
        (ap.FixedSize(100), "replace-one", 2),
    ]:
        question = plan(sampling, Independent(), relation, noise=20.0)
        delta = conditioned.account(question).profile.delta(1.0)
        assert delta == pytest.approx(binomial_delta(0.01, 1000, 20.0, 1.0, amplitude), rel=1e-9)


def test_the_profile_is_a_bound_down_to_epsilon_0():
    question = plan(ap.Poisson(0.05), LambdaCGD(0.5), steps=20, noise=2.0)
    profile = conditioned.account(question).profile
    law = lambda_cgd_law(0.5, 0.05, 20, side="upper")
    assert profile.delta(0.0) >= law.delta(2.0, 1e-6)
    assert profile.delta(0.0) == pytest.approx(law.delta(2.0, 1e-6), abs=2e-6)
    assert 0.5 < profile.accuracy() < 1


def test_amplified_accounting_is_never_looser_for_independent_noise():
    question = plan(ap.Poisson(0.01), Independent(), steps=200, noise=1.5)
    tight = pld.account(question).profile.epsilon(1e-5)
    assert tight <= conditioned.account(question).profile.epsilon(1e-5)


def test_the_scale_of_the_encoder_does_not_matter():
    plain = plan(ap.Poisson(0.01), Independent(), noise=20.0)
    scaled = plan(ap.Poisson(0.01), Banded((3.0,)), noise=60.0)
    first, second = (conditioned.account(p).profile.delta(1.0) for p in (plain, scaled))
    assert first == pytest.approx(second)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (plan(ap.Poisson(0.1), NuFTRL(0.1), noise=1.0), "independent and λ-CGD"),
        (plan(ap.FullBatch(), LambdaCGD(0.5), noise=1.0), "Poisson or FixedSize"),
        (plan(ap.FixedSize(10_000), LambdaCGD(0.5), noise=1.0), "batch below n"),
        (
            plan(ap.ShuffledEpochs(10, reshuffle=True), LambdaCGD(0.5), "zero-out", noise=1.0),
            "fixed order",
        ),
        (plan(ap.ShuffledEpochs(10), LambdaCGD(0.5), noise=1.0), "by row"),
    ],
)
def test_what_has_no_law_is_refused(question, message):
    with pytest.raises(UnsupportedError, match=message):
        conditioned.account(question)


def test_gaussian_releases_beside_training_add_to_every_energy():
    """One step at rate 1 is one Gaussian, so the oracle is μ² + μ²."""
    question = plan(ap.Poisson(0.3), Independent(), steps=1, noise=2.0)
    both = replace(question, extra=(GaussianRelease(0.7),))
    for epsilon in (0.1, 0.5, 1.0):
        exact = 0.3 * gaussian_delta(math.hypot(0.5, 0.7), epsilon) + 0.7 * gaussian_delta(
            0.7, epsilon
        )
        found = conditioned.account(both).profile.delta(epsilon)
        assert found == pytest.approx(float(exact), rel=1e-9)
    assert conditioned.account(question).profile.delta(0.5) < found


def test_lambda_cgd_with_a_release_beside_is_above_both_parts():
    question = plan(ap.Poisson(0.05), LambdaCGD(0.5), steps=50, noise=3.0)
    both = replace(question, extra=(GaussianRelease(0.4),))
    alone = conditioned.account(question).profile.delta(0.5)
    together = conditioned.account(both).profile.delta(0.5)
    assert together > max(alone, float(gaussian_delta(0.4, 0.5)))
    assert together < alone + float(gaussian_delta(0.4, 0.0))
    found = conditioned.least_noise(replace(both, noise_multiplier=None), 2.0, 1e-5)
    assert conditioned.account(both.with_noise(found)).profile.delta(2.0) <= 1e-5
    assert conditioned.account(both.with_noise(0.999 * found)).profile.delta(2.0) > 1e-5


def test_pure_releases_beside_training_add_their_epsilon():
    question = plan(ap.Poisson(0.05), LambdaCGD(0.5), steps=50, noise=3.0)
    both = replace(question, extra=(PureRelease(0.25),))
    one, two = (conditioned.account(p).profile for p in (question, both))
    assert two.delta(1.25) == pytest.approx(one.delta(1.0), rel=1e-9)
    assert two.delta(0.2) == 1.0


@pytest.mark.parametrize("sampling", [ap.ShuffledEpochs(2500), ap.BallsInBins(4)])
@pytest.mark.parametrize(
    "mechanism", [LambdaCGD(0.8), Dense(np.tril(np.ones((10, 10))) - 1.5 * np.eye(10))]
)
def test_a_fixed_order_averages_over_the_places(sampling, mechanism, T=10):
    question = plan(sampling, mechanism, "zero-out", steps=T, noise=6.0)
    C = mechanism.encoder(T)
    X = np.abs(C.T @ C)
    energies = [X[j::4, j::4].sum() for j in range(4)]
    exact = np.mean([gaussian_delta(math.sqrt(e) / 6.0, 0.5) for e in energies])
    found = conditioned.account(question).profile
    assert found.delta(0.5) == pytest.approx(exact, rel=1e-9)
    assert found.delta(0.5) <= unamplified.account(question).profile.delta(0.5)


def test_an_incomplete_last_batch_is_less_likely():
    question = plan(ap.ShuffledEpochs(4000), LambdaCGD(0.8), "zero-out", steps=3, noise=1.0)
    energy = (LambdaCGD(0.8).encoder(3) ** 2).sum(axis=0)
    exact = np.dot([0.4, 0.4, 0.2], gaussian_delta(np.sqrt(energy), 0.5))
    assert conditioned.account(question).profile.delta(0.5) == pytest.approx(exact, rel=1e-9)


def test_sampled_participations_serve_what_has_no_law():
    reshuffled = plan(ap.ShuffledEpochs(2500, reshuffle=True), NuFTRL(0.1), "replace-one", steps=10)
    found = conditioned.route(reshuffled)
    assert found.at(3.0).amplitude == 2.0
    assert 0 < found.at(3.0).estimate(0.5, seed=0).delta < 1
    fixed = conditioned.route(plan(ap.FixedSize(100), Banded((1.0, 0.5)), steps=10))
    assert fixed.at(3.0).amplitude == 2.0  # add-remove: a swap
    with pytest.raises(UnsupportedError, match="known"):
        conditioned.route(plan(ap.Poisson(0.1), LambdaCGD(0.5)))
    with pytest.raises(UnsupportedError, match="FullBatch"):
        conditioned.route(plan(ap.FullBatch(), NuFTRL(0.5)))


def test_hardly_any_noise_costs_a_huge_epsilon_and_not_an_error():
    plan = ap.Plan(n=6000, sampling=ap.FixedSize(256), steps=2000, mechanism=LambdaCGD(0.9),
                relation="zero-out", noise_multiplier=1.0)  # fmt: skip
    certificate = ap.certify(plan, 1e-5)
    assert 700 < certificate.epsilon < 1000
    assert certificate.profile.epsilon(1e-5) == pytest.approx(certificate.epsilon)
    assert certificate.attacks.accuracy == 1


def test_a_shuffled_pass_with_tree_noise_is_accounted_for_by_its_average_place():
    n, epsilon = 64, 1.0
    question = ap.Plan(
        n=n,
        sampling=ap.ShuffledEpochs(1),
        steps=n,
        mechanism=Tree(),
        relation="replace-one",
        noise_multiplier=9.0,
    )
    energies = (Tree().encoder(n) ** 2).sum(axis=0)
    expected = np.mean([gaussian_delta(2 * math.sqrt(e) / 9.0, epsilon) for e in energies])
    found = conditioned.account(question).profile.delta(epsilon)
    assert found == pytest.approx(expected, rel=1e-6) and found >= expected * (1 - 1e-12)
