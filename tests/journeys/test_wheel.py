"""The README as a new user meets it: the built wheel alone, beside the libraries that it needs."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


def run(*command, **options):
    """The process's output; what went wrong is shown."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of programs of an environment that has our wheel, and sees nothing else of ours."""
    place = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
        "--wheel-dir", place, ROOT)  # fmt: skip
    (wheel,) = place.glob("antiphon-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", place / "env")
    (site,) = (place / "env" / "lib").glob("python*/site-packages")
    # A path in a .pth file is not searched for further .pth files: the editable install stays unseen.
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    run(*PIP, "--python", place / "env" / "bin" / "python", "install", "--quiet", "--no-index",
        "--no-deps", "--ignore-installed", wheel)  # fmt: skip
    return place / "env" / "bin"


@pytest.fixture
def shell(installed, tmp_path):
    """Run a program of the environment in an empty folder."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def shell(program, *arguments):
        return run(installed / program, *arguments, cwd=tmp_path, env=env)

    return shell


def test_the_wheel_is_what_runs_and_has_all_its_files(shell, installed):
    where = Path(shell("python", "-c", "import antiphon; print(antiphon.__file__)").strip())
    assert installed.parent in where.parents
    packaged = {p.relative_to(where.parent) for p in where.parent.rglob("*") if p.is_file()}
    source = ROOT / "src" / "antiphon"
    ours = {p.relative_to(source) for p in source.rglob("*") if p.is_file()}
    assert {p for p in ours if "__pycache__" not in p.parts} <= packaged


def test_the_python_of_the_readme_runs(shell, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    (tmp_path / "readme.py").write_text("\n".join(blocks))
    assert shell("python", "readme.py").count("Certificate of differential privacy") == 3
    assert (tmp_path / "splines.png").is_file()


def test_the_commands_of_the_readme_run(shell, tmp_path):
    (block,) = (b for b in re.findall(r"```sh\n(.*?)```", README, re.S) if "antiphon train" in b)
    lines = [line.split("#")[0].split() for line in block.splitlines()]
    rows = [f"{20 + i % 70},{'fm'[i % 2]},{'no' if i % 70 < 35 else 'yes'}" for i in range(300)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,sex,ill", *rows]) + "\n")
    (tmp_path / "new.csv").write_text("age,sex\n30,f\n80,m\n")
    bounds = tmp_path / "bounds.toml"
    for program, *arguments in lines:
        assert program == "antiphon"
        if arguments == ["explore"]:  # serves until it is ended; tested by itself
            continue
        shown = shell(program, *arguments)
        if arguments[0] == "schema":
            text = bounds.read_text().replace("# age = [LOWEST, HIGHEST]", "age = [0, 100]")
            bounds.write_text(text.replace('# sex = ["first", "second"]', 'sex = ["f", "m"]'))
    assert len(shown.splitlines()) == 3 and shown.startswith("prediction\n")
    assert (tmp_path / "model" / "report.html").is_file()
