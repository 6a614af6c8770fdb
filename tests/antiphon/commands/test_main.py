"""The program as it is installed: help, order, exit codes, output that stops in the middle."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from oracles.targets import CERTIFICATE, DELTA, PLAN

from antiphon.commands import main

COMMANDS = (
    "train", "predict", "report", "schema", "plan", "explore", "certify", "ledger", "audit", "reproduce",
)  # fmt: skip
SCRIPT = shutil.which("antiphon", path=str(Path(sys.executable).parent))


def program(*arguments, **options):
    """The console script, or the same by Python where it is not installed."""
    start = [SCRIPT] if SCRIPT else [sys.executable, "-m", "antiphon"]
    arguments = [*start, *map(str, arguments)]
    return subprocess.run(arguments, capture_output=True, text=True, env=os.environ, **options)


def shown_help(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_commands_are_listed_in_the_order_of_need(capsys):
    lines = shown_help(capsys).splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "]
    assert [name for name in listed if name in COMMANDS] == [*COMMANDS]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_examples_that_parse(capsys, command):
    from antiphon.commands.main import _parser

    text = shown_help(capsys, command)
    assert "--json" in text
    examples = text.split("examples:\n")[1].replace("\\\n", " ").splitlines()
    assert examples
    for line in examples:
        name, *arguments = shlex.split(line)
        assert name == "antiphon" and arguments[0] == command
        assert _parser().parse_args(arguments).run


def test_the_installed_program_certifies_a_plan(tmp_path):
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    run = program("certify", "plan.json", "--delta", DELTA, "--json", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["epsilon"] == CERTIFICATE.epsilon


def test_the_installed_program_refuses_in_one_line(tmp_path):
    (tmp_path / "cut.csv").write_text("a,b\n1,2\n3")
    bounds = ("--private", "--epsilon", 1, "--out", "bounds.toml")
    for arguments, code, words in (
        (("schema", "cut.csv", *bounds), 1, "line 3 of cut.csv has 1 field"),
        (("certify", "none.json"), 1, "none.json: No such file"),
        (("plan", "--n", 5), 2, "required"),
    ):
        run = program(*arguments, cwd=tmp_path)
        assert (run.returncode, run.stdout) == (code, "")
        assert run.stderr.startswith("antiphon: error: ") and run.stderr.count("\n") == 1
        assert words in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cut.csv"]


def test_a_reader_that_has_enough_ends_the_program_quietly(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-m", "antiphon", "schema", "t.csv"],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (run.returncode, run.stderr) == (1, "")


def test_warnings_are_one_line_on_the_error_stream(tmp_path):
    code = (
        "import warnings; from antiphon.commands import audit_command as audit, main\n"
        "audit.run = lambda options: warnings.warn('take\\n care') or 0\n"
        "raise SystemExit(main(['audit', 'x']))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "antiphon: warning: take care\n")
