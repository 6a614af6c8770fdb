"""``antiphon reproduce``: what there is, one, or all; what fails does not stop the others."""

import json
import sys

import pytest
from oracles.calls import assert_misused, assert_refused, caller

from antiphon_papers.common.catalogue import experiments
from antiphon_papers.kan_sgd.experiments import kan_sgd_noise_growth as growth

ID = "kan-sgd-noise-growth"


@pytest.fixture
def call(capsys):
    return caller(capsys)


@pytest.fixture
def quick(monkeypatch):
    """The experiment with a run that takes no time, and stops where it is told to."""
    calls, broken = [], {}

    def run(config):
        calls.append(config)
        if len(calls) in broken:
            raise broken[len(calls)]
        return [{"epsilon": config.epsilon, "lam": config.lam, "steps": 1, "seed": config.seed,
                 "noise_multiplier": 1.0, "step": 1, "theory": 1.0, "measured": 1.0}]  # fmt: skip

    monkeypatch.setattr(growth, "run", run)
    return calls, broken


def test_the_list_has_every_experiment_with_its_title(call):
    code, out, err = call("reproduce", "list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == [*experiments()]
    found = json.loads(call("reproduce", "list", "--json")[1])
    assert {row["id"] for row in found} == {*experiments()}
    assert all(row["title"] for row in found)


def test_an_experiment_is_run_once_and_then_found(call, quick, tmp_path):
    options = ("reproduce", ID, "--preset", "ci", "--seeds", 2, "--out", tmp_path, "--json")
    code, out, err = call(*options)
    first = json.loads(out)
    assert (code, err) == (0, "") and first["computed"] == len(quick[0]) == first["rows"]
    assert first["folder"] == str(tmp_path / ID)
    assert {"rows.csv", "summary.csv", "figure.svg"} <= {f.name for f in (tmp_path / ID).iterdir()}
    assert json.loads(call(*options)[1])["computed"] == 0
    assert ID in call(*options[:-1])[1]


def test_a_variant_has_a_folder_of_its_own_and_belongs_to_one_experiment(
    call, tmp_path, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        "antiphon_papers.cnn.experiments.cnn_figure_1.configs",
        lambda preset, seeds=None, variant="r1": seen.append(variant) or (),
    )
    module = sys.modules["antiphon_papers.common.reproduce"]
    monkeypatch.setattr(module, "_publish", lambda *args: None)
    options = ("reproduce", "cnn-figure-1", "--preset", "ci", "--out", tmp_path, "--json")
    code, out, err = call(*options, "--variant", "r3-coarse")
    assert (code, err, seen) == (0, "", ["r3-coarse"])
    assert json.loads(out)["folder"] == str(tmp_path / "cnn-figure-1-r3-coarse")
    assert json.loads(call(*options)[1])["folder"] == str(tmp_path / "cnn-figure-1")
    assert_refused(call("reproduce", "all", "--variant", "r1"), "belongs to one experiment")
    assert_refused(call("reproduce", ID, "--variant", "r1"), f"variants of {ID}: none; got 'r1'")
    assert "(--variant r1|r3|r1-coarse|r3-coarse)" in call("reproduce", "list")[1]


def test_an_interrupt_keeps_what_is_finished(call, quick, tmp_path):
    broken = quick[1]
    broken[2] = KeyboardInterrupt()
    options = ("reproduce", ID, "--preset", "ci", "--seeds", 2, "--out", tmp_path)
    assert call(*options) == (130, "", "antiphon: interrupted\n")
    assert len([*(tmp_path / ID / "kept").glob("*.json")]) == 1
    broken.clear()
    found = json.loads(call(*options, "--json")[1])
    assert found["computed"] == found["rows"] - 1


def test_all_continues_after_one_that_fails_and_says_which(call, quick, tmp_path, monkeypatch):
    ids = ("kan-sgd-noise-growth", "kan-sgd-risk")
    monkeypatch.setattr("antiphon_papers.common.catalogue.experiments", lambda: ids[::-1])
    monkeypatch.setattr(
        "antiphon_papers.kan_sgd.experiments.kan_sgd_risk.run", lambda config: 1 / 0
    )
    options = ("reproduce", "all", "--preset", "ci", "--out", tmp_path)
    code, out, err = call(*options, "--json")
    risk, noise = json.loads(out)
    assert (code, err) == (1, "")
    assert risk == {"id": ids[1], "preset": "ci", "error": "ZeroDivisionError: division by zero"}
    assert noise["id"] == ids[0] and noise["rows"]
    code, out, err = call(*options)
    assert code == 1 and "ZeroDivisionError" in out
    monkeypatch.setattr("antiphon_papers.common.catalogue.experiments", lambda: ids[:1])
    assert call(*options)[0] == 0


def test_a_cluster_that_does_not_answer_and_an_unknown_id_are_one_line(call, tmp_path, monkeypatch):
    monkeypatch.setattr("antiphon_papers.common.workers._PATIENCE", 0.2)
    cluster = ("--preset", "ci", "--out", tmp_path, "--cluster", "tcp://127.0.0.1:1")
    assert_refused(call("reproduce", ID, *cluster), "no Dask scheduler answers")
    assert_refused(call("reproduce", "no-such"), "no experiment is called 'no-such'; there are")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "list|all|ID"),
        ((ID, "--preset", "quick"), "invalid choice"),
        ((ID, "--jobs", "0"), "at least 1"),
        ((ID, "--jobs", "2", "--cluster", "tcp://x:1"), "not allowed with"),
    ],
)
def test_wrong_usage_is_one_line(capsys, options, words):
    assert_misused(capsys, ("reproduce", *options), words)
