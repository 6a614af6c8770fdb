"""What the figures of correlated noise show, against the numbers of the specification."""

import math

import numpy as np
import pytest
import torch

from antiphon.mechanisms import BLT, Independent, LambdaCGD, NuFTRL
from antiphon_papers import dp_ftrl
from antiphon_papers.common.catalogue import experiment
from antiphon_papers.dp_ftrl.experiments import dp_ftrl_figure_1, dp_ftrl_figure_2, dp_ftrl_figure_3
from antiphon_papers.dp_ftrl.experiments.ftrl_runs import runnable, simulated, spectrum_near


def exact_only(config):
    """The configuration without its simulation."""
    return type(config)(**{**vars(config), "chains": 0})


def rows_of(module, configs):
    return [row for config in configs for row in module.run(exact_only(config))]


def test_acceptance_dp_ftrl_figure_1_rises_to_one():
    rates = sorted({c.learning_rate for c in dp_ftrl_figure_1.configs("full")})
    rows = rows_of(dp_ftrl_figure_1, [dp_ftrl_figure_1.Config(eta) for eta in rates])
    ratios = [row["ratio"] for row in rows if row["shows"] == "ratio"]
    assert ratios == sorted(ratios)
    assert ratios[0] < 0.003 and ratios[-1] == pytest.approx(1.0)
    for row in rows:
        if row["shows"] == "ratio":
            assert row["lower"] <= row["ratio"] <= row["upper"]


def test_the_weights_fall_as_a_power_and_then_exponentially():
    rows = [r for r in dp_ftrl_figure_1.run(dp_ftrl_figure_1.Config(0.01)) if r["shows"] == "time"]
    t, beta = (np.array([row[name] for row in rows]) for name in ("t", "beta"))
    assert (beta < 0).all()
    early, late = (t > 3) & (t < 20), t > 300
    assert np.polyfit(np.log(t[early]), np.log(-beta[early]), 1)[0] == pytest.approx(-1.6, abs=0.1)
    assert np.polyfit(t[late], np.log(-beta[late]), 1)[0] == pytest.approx(-0.0115, abs=0.001)
    power = [r for r in dp_ftrl_figure_1.run(dp_ftrl_figure_1.Config(0.1)) if "power" in r]
    assert power[0]["power"] == pytest.approx(0.1)
    assert power[-1]["power"] == pytest.approx(1.9)


def test_simulated_means_are_near_the_exact_ones():
    (row, *_) = dp_ftrl_figure_1.run(dp_ftrl_figure_1.Config(0.3, chains=4000))
    assert row["simulated"] == pytest.approx(row["ratio"], rel=0.03)


@pytest.mark.parametrize(
    ("study", "independent", "correlated", "fixed"),
    [
        ("dimension", 1.009, 0.37, 0.37),
        pytest.param("eigenvalues", 0.170, 0.94, 1.10, marks=pytest.mark.slow),
        pytest.param("learning rate", 1.08, 1.86, 1.86, marks=pytest.mark.slow),
    ],
)
def test_acceptance_dp_ftrl_figure_2_slopes(study, independent, correlated, fixed):
    chosen = [c for c in dp_ftrl_figure_2.configs("full", 1) if c.study == study]
    rows = rows_of(dp_ftrl_figure_2, chosen)
    (line,) = dp_ftrl_figure_2.summary(rows)
    assert line["slope_independent"] == pytest.approx(independent, abs=5e-3)
    assert line["slope_nu_ftrl"] == pytest.approx(correlated, abs=5e-3)
    assert line["slope_fixed_nu"] == pytest.approx(fixed, abs=5e-3)
    for row in rows:
        order = ("lower_bound", "best_filter", "best_nu", "nu_ftrl", "independent")
        values = [row[name] for name in order]
        assert values == sorted(values)


def test_simulated_regression_is_near_the_exact_one():
    config = dp_ftrl_figure_2.Config("dimension", 2, learning_rate=0.2, chains=1500)
    (row,) = dp_ftrl_figure_2.run(config)
    for name in ("independent", "nu_ftrl"):
        assert row[f"simulated_{name}"] == pytest.approx(row[name], rel=0.06)


def test_acceptance_dp_ftrl_figure_3_order_and_simulation():
    found = dp_ftrl_figure_3.run(dp_ftrl_figure_3.Config(1.0, 10.0, chains=500))
    bounds = {row["noise"]: row["bound"] for row in found}
    assert bounds["independent"] > bounds["nu_ftrl"] > bounds["best_nu"] > bounds["optimized"]
    (line,) = dp_ftrl_figure_3.summary(found)
    assert line["independent_over_optimized"] == pytest.approx(1.44, abs=0.005)
    for row in found:
        assert row["margin"] > 0 and row["gap"] < 1e-4
        assert row["quadratics_any_noise"] <= row["quadratics"] <= row["bound"]
        assert row["simulated"] < row["bound_that_runs"]
        assert row["bound_that_runs"] == pytest.approx(row["bound"], rel=2e-3)


def test_all_condition_numbers_and_both_rates_are_in_figure_3():
    configs = experiment("dp-ftrl-figure-3").configs("full")
    assert {c.learning_rate for c in configs} == {0.1, 1.0}
    assert {10.0, 100.0, 1000.0} <= {c.kappa for c in configs}


def test_a_function_with_two_slopes_is_convex_and_smooth():
    problem = dp_ftrl_figure_3.TwoSlopes(0.1)
    theta = torch.tensor([[2.0], [-2.0]]).double()
    gradient = problem.gradient(theta, torch.Generator())
    torch.testing.assert_close(gradient, torch.tensor([[2.0], [-0.2]]).double())


def test_what_runs_in_place_of_nu_ftrl_is_near_it():
    blt = runnable(NuFTRL(0.05), 300)
    assert isinstance(blt, BLT)
    run = {"spectrum": [1.0, 0.3], "learning_rate": 0.1}
    exact = dp_ftrl.f_infinity(NuFTRL(0.05), **run)
    assert dp_ftrl.f_infinity(blt, **run) == pytest.approx(exact, rel=1e-3)
    assert runnable(LambdaCGD(0.5), 300) == LambdaCGD(0.5)


def test_a_simulation_halves_with_twice_the_privacy():
    run = {"learning_rate": 0.3, "slowest": 0.3, "chains": 500, "seed": 0}
    one, two = (
        simulated(dp_ftrl.MeanProblem(), Independent(), rho=rho, **run) for rho in (1.0, 2.0)
    )
    assert one == pytest.approx(2 * two, rel=1e-9)


def test_random_spectra_are_near_their_power_law():
    np.testing.assert_allclose(spectrum_near(5, 1.0, 0), 1 / np.arange(1, 6))
    near = spectrum_near(500, 0.5, 3)
    assert near.max() == 1 and not math.isclose(near[1], 2**-0.5)
    ratio = np.log(near * np.sqrt(np.arange(1, 501)))
    assert ratio.std() == pytest.approx(0.2, abs=0.03)
