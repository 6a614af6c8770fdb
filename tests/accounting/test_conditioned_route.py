"""Plans certified given their participations."""

import pytest

import antiphon as ap
from antiphon.accounting import best_account, conditioned_route, pld, unamplified
from antiphon.accounting.conditioned import binomial_delta, lambda_cgd_law
from antiphon.errors import UnsupportedError
from antiphon.events import GaussianRelease
from antiphon.mechanisms import Banded, Independent, LambdaCGD, NuFTRL


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
    noise = conditioned_route.least_noise(question, 1.0, 1e-5)
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
        delta = conditioned_route.account(question).profile.delta(1.0)
        assert delta == pytest.approx(binomial_delta(0.01, 1000, 20.0, 1.0, amplitude), rel=1e-9)


def test_the_profile_is_a_bound_down_to_epsilon_0():
    question = plan(ap.Poisson(0.05), LambdaCGD(0.5), steps=20, noise=2.0)
    profile = conditioned_route.account(question).profile
    law = lambda_cgd_law(0.5, 0.05, 20, side="upper")
    assert profile.delta(0.0) >= law.delta(2.0, 1e-6)
    assert profile.delta(0.0) == pytest.approx(law.delta(2.0, 1e-6), abs=2e-6)
    assert 0.5 < profile.accuracy() < 1


def test_amplified_accounting_is_never_looser_for_independent_noise():
    question = plan(ap.Poisson(0.01), Independent(), steps=200, noise=1.5)
    tight = pld.account(question).profile.epsilon(1e-5)
    assert tight <= conditioned_route.account(question).profile.epsilon(1e-5)


def test_the_scale_of_the_encoder_does_not_matter():
    plain = plan(ap.Poisson(0.01), Independent(), noise=20.0)
    scaled = plan(ap.Poisson(0.01), Banded((3.0,)), noise=60.0)
    first, second = (conditioned_route.account(p).profile.delta(1.0) for p in (plain, scaled))
    assert first == pytest.approx(second)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (plan(ap.Poisson(0.1), NuFTRL(0.1), noise=1.0), "independent and λ-CGD"),
        (plan(ap.FullBatch(), LambdaCGD(0.5), noise=1.0), "Poisson or FixedSize"),
        (plan(ap.FixedSize(10_000), LambdaCGD(0.5), noise=1.0), "batch below n"),
        (
            plan(ap.Poisson(0.1), LambdaCGD(0.5), noise=1.0, extra=(GaussianRelease(1.0),)),
            "beside training",
        ),
    ],
)
def test_what_has_no_law_is_refused(question, message):
    with pytest.raises(UnsupportedError, match=message):
        conditioned_route.account(question)
