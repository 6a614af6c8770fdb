"""The Python of every page is run in order, as a reader would, and links lead somewhere."""

import pkgutil
import re
import shlex
from contextlib import nullcontext
from pathlib import Path

import pytest

from antiphon.commands import main

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src" / "antiphon_papers").rglob("README.md")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# The README is run by test_wheel, from the built wheel.
RUN = [page for page in PAGES if page.name != "README.md" and BLOCK.search(page.read_text())]

# What a page prints and writes, in its own words where it quotes a number.
PRINTS = {
    "auditing.md": ["Audit (black-box)"],
    "choosing-a-mechanism.md": ["99.8", "37.7", "27.1", "22.7", "18.8", "3.70", "1.13", "1.01"],
    "comparison.md": ["1.83\n17.86\n"],
    "estimators.md": ["differential privacy"],
    "experiments.md": ["(455, 30)"],
    "from-opacus.md": ["differential privacy"],
    "index.md": [", 1e-05)-differential privacy"],
    "mechanisms.md": ["8.8933"],
    "tables.md": ["differential privacy"],
    "theory.md": ["vacuous", "as published has no ε", "conditional (random-DP)", "70.7\n77.0\nNuFTRL"],
    "training.md": ["differential privacy"],
    "tutorial-table.md": ["differential privacy", "accuracy about 0.", "user\n", "of 3"],
    "tutorial-torch.md": ["nn.GroupNorm", "at ε = 4.00", "still 4.0", "resumes at step 10", "user 150"],
}  # fmt: skip
WRITES = {
    "estimators.md": ["effects.png"],
    "experiments.md": ["results/noise-growth/figure.svg"],
    "training.md": ["model.safetensors"],
    "tutorial-table.md": ["patients.csv", "model.pickle", "certificate.json", "effects.png"],
    "tutorial-torch.md": ["digits.safetensors", "digits-run"],
}
LONG = {"estimators.md", "tutorial-table.md", "tutorial-torch.md"}  # fit several models, as told
WARNS = {"from-opacus.md": "replaced by the engine's own"}


def score_is_above_a_guess(page, names, shown, folder):
    assert float(shown.splitlines()[-1]) > 0.5


def table_is_within_its_bounds_and_its_file_as_shown(page, names, shown, folder):
    assert abs(names["X"]).max() <= 1
    written = (folder / "bounds.toml").read_text().splitlines()
    lines = re.search(r"```toml\n(.*?)```", page, re.S).group(1).splitlines()
    assert [line for line in written if line in lines] == lines


def model_has_learned(page, names, shown, folder):
    assert names["accuracy"] > 0.7


CHECKS = {
    "estimators.md": score_is_above_a_guess,
    "tables.md": table_is_within_its_bounds_and_its_file_as_shown,
    "tutorial-torch.md": model_has_learned,
}


def test_what_is_expected_is_of_pages_that_are_run():
    names = {page.name for page in RUN}
    assert set(PRINTS) | set(WRITES) | set(WARNS) | set(CHECKS) | LONG <= names


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.name in LONG)) for p in RUN],
    ids=lambda page: page.name,
)
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text, names = page.read_text(), {}
    announced = WARNS.get(page.name)
    with pytest.warns(UserWarning, match=announced) if announced else nullcontext():
        for code in BLOCK.findall(text):
            exec(compile(code, page.name, "exec"), names)
    shown = capsys.readouterr().out
    for part in PRINTS.get(page.name, ()):
        assert part in shown, part
    for file in WRITES.get(page.name, ()):
        assert (tmp_path / file).exists(), file
    if page.name in CHECKS:
        CHECKS[page.name](text, names, shown, tmp_path)


def test_every_line_of_the_page_on_commands_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "commands.md").read_text()
    (tmp_path / "patients.csv").write_text(re.search(r"```csv\n(.*?)```", page, re.S).group(1))
    blocks = "".join(re.findall(r"```sh\n(.*?)```", page, re.S)).replace("\\\n", " ")
    for line in blocks.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "antiphon"
        assert (line, main(arguments)) == (line, 0)
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1 and "no table was named" in shown.err
    assert "differential privacy" in shown.out
    template = (tmp_path / "bounds.toml").read_text().splitlines()
    for line in re.search(r"```toml\n(.*?)```", page, re.S).group(1).splitlines():
        assert line in template
    assert (tmp_path / "results" / "kan-sgd-noise-growth" / "figure.svg").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    generated = {"references.md", "examples.md", "changelog.md", "contributing.md"}
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)[^):]*\)|(?:src|srcset)=\"([^\":]+)\"", text):
        file = target[0] or target[1]
        assert file in generated or (page.parent / file).exists(), file


def test_errata_name_tests_that_exist():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+?)_?…?`", (ROOT / "docs" / "errata.md").read_text()):
        assert name in tests, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_and_files_of_the_library_exist(page):
    text = page.read_text()
    for name in re.findall(r"`(antiphon(?:_papers)?(?:\.\w+)+)", text):
        pkgutil.resolve_name(name)
    for file in re.findall(r"`((?:src|tests|benchmarks|examples)/[\w/]+\.py)`", text):
        assert (ROOT / file).exists(), file
