import numpy as np
import pytest

from antiphon.errors import PlanError
from antiphon_papers import kan_sgd
from antiphon_papers.kan_sgd.experiments.kan_sgd_risk import Config, configs, run, summary


def mean_risk(noise, n=400, steps=60, seeds=2, **values):
    rows = [run(Config("records", n, 16, noise, steps, seed=s, **values))[0] for s in range(seeds)]
    return np.mean([row["risk"] for row in rows])


@pytest.mark.slow
def test_noise_costs_and_correlation_takes_some_of_it_back():
    options = {"learning_rate": 4.0}
    none, independent = mean_risk("none", **options), mean_risk("independent", **options)
    assert none < mean_risk("given", lam=0.8, **options) < independent - 0.02


def test_risk_falls_with_the_number_of_records():
    few, many = (mean_risk("given", n, round(6 * n**0.5), lam=0.8) for n in (200, 1600))
    assert many < few - 0.05


def test_the_best_lambda_is_that_of_the_measured_curvature():
    (row,) = run(Config("records", 100, 8, "best", 5))
    assert row["lam"] == kan_sgd.best_lambda(row["a"])
    assert (
        row["noise_multiplier"]
        > run(Config("records", 100, 8, "independent", 5))[0]["noise_multiplier"]
    )


def test_at_fixed_noise_more_correlation_helps_at_first():
    values = {"epsilon": None, "noise_multiplier": 4.0, "learning_rate": 8.0}
    rows = [
        run(Config("correlation", 400, 16, "given", 60, lam=lam, **values))[0] for lam in (0, 0.9)
    ]
    assert rows[0]["noise_multiplier"] == rows[1]["noise_multiplier"] == 4.0
    assert rows[1]["risk"] < rows[0]["risk"] - 0.02


def test_noise_that_is_not_given_is_refused():
    with pytest.raises(PlanError, match="give either epsilon"):
        run(Config("correlation", 100, 8, "given", 5, epsilon=None))


def test_each_curve_has_its_slope():
    rows = [
        {"study": "records", "width": 8, "noise": noise, "learning_rate": 1.0, "n": n, "lam": 0.0, "a": 1.0,
         "noise_multiplier": 1.0, "risk": n**power, "train_loss": 0.1, "last_risk": 0.1}
        for noise, power in (("none", -1.0), ("independent", -0.5))
        for n in (100, 200, 400)
    ]  # fmt: skip
    found = {row["noise"]: row["slope"] for row in summary(rows)}
    assert found == pytest.approx({"none": -1.0, "independent": -0.5})


def test_the_full_preset_has_both_studies_and_all_widths():
    full = configs("full")
    assert {c.study for c in full} == {"records", "correlation"}
    assert {c.width for c in full} == {32, 128, 512}
    assert all(c.noise_multiplier for c in full if c.epsilon is None)
