"""The README's Python is run, and links within the documentation lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

from antiphon.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(
    "code",
    re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S),
    ids=str.__len__,
)
def test_the_readme_runs_as_it_stands(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    if "print(" in code:
        assert "differential privacy" in capsys.readouterr().out


def test_the_page_on_training_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page, names = (ROOT / "docs" / "training.md").read_text(), {}
    with pytest.warns(UserWarning, match="replaced by the engine's own"):
        for code in re.findall(r"```python\n(.*?)```", page, re.S):
            exec(compile(code, "training.md", "exec"), names)
    assert "differential privacy" in capsys.readouterr().out
    assert (tmp_path / "model.safetensors").exists()


def test_the_page_on_estimators_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page, names = (ROOT / "docs" / "estimators.md").read_text(), {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(code, "estimators.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "differential privacy" in shown and float(shown.splitlines()[-1]) > 0.5
    assert (tmp_path / "effects.png").exists()


def test_the_page_on_auditing_runs_as_it_stands(capsys):
    page = (ROOT / "docs" / "auditing.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(code, "auditing.md", "exec"), {})
    assert "Audit (black-box)" in capsys.readouterr().out


def test_the_page_on_experiments_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page, names = (ROOT / "docs" / "experiments.md").read_text(), {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
    assert (tmp_path / "results" / "noise-growth" / "figure.svg").exists()
    assert "(455, 30)" in capsys.readouterr().out


def test_the_page_on_tables_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page, names = (ROOT / "docs" / "tables.md").read_text(), {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(code, "tables.md", "exec"), names)
    assert "differential privacy" in capsys.readouterr().out
    assert abs(names["X"]).max() <= 1
    written = (tmp_path / "bounds.toml").read_text()
    shown = re.search(r"```toml\n(.*?)```", page, re.S).group(1)
    assert [
        line for line in written.splitlines() if line in shown.splitlines()
    ] == shown.splitlines()


def test_the_page_on_commands_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "commands.md").read_text()
    (tmp_path / "patients.csv").write_text(re.search(r"```csv\n(.*?)```", page, re.S).group(1))
    blocks = "".join(re.findall(r"```sh\n(.*?)```", page, re.S)).replace("\\\n", " ")
    for line in blocks.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "antiphon"
        assert (line, main(arguments)) == (line, 0)
    shown = capsys.readouterr()
    assert shown.err == "" and "differential privacy" in shown.out
    template = (tmp_path / "bounds.toml").read_text().splitlines()
    for line in re.search(r"```toml\n(.*?)```", page, re.S).group(1).splitlines():
        assert line in template
    assert (tmp_path / "results" / "kan-sgd-noise-growth" / "figure.svg").exists()


def test_the_page_on_theory_runs_as_it_stands(capsys):
    page = (ROOT / "docs" / "theory.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(code, "theory.md", "exec"), {})
    assert "vacuous" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_errata_name_tests_that_exist():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+?)_?…?`", (ROOT / "docs" / "errata.md").read_text()):
        assert name in tests, name
