import sys
from types import ModuleType

import pytest

from antiphon.errors import DataError, PlanError
from antiphon_papers.common.averages import averages
from antiphon_papers.common.catalogue import experiment
from antiphon_papers.common.experiment import Experiment
from antiphon_papers.common.reproduce import reproduce
from antiphon_papers.kan_sgd.experiments import kan_sgd_noise_growth as growth

ID = "kan-sgd-noise-growth"


@pytest.fixture
def counted(monkeypatch):
    """The experiment with a quick run that counts its calls, and fails where it is told to."""
    calls, broken = [], []

    def run(config):
        if config in broken:
            raise RuntimeError("power cut")
        calls.append(config)
        return [{"epsilon": config.epsilon, "lam": config.lam, "steps": 1, "seed": config.seed,
                 "noise_multiplier": 1.0, "step": 1, "theory": 1.0, "measured": 1.0}]  # fmt: skip

    monkeypatch.setattr(growth, "run", run)
    return calls, broken


def test_an_interrupted_run_continues_where_it_stopped(tmp_path, counted):
    calls, broken = counted
    configs = growth.configs("full")
    broken.append(configs[5])
    with pytest.raises(RuntimeError, match="power cut"):
        reproduce(ID, "full", tmp_path)
    assert calls == list(configs[:5])
    broken.clear()
    found = reproduce(ID, "full", tmp_path)
    assert found.computed == len(configs) - 5
    assert calls == list(configs)
    assert [(row["epsilon"], row["lam"]) for row in found.rows] == [
        (config.epsilon, config.lam) for config in configs
    ]


def test_more_seeds_run_only_what_is_new(tmp_path, counted):
    calls, _ = counted
    reproduce(ID, "ci", tmp_path, seeds=1)
    before = len(calls)
    found = reproduce(ID, "ci", tmp_path, seeds=3)
    assert found.computed == 2 * before
    assert {row["runs"] for row in found.summary} == {3}


def test_several_jobs_give_the_rows_of_one(tmp_path):
    one = reproduce(ID, "ci", tmp_path / "one")
    two = reproduce(ID, "ci", tmp_path / "two", jobs=2)
    assert one.rows == two.rows
    assert two.computed == 2


def test_damaged_rows_are_refused_by_name(tmp_path, counted):
    reproduce(ID, "ci", tmp_path)
    next((tmp_path / "kept").iterdir()).write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"is damaged.*Remove it"):
        reproduce(ID, "ci", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such", "ci"), "no experiment is called 'no-such'; there are cnn-"),
        ((ID, "quick"), "preset is one of ci, full; got 'quick'"),
    ],
)
def test_unknown_names_are_refused_with_those_that_are_known(arguments, message, tmp_path):
    with pytest.raises(PlanError, match=message):
        reproduce(*arguments, tmp_path)


@pytest.mark.parametrize("values", [{"seeds": 0}, {"jobs": 0}])
def test_numbers_below_one_are_refused(values, tmp_path):
    with pytest.raises(PlanError, match="at least 1"):
        reproduce(ID, "ci", tmp_path, **values)


def test_a_module_without_the_parts_is_no_experiment():
    with pytest.raises(PlanError, match="it lacks Config, configs, run, plot"):
        Experiment("empty", ModuleType("empty"))


def test_standard_errors_are_those_of_means_and_unknown_for_one():
    rows = [{"x": 1, "y": y} for y in (1.0, 2.0, 4.0)] + [{"x": 2, "y": 5.0}]
    many, single = averages(rows, by=["x"], of=["y"])
    assert many["y_se"] == pytest.approx((7 / 3 / 3) ** 0.5)
    assert single == {"x": 2, "runs": 1, "y": 5.0, "y_se": None}


def test_titles_need_no_run():
    assert "grows" in experiment(ID).title
    assert "antiphon_papers.kan_sgd.experiments.kan_sgd_noise_growth" in sys.modules
