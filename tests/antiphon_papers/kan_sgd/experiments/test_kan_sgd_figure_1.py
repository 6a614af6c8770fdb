import dataclasses
import sys

import numpy as np
import pytest
import torch

import antiphon as ap
from antiphon.mechanisms import LambdaCGD
from antiphon_papers.common.learning import calibrated
from antiphon_papers.kan_sgd.experiments import kan_sgd_figure_1 as figure_1
from antiphon_papers.kan_sgd.experiments.kan_sgd_figure_1 import Config, configs, plot, run, summary

TINY = Config("synthetic", 8.0, 0.5, 2.0, steps=4, rate=1.0, n=100)


def test_the_noise_of_a_run_is_the_certified_one():
    (row,) = run(TINY)
    plan = ap.Plan(n=100, sampling=ap.Poisson(1.0), steps=4, mechanism=LambdaCGD(0.5))
    assert row["noise_multiplier"] == ap.calibrate(plan, 8.0, TINY.delta).noise_multiplier
    assert row["steps"] == 4
    assert calibrated(plan, 8.0, 1e-5).epsilon <= 8.0


def test_equal_configurations_give_equal_rows_and_other_seeds_others():
    assert run(TINY) == run(TINY)
    other = run(dataclasses.replace(TINY, seed=1))
    assert other[0]["accuracy"] != run(TINY)[0]["accuracy"]


def test_a_calibration_serves_data_of_every_size_without_a_second_search(monkeypatch):
    plan = ap.Plan(n=100, sampling=ap.Poisson(1.0), steps=4, mechanism=LambdaCGD(0.5))
    first = calibrated(plan, 2.0, 1e-5)
    monkeypatch.setattr(sys.modules["antiphon.accounting.search.calibration"], "_found", None)
    second = calibrated(dataclasses.replace(plan, n=300, clip_norm=0.1), 2.0, 1e-5)
    assert second.plan.noise_multiplier == first.plan.noise_multiplier
    assert (second.plan.n, second.plan.clip_norm) == (300, 0.1)


def test_with_hardly_any_noise_and_enough_steps_the_data_are_learnt():
    (row,) = run(Config("synthetic", None, 0.0, 24.0, steps=300, rate=0.1, n=2000))
    assert row["noise_multiplier"] == 1e-3
    assert row["accuracy"] > row["majority"] + 0.04


def test_the_full_preset_has_the_seeds_and_points_of_the_plan():
    full = configs("full")
    assert {c.lam for c in full if c.epsilon} == {0.0, 0.3, 0.5, 0.7, 0.9}
    assert {c.epsilon for c in full} == {None, 1.0, 2.0, 8.0}
    assert len({(c.steps, c.rate, c.delta) for c in full}) == 1
    seeds = {data: len({c.seed for c in full if c.data == data}) for data in ("synthetic", "mnist")}
    assert seeds == {"synthetic": 10, "mnist": 4}


def test_the_figure_has_a_row_for_each_learning_rate():
    base = {"seed": 0, "steps": 1, "majority": 0.7, "noise_multiplier": 1.0, "epsilon": 1.0}
    rows = [
        base | {"data": data, "lam": lam, "learning_rate": rate, "accuracy": rate / 10 + lam}
        for data in ("adult", "mnist")
        for lam in (0.5, 0.0)
        for rate in (4.0, 1.0)
    ]
    assert len(summary(rows)) == 8
    assert {(row["lam"], row["gain"]) for row in summary(rows)} == {(0.0, 0.0), (0.5, 0.5)}
    axes = plot(rows).axes
    assert [a.get_title() for a in axes[:2]] == [
        f"{d}, learning rate 1" for d in ("adult", "mnist")
    ]
    assert axes[0].get_xlabel() == "λ (share of the commonest label: 0.700)"
    line = axes[2].containers[0].lines[0]
    assert line.get_xdata().tolist() == [0.0, 0.5]
    assert line.get_ydata().tolist() == pytest.approx([0.4, 0.9])


def test_gains_are_differences_of_runs_with_the_same_seed():
    base = {"steps": 1, "majority": 0.7, "noise_multiplier": 1.0, "epsilon": 1.0}
    base |= {"data": "adult", "learning_rate": 6.0}
    runs = {(0.0, 0): 0.5, (0.0, 1): 0.7, (0.5, 1): 0.74, (0.5, 0): 0.52}
    rows = [base | {"lam": lam, "seed": s, "accuracy": a} for (lam, s), a in runs.items()]
    _, correlated = summary(rows)
    assert (correlated["gain"], correlated["gain_se"]) == pytest.approx((0.03, 0.01))
    assert correlated["accuracy_se"] == pytest.approx(0.11)


def test_pixels_are_averaged_two_by_two():
    images = torch.zeros(1, 784)
    images[0, [0, 1, 28, 29]] = torch.tensor([1.0, 2.0, 3.0, 6.0])
    pooled = figure_1._pooled(images)
    assert pooled.shape == (1, 196) and pooled[0, 0] == 3.0
    assert np.count_nonzero(pooled) == 1
