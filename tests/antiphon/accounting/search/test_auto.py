"""The choice of a mechanism: by certified numbers, never worse than independent noise."""

import json
from dataclasses import replace

import pytest

import antiphon as ap
from antiphon.accounting import choose_mechanism
from antiphon.accounting.monte_carlo.proved_points import FAILURE
from antiphon.accounting.search import auto
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Banded, Independent, LambdaCGD, from_dict

DELTA = 1e-2


def plan(sampling, steps, relation="add-remove", n=1000):
    return ap.Plan(n=n, sampling=sampling, steps=steps, mechanism="auto", relation=relation)


@pytest.mark.parametrize(
    ("question", "epsilon"),
    [
        pytest.param(plan(ap.Poisson(0.2), 8), 8.0, marks=pytest.mark.slow),
        (plan(ap.ShuffledEpochs(50), 60, "zero-out"), 1.0),
        (plan(ap.CyclicPoisson(0.2, 4), 32), 2.0),
        (plan(ap.BallsInBins(10), 30), 2.0),
        pytest.param(plan(ap.FixedSize(100), 3, "zero-out"), 4.0, marks=pytest.mark.slow),
        (plan(ap.FullBatch(), 10), 1.0),
    ],
)
def test_the_winner_is_certified_and_no_worse_than_independent_noise(question, epsilon):
    choice = choose_mechanism(question, epsilon, DELTA)
    chosen = choice.plan
    assert replace(chosen, mechanism="auto", noise_multiplier=None) == question
    assert ap.certify(chosen, DELTA).epsilon <= epsilon * (1 + 1e-9)
    plain = ap.calibrate(replace(question, mechanism=Independent()), epsilon, DELTA)
    product = chosen.noise_multiplier * chosen.mechanism.error(question.steps)
    assert product <= plain.noise_multiplier * Independent().error(question.steps)
    certified = [row for row in choice.candidates if row.certified is not None]
    assert {Independent(), chosen.mechanism} == {row.mechanism for row in certified}


def test_correlation_wins_where_it_should():
    cyclic = choose_mechanism(plan(ap.CyclicPoisson(0.2, 4), 32), 2.0, DELTA).plan.mechanism
    assert isinstance(cyclic, Banded) and 1 < len(cyclic.coef) <= 4


def test_a_candidate_that_is_only_estimated_to_be_better_loses():
    """λ-CGD looks better by estimate; certified it is worse, so independent noise is kept."""
    question = plan(ap.Poisson(0.1), 10)

    def estimate(candidate, near):
        return 1.0 if candidate.mechanism == Independent() else 0.5

    def calibrate(candidate):
        return candidate.with_noise(1.0 if candidate.mechanism == Independent() else 50.0)

    choice = auto.choose(question, estimate, calibrate)
    assert choice.plan.mechanism == Independent()
    assert len([row for row in choice.candidates if row.certified is not None]) == 2


def test_the_ranking_stops_in_time(monkeypatch):
    monkeypatch.setattr(auto, "_SECONDS", -1.0)
    choice = auto.choose(
        plan(ap.Poisson(0.1), 10), lambda p, near: 1.0, lambda p: p.with_noise(1.0)
    )
    assert [row.mechanism for row in choice.candidates] == [Independent()]


def test_what_cannot_be_accounted_for_is_left_out():
    def estimate(candidate, near):
        if isinstance(candidate.mechanism, LambdaCGD):
            raise UnsupportedError("no")
        return 1.0

    choice = auto.choose(plan(ap.Poisson(0.1), 10), estimate, lambda p: p.with_noise(1.0))
    assert not any(isinstance(row.mechanism, LambdaCGD) for row in choice.candidates)


def test_it_prints_and_exports():
    choice = choose_mechanism(plan(ap.ShuffledEpochs(50), 60, "zero-out"), 1.0, DELTA)
    text = str(choice)
    assert "noise, certified" in text and "independent" in text and "bands" in text
    values = json.loads(choice.to_json())
    assert ap.Plan.from_json(json.dumps(values["plan"])) == choice.plan
    assert from_dict(values["candidates"][0]["mechanism"]) == choice.candidates[0].mechanism


def test_calibrate_takes_auto_and_a_chosen_mechanism_is_not_chosen_again():
    found = ap.calibrate(plan(ap.BallsInBins(10), 30), 2.0, DELTA)
    assert found.noise_multiplier is not None and not isinstance(found.mechanism, str)
    certificate = ap.certify(found, DELTA)
    assert certificate.epsilon <= 2.0 and certificate.confidence == pytest.approx(1 - FAILURE)
    with pytest.raises(PlanError, match="chosen already"):
        choose_mechanism(found, 2.0, DELTA)
    with pytest.raises(PlanError, match="auto"):
        ap.certify(plan(ap.FullBatch(), 3).with_noise(1.0), DELTA)
