"""Every script in examples/ runs as it stands, in a process of its own, with warnings as errors."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon

EXAMPLES = Path(__file__).parents[2] / "examples"
# The package that is tested here, wherever the process starts.
SETTING = {
    "OMP_NUM_THREADS": "1",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONPATH": str(Path(antiphon.__file__).resolve().parents[1]),
}
SMALL = {
    "audit_plan": (["--runs", "0"], "verdict: consistent", []),
    "compare_mechanisms": (["--epochs", "2", "--batches", "10"], "loss below", ["demo/mechanisms.png"]),
    "from_opacus": ([], "epoch 3", []),
    "ledger": ([], "is refused", ["survey.ledger"]),
    "table": (
        ["--steps", "50"],
        "differential privacy",
        ["demo-table/certificate.json", "demo-table/effects.png"],
    ),
    "torch_model": (["--epochs", "3", "--out", "d.safetensors"], "accuracy", ["d.safetensors"]),
}  # fmt: skip


def test_all_examples_are_run_and_short():
    scripts = {file.stem: file.read_text().splitlines() for file in EXAMPLES.glob("*.py")}
    assert set(scripts) == set(SMALL)
    assert [name for name, lines in scripts.items() if len(lines) > 60] == []


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs(name, tmp_path):
    arguments, shown, written = SMALL[name]
    run = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True, text=True, cwd=tmp_path, timeout=300,
        env=os.environ | SETTING,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert shown in run.stdout
    assert [file for file in written if not (tmp_path / file).exists()] == []


def test_the_table_example_takes_a_csv(tmp_path, monkeypatch, capsys):
    rows = "\n".join(f"{i % 7},{i % 5},{'a' if i % 7 > 3 else 'b'}" for i in range(300))
    (tmp_path / "own.csv").write_text(f"x,y,group\n{rows}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["table.py", "own.csv", "--target", "group", "--steps", "5"])
    runpy.run_path(str(EXAMPLES / "table.py"), run_name="__main__")
    assert "differential privacy" in capsys.readouterr().out
    assert (tmp_path / "demo-table" / "effects.png").exists()
