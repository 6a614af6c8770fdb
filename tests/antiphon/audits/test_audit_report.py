import json
import time

import pytest
from oracles.quick_audits import simulated

import antiphon as ap
from antiphon.audits import audit
from antiphon.mechanisms import LambdaCGD


def claim(epsilon=8.0, steps=1):
    plan = ap.Plan(n=3, sampling=ap.FullBatch(), steps=steps, mechanism=LambdaCGD(0.9))
    return ap.certify(ap.calibrate(plan, epsilon, 1e-5), 1e-5)


def test_an_honest_trainer_is_consistent_in_every_part():
    report = audit(claim(), quick=True, runs=200)
    assert report.verdict == "consistent" and not report.is_violation
    assert [a.method for a in report.audits] == ["one-run", "two-world"]
    assert 0.5 < report.ratio <= 1.1
    assert report.audited_epsilon == max(a.audited_epsilon for a in report.audits)


@pytest.mark.parametrize("scale", [0.3, 0.97, 1.05])
def test_any_part_may_refute(scale):
    # A little too much noise breaks no promise of privacy, but it is not the noise of the plan.
    report = audit(claim(), quick=True, runs=100, trainer=simulated(scale))
    assert report.verdict == "VIOLATION: report this"
    assert any(a.is_violation for a in report.audits) == (scale < 0.5)
    assert report.noise.p_value < 1e-3


def test_where_time_is_short_there_is_no_two_world_part():
    def slow(certificate, instance, seed):
        time.sleep(0.15)
        return simulated()(certificate, instance, seed)

    report = audit(claim(), quick=True, trainer=slow)
    assert [a.method for a in report.audits] == ["one-run"] and report.worlds is None


def test_a_report_is_json_with_the_four_numbers_and_a_table():
    report = audit(claim(), quick=True, runs=0, trainer=simulated())
    values = json.loads(report.to_json())
    assert {"certified_epsilon", "audited_epsilon", "ratio", "verdict"} <= set(values)
    assert values["plan"] == json.loads(report.certificate.plan.to_json())
    assert "consistent" in str(report) and "one-run" in str(report)
