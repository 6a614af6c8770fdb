import dataclasses

import pytest

from antiphon_papers.common.catalogue import experiment, experiments
from antiphon_papers.common.reproduce import reproduce
from antiphon_papers.kan_gd.experiments import gd_pictures, gd_runs
from antiphon_papers.kan_gd.experiments.gd_runs import NOISES, Config, configs, run, summary

TINY = Config("synthetic", "width", "clipped", 4, 8, 2.0, 1.0, n=200)
FIGURES = ("kan-gd-figure-2", "kan-gd-figure-3")


def of(**values):
    return dataclasses.replace(TINY, **values)


def test_the_figures_are_experiments_and_what_they_share_is_none():
    assert set(FIGURES) <= set(experiments())
    for module in (gd_runs, gd_pictures):
        assert module.__name__.rpartition(".")[2].replace("_", "-") not in experiments()


def test_the_second_figure_takes_the_runs_of_the_first(monkeypatch, tmp_path):
    first = reproduce(FIGURES[0], "ci", tmp_path / "2")
    monkeypatch.setattr(gd_runs, "_rows", None)
    second = reproduce(FIGURES[1], "ci", tmp_path / "3")
    assert second.rows == first.rows and second.summary == first.summary
    drawn = [(tmp_path / name / "figure.svg").read_bytes() for name in "23"]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("noise", NOISES)
def test_equal_configurations_give_equal_rows_and_other_seeds_others(noise, monkeypatch):
    monkeypatch.setenv("ANTIPHON_CACHE", "")
    config = of(noise=noise)
    assert run(config) == run(config)
    other = run(dataclasses.replace(config, seed=1))
    assert other[0]["test_loss"] != run(config)[0]["test_loss"]


@pytest.mark.parametrize("noise", ["adaptive", "clipped"])
def test_exact_noise_costs_what_is_claimed(noise):
    (row,) = run(of(noise=noise))
    assert row["claimed_epsilon"] == 2.0 and row["delta"] == 1 / 200
    assert 2.0 * (1 - 1e-9) < row["epsilon"] <= 2.0


def test_printed_noise_has_its_true_epsilon_beside_the_claim_and_the_radius_is_free():
    near, far = (run(of(noise="literal", radius=radius))[0] for radius in (1.0, 3000.0))
    assert near["claimed_epsilon"] == far["claimed_epsilon"] == 2.0
    assert near["epsilon"] < 0.5 and far["epsilon"] > 2.0
    (plain,) = run(of(noise="none"))
    assert plain["epsilon"] is plain["claimed_epsilon"] is None


def test_one_run_without_noise_serves_all_steps_and_equals_shorter_ones():
    long = run(of(noise="none", sweep="steps", steps=64))
    assert [row["steps"] for row in long] == [16, 32, 64]
    (short,) = run(of(noise="none", steps=32))
    assert short["test_loss"] == long[1]["test_loss"]
    (private,) = run(of(sweep="steps", steps=64))
    assert private["steps"] == 64


def test_balls_hold_back_those_that_run_within_them_and_no_others():
    long = {"steps": 100, "step_size": 8.0}
    free, within = (run(of(noise=noise, **long))[0] for noise in ("none", "none, in balls"))
    assert free["train_loss"] < within["train_loss"] - 0.01
    for noise in ("none", "adaptive", "clipped"):
        losses = {run(of(noise=noise, radius=radius))[0]["test_loss"] for radius in (0.1, 10.0)}
        assert len(losses) == 1


def test_a_constant_answer_is_measured_in_both_units():
    (row,) = run(TINY)
    assert 0.5 <= row["majority"] < 1
    assert gd_runs._entropy(0.5) == pytest.approx(0.6931471805599453)
    assert row["constant_loss"] == gd_runs._entropy(row["majority"]) and gd_runs._entropy(1.0) == 0


def test_means_keep_settings_apart_and_quote_the_largest_epsilon():
    rows = [row for seed in range(3) for row in run(of(noise="literal", seed=seed))]
    (mean,) = summary(rows)
    assert mean["runs"] == 3 and mean["epsilon"] == max(row["epsilon"] for row in rows)
    assert mean["lead"] == pytest.approx(mean["test_accuracy"] - mean["majority"])
    others = [row | {"radius": 10.0} for row in rows]
    assert len(summary(rows + others)) == 2


def test_the_full_preset_has_the_seeds_sweeps_and_settings_of_the_plan():
    full = configs("full")
    seeds = {(c.data, c.seed) for c in full}
    assert [sum(data == name for data, _ in seeds) for name in ("synthetic", "mnist-01")] == [10, 4]
    settings = {(c.data, c.step_size, c.radius) for c in full}
    assert {("synthetic", 1.0, 1.0), ("synthetic", 8.0, 10.0), ("mnist-01", 0.5, 1.0)} <= settings
    assert {c.steps for c in full if c.sweep == "width"} == {100}
    assert {c.width for c in full if c.sweep == "steps"} == {32}
    assert {c.noise for c in full} == set(NOISES) and {c.epsilon for c in full} == {2.0}


def test_a_figure_has_a_row_for_each_setting_and_marks_every_curve():
    rows = [row for config in configs("ci") for row in run(config)]
    axes = experiment(FIGURES[0]).plot(rows).axes
    assert len(axes) == 4
    for place in axes:
        labels = " ".join(place.get_legend_handles_labels()[1])
        assert "no noise, in balls" in labels and "clipped (ε = 2)" in labels
        assert "commonest label" in labels
    assert axes[0].get_title() == "synthetic: η = 1, R = 1, T = 32"


@pytest.mark.slow
@pytest.mark.data
def test_images_are_learnt_better_without_balls():
    known = {"data": "mnist-01", "width": 8, "steps": 32, "step_size": 0.5, "clip_norm": 1.0}
    clipped, literal = (run(of(noise=noise, **known))[0] for noise in ("clipped", "literal"))
    assert clipped["n"] == 12_665
    assert clipped["test_accuracy"] > literal["test_accuracy"] > 0.3
