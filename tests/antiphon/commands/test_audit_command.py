"""``antiphon audit`` as a user runs it: output, figure, exit codes."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from oracles.targets import CERTIFICATE, DELTA, PLAN, trained_run

from antiphon.audits import audit
from antiphon.commands import main
from antiphon.mechanisms import LambdaCGD
from antiphon.plans import Plan, Poisson

FAST = ("--quick", "--runs", "0")


def program(*arguments):
    """The program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "antiphon", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )


@pytest.fixture
def call(capsys):
    """Exit code, output and errors of `main`."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def write(tmp_path):
    def write(text, name="target.json"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture
def stub(monkeypatch):
    """Keeps what the audit is asked for, and interrupts it."""
    asked = []

    def stub(certificate, **options):
        asked.append((certificate, options))
        raise KeyboardInterrupt

    monkeypatch.setattr("antiphon.audits.audit", stub)
    return asked


def state_of(folder):
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in [folder, *folder.iterdir()]
        if path.is_file()
    } | {"folder": folder.stat().st_mtime_ns}


def assert_found(code, out):
    """The report is of our certificate, and consistent with it."""
    found = json.loads(out)
    assert code == 0
    assert found["verdict"] == "consistent"
    assert found["certified_epsilon"] == pytest.approx(CERTIFICATE.epsilon, rel=1e-9)
    assert 0 < found["audited_epsilon"] < CERTIFICATE.epsilon
    assert found["ratio"] == found["audited_epsilon"] / found["certified_epsilon"]
    assert found["delta"] == CERTIFICATE.delta
    assert Plan.from_json(json.dumps(found["plan"])) == CERTIFICATE.plan
    return found


def assert_refused(result, *words):
    """One line on the error stream, and nothing else."""
    code, out, err = result
    assert (code, out) == (1, "")
    assert err.startswith("antiphon: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_user_audits_a_plan_and_gets_a_table_and_a_figure(write, tmp_path):
    target, figure = write(PLAN.to_json()), tmp_path / "audit.svg"
    run = program("audit", target, "--quick", "--runs", 60, "--delta", DELTA, "--figure", figure)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert f"ε ≤ {CERTIFICATE.epsilon:.4g} at δ = 1e-05" in lines[0]
    assert any("two-world" in line and "of 60" in line for line in lines)
    assert "verdict: consistent" in lines[-2]
    assert lines[-1] == f"figure: {figure}"
    assert max(map(len, lines[:-1])) <= 80
    assert figure.read_text().startswith("<?xml")
    again = program("audit", target, "--quick", "--figure", figure)
    refused = (again.returncode, again.stdout, again.stderr)
    assert_refused(refused, "audit.svg exists already: give --force to replace it")


def test_a_broken_file_is_one_line_without_a_traceback(write):
    run = program("audit", write('{"plan": '))
    assert_refused((run.returncode, run.stdout, run.stderr), "target.json is not JSON")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["audit"],
        ["audit", "x", "--runs", "7"],
        ["audit", "x", "--runs", "-1"],
        ["audit", "x", "--jobs", "0"],
        ["audit", "x", "--seed", "1.5"],
        ["audit", "x", "--delta", "1"],
        ["audit", "x", "--delta", "small"],
        ["audit", "x", "--figure", "audit.txt"],
        ["sing"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("antiphon: error: ") and err.count("\n") == 1
    assert "--help)" in err


def test_help_and_version_are_quick_and_load_no_heavy_library(capsys):
    code = (
        "import sys, antiphon.commands\n"
        "try: antiphon.commands.main(['--version'])\n"
        "finally: print(*(m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["antiphon", CERTIFICATE.version]
    with pytest.raises(SystemExit) as ended:
        main(["audit", "--help"])
    assert ended.value.code == 0
    assert "TARGET" in capsys.readouterr().out


def test_json_is_the_report_of_the_library(call, write):
    code, out, err = call("audit", write(CERTIFICATE.to_json()), *FAST, "--seed", 3, "--json")
    found = assert_found(code, out)
    assert err == ""
    own = json.loads(audit(CERTIFICATE, quick=True, runs=0, seed=3).to_json())
    for audits in (found["audits"], own["audits"]):
        audits[0].pop("seconds")
    assert found == own


def test_a_runs_folder_is_audited_and_stays_as_it_is(call, tmp_path):
    trained_run(tmp_path)
    before = state_of(tmp_path / "run")
    assert "checkpoint.safetensors" in before
    code, out, err = call("audit", tmp_path / "run", *FAST, "--delta", DELTA, "--json")
    assert_found(code, out)
    assert err == ""
    assert state_of(tmp_path / "run") == before


def test_a_monte_carlo_claim_is_taken_unchanged_and_refuted_if_it_is_false(call, write):
    plan = replace(PLAN, sampling=Poisson(0.9), mechanism=LambdaCGD(0.5), noise_multiplier=0.5)
    claim = replace(CERTIFICATE, plan=plan, epsilon=0.1, route="mixture", confidence=0.999999)
    code, out, err = call("audit", write(claim.to_json()), *FAST, "--json")
    assert "Monte Carlo bound, taken from the file" in err
    assert code == 1
    found = json.loads(out)
    assert found["verdict"].startswith("VIOLATION")
    assert found["audited_epsilon"] > 0.1


def test_options_reach_the_audit_and_an_interrupt_is_one_line(call, write, stub):
    target = write(PLAN.to_json())
    result = call("audit", target, "--delta", DELTA, "--runs", 70, "--seed", 5, "--jobs", 2)
    assert result == (130, "", "antiphon: interrupted\n")
    options = {"quick": False, "runs": 70, "seed": 5, "jobs": 2}
    assert stub == [(CERTIFICATE, options)]


def test_a_remark_goes_to_the_error_stream(call, write, stub):
    loose = replace(CERTIFICATE, epsilon=2 * CERTIFICATE.epsilon)
    code, out, err = call("audit", write(loose.to_json()), "--json")
    assert (code, out) == (130, "")
    assert err.startswith("antiphon: note: the file claims")


def test_a_certificate_that_is_not_proved_is_one_line(call, write, stub):
    forged = replace(CERTIFICATE, epsilon=1.0)
    words = f"claims ε = 1, but only {CERTIFICATE.epsilon:.10g} is proved for its plan"
    assert_refused(call("audit", write(forged.to_json())), words)
    assert stub == []


def test_a_missing_file_or_folder_is_refused_before_anything_is_run(call, write, tmp_path, stub):
    assert_refused(call("audit", tmp_path / "nothing.json"), "nothing.json: No such file")
    assert_refused(call("audit", tmp_path / "nothing.safetensors"), "there is no export at")
    figure = tmp_path / "missing" / "audit.png"
    assert_refused(call("audit", write(PLAN.to_json()), "--figure", figure), "no such folder")
    assert stub == []
