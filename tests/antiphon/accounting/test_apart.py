"""Releases from records that take part in no step: a record pays for one or the other."""

from dataclasses import replace

import pytest

from antiphon.accounting import calibrate
from antiphon.accounting.independent import pld
from antiphon.accounting.independent.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from antiphon.accounting.independent.rdp import curve
from antiphon.accounting.search.registry import ACCOUNTANTS, SAMPLED, open_routes
from antiphon.certificates import certify
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent
from antiphon.plans import (
    FixedSize,
    FullBatch,
    GaussianRelease,
    OnePass,
    Plan,
    Poisson,
    ShuffledEpochs,
)

VOTES = GaussianRelease(0.3, "clip norms", "replace-one")
PLAN = Plan(
    n=1000,
    sampling=ShuffledEpochs(100),
    steps=10,
    mechanism=Independent(),
    relation="replace-one",
    noise_multiplier=8.0,
    apart=(VOTES,),
)


def test_the_larger_counts_and_not_the_sum():
    assert certify(PLAN, 1e-5).epsilon == pytest.approx(gaussian_epsilon(0.3, 1e-5))
    louder = replace(PLAN, noise_multiplier=4.0)
    assert certify(louder, 1e-5).epsilon == pytest.approx(gaussian_epsilon(0.5, 1e-5))
    beside = replace(PLAN, extra=(GaussianRelease(0.4),))
    assert certify(beside, 1e-5).epsilon == pytest.approx(gaussian_epsilon(0.5, 1e-5))


def test_acceptance_2_both_blocks_of_a_pass_cost_their_maximum():
    f = 19.1941036488
    for levels, expected in ((8, 0.178498), (10, 0.176323)):
        printed = GaussianRelease(((levels + 1) / levels) ** 0.5 / f)
        plan = replace(PLAN, noise_multiplier=2 * f, apart=(printed,))
        assert certify(plan, 1e-5).epsilon == pytest.approx(expected, abs=1e-6)
        fixed = replace(plan, apart=(GaussianRelease(1 / f),))
        assert certify(fixed, 1e-5).epsilon == pytest.approx(0.167390, abs=1e-6)


def test_only_the_routes_that_know_it_answer():
    plan = replace(PLAN, noise_multiplier=8.0)
    assert set(open_routes(plan)) == {"gaussian", "rdp"}
    assert "shuffling" in open_routes(replace(plan, apart=()))
    routes = [one.account for one in ACCOUNTANTS.values()] + [one.route for one in SAMPLED.values()]
    for route in routes:
        try:
            account = route(plan)
        except UnsupportedError:
            continue
        assert account.profile.delta(0.5) >= gaussian_delta(0.3, 0.5) * (1 - 1e-9)
    assert curve(plan, (2.0,))[0] == pytest.approx(2 * 0.3**2 / 2)


def test_plans_together_pay_the_larger_cost_of_each():
    whole = pld.together([PLAN, PLAN]).delta(0.5)
    assert whole == pytest.approx(gaussian_delta(0.3 * 2**0.5, 0.5), rel=0.01)


def test_calibration_keeps_within_the_budget_or_says_that_it_cannot():
    mu = gaussian_mu(0.5, 1e-5)
    plan = calibrate(replace(PLAN, apart=(GaussianRelease(mu * (1 - 1e-9)),)), 0.5, 1e-5)
    assert plan.noise_multiplier == pytest.approx(2 / mu)
    assert certify(plan, 1e-5, epsilon=0.5).epsilon <= 0.5
    with pytest.raises(PlanError, match="apart from the steps already costs more"):
        calibrate(replace(PLAN, apart=(GaussianRelease(mu * 1.01),)), 0.5, 1e-5)


def test_calibration_at_the_edge_of_what_is_released_apart_ends():
    extra = GaussianRelease(0.11326285874287376)
    plan = replace(PLAN, extra=(extra,), apart=(GaussianRelease(0.22460231664109065),))
    with pytest.raises(PlanError, match="apart from the steps already costs more"):
        calibrate(plan, 1.123850763479262, 3.5580281338759474e-07)


def test_it_is_written_down_and_read_again():
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert "apart" not in replace(PLAN, apart=()).to_json()
    said = certify(PLAN, 1e-5).assumptions
    assert any("clip norms was released from records that take part in no step" in s for s in said)
    assert "apart from the steps" in certify(PLAN, 1e-5).theorem


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": Poisson(0.1)},
        {"sampling": FullBatch()},
        {"sampling": FixedSize(100)},
        {"steps": 11},
        {"relation": "add-remove", "apart": (GaussianRelease(0.3),)},
    ],
)
def test_where_a_record_could_pay_twice_it_is_refused(options):
    with pytest.raises(PlanError, match="apart"):
        replace(PLAN, **options)


def test_the_relation_must_be_the_releases_own():
    with pytest.raises(PlanError, match="released for neighbours under replace-one"):
        replace(PLAN, sampling=OnePass(100), relation="zero-out")
