"""``antiphon certify``: plans, certificates, runs and models; what is not proved is refused."""

import json
from dataclasses import replace

import pytest
from oracles.calls import assert_misused, assert_refused, caller
from oracles.targets import CERTIFICATE, DELTA, PLAN, trained_run

from antiphon.certificates import Certificate, certify
from antiphon.mechanisms import LambdaCGD
from antiphon.plans import Poisson


@pytest.fixture
def call(capsys):
    return caller(capsys)


@pytest.fixture
def write(tmp_path):
    def write(text, name="target.json"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def certified(result):
    code, out, err = result
    assert (code, err) == (0, "")
    return Certificate.from_json(out)


def test_a_plan_is_certified_and_the_certificate_written(call, write, tmp_path):
    out = tmp_path / "certificate.json"
    found = certified(
        call("certify", write(PLAN.to_json()), "--delta", DELTA, "--json", "--out", out)
    )
    assert found == CERTIFICATE == Certificate.from_json(out.read_text())
    assert_refused(call("certify", tmp_path / "target.json", "--out", out), "exists already")
    assert certified(call("certify", out, "--json")) == CERTIFICATE
    assert certified(call("certify", tmp_path / "target.json", "--json")).delta == 40**-1.1


def test_the_table_is_the_certificate(call, write):
    code, out, err = call("certify", write(PLAN.to_json()), "--delta", DELTA)
    assert (code, err) == (0, "") and "Certificate of differential privacy" in out


def test_a_run_and_a_model_have_their_certificate_and_what_it_assumes(call, tmp_path):
    trained_run(tmp_path)
    for name in ("run", "model.safetensors"):
        found = certified(call("certify", tmp_path / name, "--json"))
        assert found.epsilon == CERTIFICATE.epsilon
        assert found.assumptions[: len(CERTIFICATE.assumptions)] == CERTIFICATE.assumptions


def test_further_assumptions_of_a_file_are_kept(call, write):
    said = replace(CERTIFICATE, assumptions=(*CERTIFICATE.assumptions, "a seed was given"))
    found = certified(call("certify", write(said.to_json()), "--json"))
    assert found == said
    other = certified(call("certify", write(said.to_json()), "--delta", 1e-3, "--json"))
    assert other == replace(certify(PLAN, 1e-3), assumptions=said.assumptions)


def test_epsilon_is_proved_or_refused(call, write):
    plan = write(PLAN.to_json())
    enough = certified(call("certify", plan, "--delta", DELTA, "--epsilon", 9, "--json"))
    assert enough.epsilon <= 9
    assert_refused(call("certify", plan, "--delta", DELTA, "--epsilon", 0.1), "is not proved")


def test_a_claim_below_what_is_proved_is_refused_also_when_more_is_asked(call, write):
    forged = write(replace(CERTIFICATE, epsilon=1.0).to_json())
    for more in ((), ("--delta", 1e-3), ("--tight",)):
        assert_refused(call("certify", forged, *more), "claims ε = 1, but only")


def test_a_monte_carlo_claim_is_proved_again_or_refused(call, write):
    plan = replace(PLAN, sampling=Poisson(0.9), mechanism=LambdaCGD(0.5), noise_multiplier=0.5)
    claim = replace(CERTIFICATE, plan=plan, confidence=0.999999, route="mixture")
    forged = replace(claim, epsilon=0.01, theorem="trust me")
    assert_refused(call("certify", write(forged.to_json())), "is not proved")
    true = replace(claim, epsilon=60.0)  # a curve proves that much
    assert certified(call("certify", write(true.to_json()), "--json")).epsilon <= 60.0
    forged = replace(CERTIFICATE, epsilon=0.01, confidence=0.999999)
    assert_refused(call("certify", write(forged.to_json())), "its plan has none")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("{}", "neither a certificate nor a plan"),
        (replace(PLAN, noise_multiplier=None).to_json(), "no noise multiplier"),
        (replace(PLAN, mechanism="auto").to_json(), "still 'auto'"),
        (json.dumps({**json.loads(PLAN.to_json()), "n": -1}), "holds no plan that can run"),
    ],
)
def test_what_is_no_plan_is_one_line(call, write, text, words):
    assert_refused(call("certify", write(text)), words)


def test_a_missing_file_is_one_line_and_wrong_usage_another(call, capsys, tmp_path):
    assert_refused(call("certify", tmp_path / "none.json"), "No such file")
    assert_misused(capsys, ("certify",), "PLAN")
    assert_misused(capsys, ("certify", "x", "--delta", "2"), "strictly between 0 and 1")
