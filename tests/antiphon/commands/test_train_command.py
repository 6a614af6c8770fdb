"""``antiphon train``, ``predict`` and ``report`` as a person with a table uses them."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from oracles.calls import assert_refused, caller, started

from antiphon.certificates import Certificate
from antiphon.tables.estimators import load
from antiphon.training.checkpoints import read_export

BOUNDS = """
[bounds]
age = [0, 100]
dose = [0, 10]

[categories]
sex = ["f", "m"]
grade = [1, 2, 3]
ill = ["no", "yes"]
"""
QUICK = ("--steps", 20, "--mechanism", "independent")


def patients(n=400, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 95, n),
            "sex": rng.choice(["f", "m"], n),
            "dose": rng.uniform(0, 10, n).round(2),
            "grade": rng.integers(1, 4, n),
        }
    )
    table["ill"] = np.where(table["age"] + 10 * (table["sex"] == "m") > 60, "yes", "no")
    table["cost"] = (100 + 3 * table["age"] + rng.normal(0, 5, n)).round(1)
    return table


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a table of patients, a public one, and bounds."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    patients().drop(columns="cost").to_csv("patients.csv", index=False)
    patients(100, seed=1).drop(columns="cost").to_csv("public.csv", index=False)
    Path("bounds.toml").write_text(BOUNDS)
    return work


@pytest.fixture
def call(capsys):
    return caller(capsys)


TRAIN = (
    "train",
    "patients.csv",
    "--target",
    "ill",
    "--epsilon",
    4,
    "--bounds",
    "bounds.toml",
    *QUICK,
)


def test_the_example_needs_no_table(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("train", "--out", "demo", "--json", *QUICK)
    found = json.loads(out)
    assert code == 0 and "breast-cancer" in err
    assert found["certificate"]["epsilon"] <= 2.0
    assert found["evaluation"]["metrics"]["accuracy"] > 0.7
    assert sorted(path.name for path in Path("demo").iterdir()) == [
        "certificate.json", "model.safetensors", "report.html", "report.json",
    ]  # fmt: skip
    written = Certificate.from_json(Path("demo/certificate.json").read_text())
    assert json.loads(written.to_json()) == found["certificate"]


def test_a_table_becomes_a_model_that_predicts(call, place):
    code, out, err = call(*TRAIN, "--test", "public.csv", "--out", "model")
    assert code == 0, err
    assert "differential privacy" in out and "On 100 public records" in out and "report.html" in out
    public = pd.read_csv("public.csv")
    public.drop(columns="ill").assign(note="x").to_csv("new.csv", index=False)
    code, out, err = call("predict", "model", "new.csv", "--proba", "--out", "predicted.csv")
    assert (code, out, err) == (0, "", "")
    predicted = pd.read_csv("predicted.csv")
    assert list(predicted) == ["prediction", "probability of no", "probability of yes"]
    again = ("predict", "model", "new.csv", "--out", "predicted.csv")
    assert_refused(call(*again), "predicted.csv exists already: give --force to replace it")
    assert list(pd.read_csv("predicted.csv")) == list(predicted)
    assert call(*again, "--force")[0] == 0 and list(pd.read_csv("predicted.csv")) == ["prediction"]
    report = json.loads(Path("model/report.json").read_text())
    right = (predicted["prediction"] == public["ill"]).mean()
    assert report["evaluation"]["metrics"]["accuracy"] == pytest.approx(right)
    assert [row["step"] for row in report["learning"]][-1] == 20
    assert call("predict", "model", "new.csv", "--json")[1].startswith('{"prediction": ["')


def test_a_neuron_learns_costs_predicts_and_is_reported(call, place):
    patients().drop(columns="ill").to_csv("costs.csv", index=False)
    patients(50, seed=1).drop(columns=["ill", "cost"]).to_csv("new.csv", index=False)
    costs = BOUNDS.replace('ill = ["no", "yes"]', "").replace("[0, 10]", "[0, 10]\ncost = [0, 500]")
    Path("costs.toml").write_text(costs)
    asked = ("--target", "cost", "--epsilon", 8, "--bounds", "costs.toml", "--model", "relu")
    code, out, err = call("train", "costs.csv", *asked, "--evaluate", 0.3, "--out", "model")
    assert code == 0 and "differential privacy" in out, err
    assert call("predict", "model", "new.csv", "--out", "predicted.csv")[0] == 0
    predicted, truth = pd.read_csv("predicted.csv")["prediction"], patients(50, seed=1)["cost"]
    assert np.corrcoef(predicted, truth)[0, 1] > 0.9
    report = json.loads(Path("model/report.json").read_text())
    assert any("passes over the data" in line for line in report["certificate"]["assumptions"])
    assert call("report", "model")[0] == call("certify", "model")[0] == 0
    code, _, err = call("train", "costs.csv", *asked, "--user", "age", "--out", "other")
    assert code == 1 and "protects single records" in err and not Path("other").exists()


def test_no_score_is_shown_unless_it_is_public_or_paid_for(call, place):
    _, out, _ = call(*TRAIN, "--out", "model")
    assert "No score is shown" in out
    report = json.loads(Path("model/report.json").read_text())
    assert report["evaluation"] is None and report["learning"] == []


def test_a_held_out_score_is_noisy_and_paid_for(call, place):
    code, out, err = call(*TRAIN, "--evaluate", 0.25, "--out", "model", "--json")
    assert code == 0, err
    found = json.loads(out)
    score, plan = found["evaluation"], found["certificate"]["plan"]
    (event,) = plan["extra"]
    assert event["mu"] > 0 and event["what"].startswith("the accuracy on held-out records")
    assert plan["n"] + score["rows"] == 400 and 60 < score["rows"] < 140
    low, high = score["interval"]["accuracy"]
    assert low <= score["metrics"]["accuracy"] <= high
    assert found["certificate"]["epsilon"] <= 4.0
    assert any("held-out" in line for line in found["certificate"]["assumptions"])


def test_a_number_is_predicted_where_one_is_declared(call, place):
    patients().drop(columns="ill").to_csv("costs.csv", index=False)
    Path("costs.toml").write_text(
        BOUNDS.replace('ill = ["no", "yes"]', "").replace(
            "dose = [0, 10]", "dose = [0, 10]\ncost = [0, 500]"
        )
    )
    code, out, err = call(
        "train", "costs.csv", "--target", "cost", "--epsilon", 8, "--bounds", "costs.toml",
        "--evaluate", 0.2, "--out", "model", "--json", *QUICK,
    )  # fmt: skip
    assert code == 0, err
    assert list(json.loads(out)["evaluation"]["metrics"]) == ["mean absolute error"]
    assert load("model/model.safetensors").target_.high == 500


def test_users_are_protected_as_a_whole(call, place):
    table = pd.read_csv("patients.csv").assign(person=np.arange(400) // 2)
    table.to_csv("visits.csv", index=False)
    code, out, err = call(
        "train", "visits.csv", "--target", "ill", "--epsilon", 4, "--bounds", "bounds.toml",
        "--user", "person", "--evaluate", 0.2, "--out", "model", "--json", *QUICK,
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert found["certificate"]["unit"] == "user" and found["certificate"]["plan"]["n"] < 200
    assert "person" not in load("model/model.safetensors").schema_.names


def test_bounds_are_found_privately_where_none_are_declared(call, place):
    code, out, err = call(
        "train", "patients.csv", "--target", "ill", "--epsilon", 4, "--bounds", "some.toml",
        "--out", "model", "--json", *QUICK,
    )  # fmt: skip
    assert code == 1 and "some.toml" in err
    Path("some.toml").write_text('[bounds]\nage = [0, 100]\n[categories]\nsex = ["f", "m"]\n')
    code, out, err = call(
        "train", "patients.csv", "--target", "ill", "--epsilon", 4, "--bounds", "some.toml",
        "--out", "model", "--json", *QUICK,
    )  # fmt: skip
    assert code == 0, err
    (event,) = json.loads(out)["certificate"]["plan"]["extra"]
    assert event["what"] == "bounds of the columns"
    found = json.loads(Path("model/report.json").read_text())["trained"]
    columns = {c["name"]: c for c in found["columns"]}
    assert columns["dose"]["from"] == "private" and columns["age"]["from"] == "declared"


BAD = {
    "missing target": (lambda t: t.drop(columns="ill"), "no column 'ill'"),
    "text in a numeric column": (lambda t: t.assign(age="old"), "'age' holds texts"),
    "empty cells": (lambda t: t.assign(age=np.nan), "'age' has empty cells"),
    "one class": (lambda t: t.assign(ill="yes").rename(columns={}), None),
    "ten rows": (lambda t: t.head(10), "10 records"),
    "a label that was not declared": (lambda t: t.assign(ill="perhaps"), "declared classes"),
    "an unknown column in the bounds": (lambda t: t.drop(columns="dose"), "'dose'"),
    "header only": (lambda t: t.head(0), "no record"),
    "target with gaps": (lambda t: t.assign(ill=[None, *t["ill"][1:]]), "empty cells"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_gives_one_line_and_leaves_nothing(name, call, place):
    change, words = BAD[name]
    if words is None:
        Path("bounds.toml").write_text(BOUNDS.replace('ill = ["no", "yes"]', ""))
        words = "at least two classes"
    change(pd.read_csv("patients.csv")).to_csv("bad.csv", index=False)
    before = sorted(os.listdir())
    code, out, err = call("train", "bad.csv", *TRAIN[2:], "--out", "model")
    assert (code, out) == (1, "") and words in err
    assert err.count("\n") == 1 and err.startswith("antiphon: error: ")
    assert sorted(os.listdir()) == before


FILES = {
    "empty": ("bad.csv", b"", "empty"),
    "not UTF-8": ("bad.csv", b"age,ill\n4\xff1,yes\n" * 90, "UTF-8"),
    "duplicate columns": ("bad.csv", b"age,age,ill\n1,2,yes\n", "several columns of one name"),
    "cut short": ("bad.csv", b"age,dose,ill\n" + b"1,2,yes\n" * 99 + b"1,2", "line 101"),
    "a stream cut short": (
        "bad.csv.gz",
        gzip.compress(b"age,ill\n" + b"1,yes\n" * 9000)[:-30],
        "cut",
    ),
    "no table": ("bad.docx", b"PK", "unknown kind"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_gives_one_line_and_leaves_nothing(name, call, place):
    file, content, words = FILES[name]
    Path(file).write_bytes(content)
    before = sorted(os.listdir())
    code, out, err = call("train", file, *TRAIN[2:], "--out", "model")
    assert (code, out) == (1, "") and words in err and err.count("\n") == 1
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("train", "patients.csv", "--epsilon", 1), "--target COLUMN"),
        (("train", "patients.csv", "--target", "ill"), "--epsilon 1"),
        (("train", "--target", "ill"), "no TABLE was named"),
        ((*TRAIN, "--test", "public.csv", "--evaluate", 0.2), "give one of the two"),
        ((*TRAIN, "--model", "logistic", "--task", "regression"), "does not do regression"),
        ((*TRAIN, "--mechanism", "magic"), "magic"),
        ((*TRAIN, "--ledger", "none.ledger"), "none.ledger"),
        (("train", "--resume", "--out", "nowhere"), "Nothing is left to resume"),
        (("train", "--resume", "--epsilon", 9, "--out", "nowhere"), "leave out epsilon"),
        (("predict", "nowhere.safetensors", "patients.csv"), "nowhere.safetensors"),
        (("report", "nowhere"), "nowhere"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_said_in_one_line(options, words, call, place):
    before = sorted(os.listdir())
    code, out, err = call(*options)
    assert (code, out) == (1, "") and words in err and err.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_a_folder_with_something_in_it_is_left_alone(call, place):
    (place / "model").mkdir()
    (place / "model" / "mine.txt").write_text("mine")
    code, _, err = call(*TRAIN, "--out", "model")
    assert code == 1 and "is there already" in err
    assert [path.name for path in (place / "model").iterdir()] == ["mine.txt"]


def test_the_ledger_pays_once(call, place):
    from antiphon.certificates import Ledger

    ledger = Ledger.create(place / "spent", epsilon=8.0, delta=0.01, relation="add-remove")
    assert call(*TRAIN, "--ledger", "spent", "--out", "first")[0] == 0
    assert len(ledger.entries()) == 1
    code, _, err = call(*TRAIN, "--ledger", "spent", "--out", "second")
    assert code == 1 and "budget" in err and not (place / "second").exists()


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupts training within its eleventh step, as Ctrl-C does."""
    from antiphon.training.run import Run

    original = Run.add

    def add(run, piece):
        if run.steps_taken == 10:
            raise KeyboardInterrupt
        original(run, piece)

    monkeypatch.setattr(Run, "add", add)
    return lambda: monkeypatch.setattr(Run, "add", original)


def test_an_interrupted_run_resumes_to_the_same_result(call, place, interrupted):
    options = (*TRAIN, "--test", "public.csv", "--seed", 7)
    code, _, err = call(*options, "--out", "model")
    assert code == 130 and "antiphon train --resume --out model" in err
    secret = place / "model" / "secret"
    assert secret.stat().st_mode & 0o777 == 0o700 and not (place / "model/report.html").exists()
    interrupted()
    for command in (("train", "--resume", "--out", "model"), (*options, "--out", "whole")):
        code, _, err = call(*command)
        assert code == 0, err
    for name in ("report.json", "certificate.json"):
        assert (place / "model" / name).read_bytes() == (place / "whole" / name).read_bytes()
    (tensors, meta), (others, other) = (
        read_export(place / folder / "model.safetensors") for folder in ("model", "whole")
    )
    assert meta == other and all(torch.equal(tensors[name], others[name]) for name in others)
    assert not secret.exists()


def test_control_c_in_a_real_process_leaves_a_run_that_can_be_resumed(place):
    long = (*TRAIN[:-4], "--mechanism", "independent", "--steps", 12_000)
    with started(*long, "--out", "model") as run:
        end = time.monotonic() + 120
        while not list(place.glob("model/secret/fit/*/checkpoint.safetensors")):
            assert run.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        second = subprocess.run(
            [sys.executable, "-m", "antiphon", "train", "--resume", "--out", "model"],
            capture_output=True,
            text=True,
        )
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130 and "--resume --out model" in err, err
    assert second.returncode == 1 and "another process is writing this run" in second.stderr


def test_what_is_left_holds_no_secret(call, place):
    from antiphon.numerics import Generator

    seed = 987654321987
    assert call(*TRAIN, "--seed", seed, "--evaluate", 0.2, "--out", "model")[0] == 0
    root = Generator.seeded(seed)
    secrets = [str(seed).encode(), f"{seed:x}".encode()]
    for generator in (root, root.spawn("beside training"), root.spawn("noise")):
        secrets += [generator.key, generator.key.hex().encode()]
    left = b"".join(path.read_bytes() for path in (place / "model").iterdir())
    assert not [secret for secret in secrets if secret in left]


def test_the_page_can_be_written_again(call, place):
    call(*TRAIN, "--out", "model")
    first = Path("model/report.html").read_text()
    Path("model/report.html").unlink()
    code, out, _ = call("report", "model")
    assert code == 0 and "report.html" in out and Path("model/report.html").read_text() == first
    assert call("report", "model")[0] == 0  # which is what the command is for
    other = ("report", "model", "--out", "other.html")
    assert call(*other)[0] == 0 and Path("other.html").read_text() == first
    Path("other.html").write_text("mine")
    assert_refused(call(*other), "other.html exists already: give --force to replace it")
    assert Path("other.html").read_text() == "mine" and call(*other, "--force")[0] == 0
    assert json.loads(call("report", "model", "--json")[1]) == json.loads(
        Path("model/report.json").read_text()
    )


def test_bounds_that_were_paid_for_before_are_counted_in(call, place):
    options = ("--target", "ill", "--categories", "sex", "--out", "found.toml")
    assert call("schema", "patients.csv", "--private", "--epsilon", 1, *options)[0] == 0
    text = Path("found.toml").read_text()
    assert "[released]" in text
    Path("found.toml").write_text(text.replace('# sex = ["first", "second"]', 'sex = ["f", "m"]'))
    train = ("train", "patients.csv", "--target", "ill", "--epsilon", 4, *QUICK)
    code, out, err = call(*train, "--bounds", "found.toml", "--out", "model", "--json")
    assert code == 0, err
    (event,) = json.loads(out)["certificate"]["plan"]["extra"]
    assert event["what"] == "bounds of the columns" and event["relation"] == "add-remove"
    code, _, err = call(*train, "--bounds", "found.toml", "--user", "grade", "--out", "other")
    assert code == 1 and "found privately for single records" in err


def test_a_score_of_users_tells_nothing_of_how_many_records_they_have(call, place):
    table = pd.read_csv("patients.csv").assign(
        person=np.repeat([0, *range(1, 201)], [200] + [1] * 200)
    )
    table.to_csv("visits.csv", index=False)
    code, out, err = call(
        "train", "visits.csv", "--target", "ill", "--epsilon", 4, "--bounds", "bounds.toml",
        "--user", "person", "--evaluate", 0.5, "--out", "model", "--json", *QUICK,
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert found["evaluation"]["rows"] + found["certificate"]["plan"]["n"] == 201
    assert "users (their number is public)" in json.dumps(found["certificate"]["assumptions"])


def test_a_user_without_a_name_is_refused(call, place):
    table = pd.read_csv("patients.csv").assign(person=np.arange(400).astype(str))
    table.loc[3, "person"] = " "
    table.to_csv("visits.csv", index=False)
    code, _, err = call("train", "visits.csv", *TRAIN[2:], "--user", "person", "--out", "model")
    assert code == 1 and "has empty cells" in err and not Path("model").exists()


def test_the_table_itself_is_no_public_table(call, place):
    Path("copy.csv").write_text(Path("patients.csv").read_text())
    for name in ("patients.csv", "copy.csv"):
        code, _, err = call(*TRAIN, "--test", name, "--out", "model")
        assert code == 1 and "is the table that is learned from" in err
    pd.read_csv("public.csv").assign(ill="perhaps").to_csv("odd.csv", index=False)
    code, _, err = call(*TRAIN, "--test", "odd.csv", "--out", "model")
    assert code == 1 and "not among the classes" in err and not Path("model").exists()


def test_a_share_that_leaves_nothing_to_score_is_refused_before_it_is_paid_for(call, place):
    from antiphon.certificates import Ledger

    ledger = Ledger.create(place / "spent", epsilon=8.0, delta=0.01, relation="add-remove")
    options = (*TRAIN, "--evaluate", 0.001, "--ledger", "spent", "--out", "model")
    code, _, err = call(*options)
    assert code == 1 and "each needs 20 at least" in err and not Path("model").exists()
    assert ledger.entries() == ()


def test_a_run_that_ended_while_its_secrets_were_removed_is_not_trained_again(
    call, place, monkeypatch
):
    import shutil

    with monkeypatch.context() as patched:

        def crash(path):
            (Path(path) / "fit" / "start.json").unlink()
            raise KeyboardInterrupt

        patched.setattr(shutil, "rmtree", crash)
        assert call(*TRAIN, "--evaluate", 0.2, "--out", "model")[0] == 130
    before = {p.name: p.read_bytes() for p in Path("model").iterdir() if p.is_file()}
    code, _, err = call("train", "--resume", "--out", "model")
    assert code == 1 and "has ended" in err
    assert {p.name: p.read_bytes() for p in Path("model").iterdir()} == before


def test_a_resumed_run_refuses_other_records_also_among_those_held_out(call, place, monkeypatch):
    from antiphon import reports

    with monkeypatch.context() as patched:

        def crash(*arguments, **options):
            raise KeyboardInterrupt

        patched.setattr(reports, "describe", crash)
        assert call(*TRAIN, "--evaluate", 0.2, "--out", "model")[0] == 130
    text = Path("patients.csv").read_text()
    table = pd.read_csv("patients.csv")
    for row in range(8):  # some are held out, some are not
        changed = table.copy()
        changed.loc[row, "ill"] = "no" if table.loc[row, "ill"] == "yes" else "yes"
        changed.to_csv("patients.csv", index=False)
        code, _, err = call("train", "--resume", "--out", "model")
        assert code == 1 and "other records" in err
    Path("patients.csv").write_text(text)
    assert call("train", "--resume", "--out", "model")[0] == 0
