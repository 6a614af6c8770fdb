from dataclasses import replace

import numpy as np
import pytest
from oracles.quick_audits import simulated

import antiphon as ap
from antiphon.audits import Transcript, whiteness
from antiphon.errors import PlanError
from antiphon.mechanisms import Dense, LambdaCGD
from antiphon.plans import Block


def claim(**options):
    values = {"n": 10, "sampling": ap.FullBatch(), "steps": 5, "mechanism": LambdaCGD(0.9),
              "noise_multiplier": 3.0} | options  # fmt: skip
    return ap.certify(ap.Plan(**values), 1e-5)


def test_p_values_of_planned_noise_are_no_smaller_than_they_should_be():
    # Of 150, more than 28 below 0.1 have probability below 1e-3.
    found = [
        whiteness(claim(), places=2000, seed=s, trainer=simulated()).p_value for s in range(300)
    ]
    assert sum(p < 0.1 for p in found) <= 28
    assert min(found) > 1e-5


@pytest.mark.parametrize("scale", [0.98, 1.02])
def test_two_percent_of_the_noise_are_seen(scale):
    found = whiteness(claim(), trainer=simulated(scale))
    assert found.p_value < 1e-6
    assert found.scale == pytest.approx(scale, abs=0.002)


def test_a_correlation_between_two_steps_is_seen():
    def shared(certificate, instance, seed):
        transcript = simulated()(certificate, instance, seed)
        first, second = transcript.streams
        white = certificate.plan.mechanism.encoder(5) @ second
        white[4] = 0.1 * white[1] + np.sqrt(0.99) * white[4]
        second = certificate.plan.mechanism.decoder(5) @ white
        return Transcript((first, second), transcript.rows)

    found = whiteness(claim(), trainer=shared)
    assert found.p_value < 1e-6
    assert found.correlation == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"steps": 1},
        {"sampling": ap.Poisson(0.3)},
        {"sampling": ap.FixedSize(3), "relation": "zero-out"},
        {"mechanism": Dense(np.tril(np.full((5, 5), 0.2)) + np.eye(5))},
        {"blocks": (Block("a", 1.0, 2.0), Block("b", 0.5, 4.0)), "noise_multiplier": None},
    ],
)
def test_the_real_trainer_adds_the_noise_of_its_plan(options):
    # False alarms at 1e-4 each.
    values = {"n": 10, "sampling": ap.FullBatch(), "steps": 5, "mechanism": LambdaCGD(0.9),
              "noise_multiplier": 3.0} | options  # fmt: skip
    proved = claim() if "sampling" in options else claim(**options)
    found = whiteness(replace(proved, plan=ap.Plan(**values)), places=20_000)
    assert found.p_value > 1e-4
    assert found.scale == pytest.approx(1.0, abs=0.02)


def test_correlations_over_few_places_are_refused():
    with pytest.raises(PlanError, match="at least 1000 places; got 20"):
        whiteness(claim(), places=20)
