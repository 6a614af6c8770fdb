"""Every kind of target gives its certificate; what is false, changed or broken is refused."""

import json
from dataclasses import replace

import pytest
from oracles.targets import CERTIFICATE, DELTA, PLAN, trained_run

from antiphon.certificates import certify
from antiphon.commands.target import read
from antiphon.errors import AntiphonError, PlanError, StateError
from antiphon.mechanisms import LambdaCGD
from antiphon.participation import Relation
from antiphon.plans import Poisson
from antiphon.training.checkpoints import Folder, export, read_export


@pytest.fixture
def write(tmp_path):
    def write(text, name="target.json"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    trained_run(place)
    return place


def changed(text, **changes):
    return json.dumps(json.loads(text) | changes)


def test_a_plan_is_certified(write):
    assert read(write(PLAN.to_json()), DELTA) == (CERTIFICATE, ())


def test_delta_of_a_plan_is_a_power_of_its_size_unless_given(write):
    assert read(write(PLAN.to_json())) == (certify(PLAN, 40**-1.1), ())


def test_a_certificate_is_read_and_proved_again(write):
    assert read(write(CERTIFICATE.to_json())) == (CERTIFICATE, ())
    assert read(write(CERTIFICATE.to_json()), DELTA) == (CERTIFICATE, ())


def test_the_epsilon_that_noise_was_made_for_is_kept_to_the_last_digit(write):
    wanted = replace(CERTIFICATE, epsilon=CERTIFICATE.epsilon * (1 + 1e-12))
    assert read(write(wanted.to_json())) == (wanted, ())


def test_a_run_and_an_exported_model_have_their_certificate(trained):
    assert read(trained / "run") == (CERTIFICATE, ())
    assert read(trained / "model.safetensors") == (CERTIFICATE, ())


def test_a_run_that_another_process_holds_is_read_and_said_to_be_held(trained):
    with Folder.open(trained / "run") as held:
        certificate, notes = read(trained / "run")
        held.sync()
    assert certificate == CERTIFICATE
    assert notes[0].startswith("a process holds the run")
    Folder.open(trained / "run").close()  # and reading left no lock


def test_a_folder_without_a_run_is_refused_and_stays_empty(tmp_path):
    with pytest.raises(StateError, match="there is no checkpoint"):
        read(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    with Folder.create(tmp_path / "other") as folder:
        folder.write({}, {"step": 1})
    with pytest.raises(StateError, match="holds no certificate"):
        read(tmp_path / "other")


def test_a_checkpoint_file_or_a_damaged_export_is_refused(trained, tmp_path):
    with pytest.raises(StateError, match="not of the kind"):
        read(trained / "run" / "checkpoint.safetensors")
    data = bytearray((trained / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "cut.safetensors").write_bytes(data)
    with pytest.raises(StateError, match="damaged"):
        read(tmp_path / "cut.safetensors")


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 1.0},
        {"epsilon": CERTIFICATE.epsilon * (1 - 1e-8)},
        {"epsilon": 1.0, "confidence": 0.999999},
        {"epsilon": 1.0, "confidence": 0.999999, "route": "mixture"},
        {"plan": replace(PLAN, noise_multiplier=1.5)},
        {"delta": 1e-6},
    ],
    ids=["less", "slightly less", "of no accountant", "of another one", "less noise", "other δ"],
)
def test_a_claim_that_is_not_proved_is_refused(write, changes):
    forged = replace(CERTIFICATE, **changes)
    with pytest.raises(StateError, match=r"claims ε = .*, but only .* is proved for its plan"):
        read(write(forged.to_json()))


def test_a_forged_claim_is_refused_in_an_export(trained, tmp_path):
    tensors, meta = read_export(trained / "model.safetensors")
    forged = json.loads(replace(CERTIFICATE, epsilon=1.0).to_json())
    export(tmp_path / "forged.safetensors", tensors, meta | {"certificate": forged})
    with pytest.raises(StateError, match="is proved for its plan"):
        read(tmp_path / "forged.safetensors")


def test_the_reason_that_a_file_gives_is_not_believed(write):
    """The attack depends on route, curve and relation: a forged one would soften it."""
    other = replace(
        CERTIFICATE, route="pld", curve=((0.0, 1.0),), relation=Relation.REPLACE_ONE, is_tight=False
    )
    assert read(write(other.to_json())) == (CERTIFICATE, ())


def test_a_larger_epsilon_than_is_proved_becomes_what_is_proved(write):
    loose = replace(CERTIFICATE, epsilon=9.0)
    certificate, notes = read(write(loose.to_json()))
    assert certificate == CERTIFICATE
    words = f"the file claims ε = 9; {CERTIFICATE.epsilon:.10g} is proved now, and taken."
    assert notes == (words,)


def test_a_monte_carlo_claim_is_taken_unchanged(write):
    plan = replace(PLAN, sampling=Poisson(0.5), mechanism=LambdaCGD(0.5))
    claim = replace(CERTIFICATE, plan=plan, route="mixture", confidence=0.999999)
    certificate, notes = read(write(claim.to_json()))
    assert certificate == claim
    assert "Monte Carlo bound, taken from the file" in notes[0]
    # Without its confidence it claims to be proved by a curve, which none does; no path is drawn for it.
    with pytest.raises(StateError, match="is proved for its plan"):
        read(write(replace(claim, epsilon=0.1, confidence=None).to_json()))


def test_delta_of_a_certificate_cannot_be_changed(write):
    with pytest.raises(PlanError, match="for δ = 1e-05, not 1e-06: leave --delta out"):
        read(write(CERTIFICATE.to_json()), 1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "neither a certificate nor a plan"),
        ('{"ε": 1}', "neither a certificate nor a plan"),
        ("\x00\xff", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (changed(PLAN.to_json(), noise_multiplier=None), r"calibrate\(.*\) sets it"),
        (changed(PLAN.to_json(), mechanism="auto"), r"calibrate\(.*\) chooses one"),
        (changed(PLAN.to_json(), sampling=3), "holds no plan that can run"),
        (changed(PLAN.to_json(), steps=0), "steps must be a whole number"),
        (changed(CERTIFICATE.to_json(), plan=[]), "holds no certificate"),
        (changed(CERTIFICATE.to_json(), epsilon="1"), "holds no certificate"),
        (changed(CERTIFICATE.to_json(), epsilon=float("inf")), "its ε must be positive"),
        (changed(CERTIFICATE.to_json(), epsilon=float("nan")), "its ε must be positive"),
        (changed(CERTIFICATE.to_json(), delta=2), "δ must lie strictly between"),
        (changed(CERTIFICATE.to_json(), curve=5), "holds no certificate"),
        (changed(CERTIFICATE.to_json(), route=[]), "holds no certificate"),
    ],
    ids=range(15),
)
def test_a_file_that_cannot_be_audited_is_refused_with_a_reason(write, text, words):
    with pytest.raises(AntiphonError, match=words):
        read(write(text))
