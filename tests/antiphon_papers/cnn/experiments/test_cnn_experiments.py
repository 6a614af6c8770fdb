"""The experiments on two-layer CNNs against the bands of their specification, and what rows may say."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import torch

import antiphon as ap
from antiphon.errors import PlanError
from antiphon_papers.cnn import Dynamics, Setting, Span, clipped_noise, signal_patches, simulate
from antiphon_papers.cnn.experiments import (
    cnn_certified,
    cnn_figure_1,
    cnn_phase,
    cnn_real,
    cnn_sigma_sweep,
)
from antiphon_papers.cnn.experiments.patch_runs import last_rows
from antiphon_papers.common.catalogue import experiment
from antiphon_papers.common.reproduce import reproduce

TINY = cnn_figure_1.Config("r1", "DP-GD", 0.5, 60, 20, 4, 0.05, 0.1, 0.05, 200, 10)


def last(config):
    (row,) = last_rows(cnn_figure_1.run(config))
    return row


def figure(variant, spread, *, seed=0, **changes):
    """GD and DP-GD of one seed after all steps."""
    every = cnn_figure_1.configs("full", seed + 1, variant)
    return {
        config.algorithm: last(dataclasses.replace(config, **changes))
        for config in every
        if (config.spread, config.seed) == (spread, seed)
    }


# --- Figure 1


def assert_noise_helps(seed):
    gd, noisy = (last(c) for c in cnn_figure_1.configs("ci", seed + 1)[2 * seed : 2 * seed + 2])
    assert noisy["test_accuracy"] >= 0.95 and gd["test_accuracy"] <= 0.90
    assert noisy["test_accuracy"] >= gd["test_accuracy"] + 0.08
    assert noisy["train_accuracy"] == gd["train_accuracy"] == 1.0
    assert noisy["test_loss"] < gd["test_loss"]


def test_acceptance_cnn_23_the_small_preset_shows_the_effect():
    assert_noise_helps(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_acceptance_cnn_23_the_small_preset_shows_the_effect_for_other_seeds(seed):
    assert_noise_helps(seed)


def coupled(setting, factor, seed=0):
    """A literal and a coarse run with the same start and the same displacements by noise, measured."""
    data = signal_patches(setting.n, setting.d, spread=setting.spread, seed=seed)
    span = Span(data)
    fine = Dynamics(span, setting, seed=seed)
    coarse = Dynamics(span, setting.coarsened(factor), seed=seed)
    before = fine.noise_sum.copy()
    for _ in range(setting.steps // factor):
        for _ in range(factor):
            fine.step()
        if setting.noise:
            moved = (fine.noise_sum - before) / factor
            before = fine.noise_sum.copy()
            coarse.step(span.lift(moved[:, 0], moved[:, 1:], np.zeros_like(coarse.rest)))
        else:
            coarse.step()
    tested = fine.fresh()
    coarse.rest[:] = fine.rest  # what training never saw has walked as far
    again = coarse.fresh()
    return [
        (result.accuracy, result.loss, run.look().loss)
        for run, result in ((fine, tested), (coarse, again))
    ]


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_acceptance_cnn_20_coarse_steps_follow_the_literal_ones_on_a_small_task(noise):
    fine, coarse = coupled(dataclasses.replace(cnn_figure_1.CI, noise=noise, steps=1000), 10)
    assert coarse == pytest.approx(fine, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_acceptance_cnn_20_coarse_steps_follow_the_literal_ones_slow(noise):
    """Both with the same displacements by noise, so that chance has no part in it; minutes each."""
    fine, coarse = coupled(Setting(noise=noise), 40)
    assert coarse == pytest.approx(fine, abs=0.01)


@pytest.mark.slow
def test_acceptance_cnn_21_literal_setting_has_the_accuracies_of_the_figure():
    found = {spread: figure("r1-coarse", spread) for spread in (0.1, 0.3, 0.5)}
    accuracy = {
        (spread, name): row["test_accuracy"]
        for spread, rows in found.items()
        for name, row in rows.items()
    }
    assert 0.94 <= accuracy[0.5, "DP-GD"] <= 0.985 and 0.70 <= accuracy[0.5, "GD"] <= 0.80
    assert accuracy[0.3, "DP-GD"] >= 0.995 and 0.95 <= accuracy[0.3, "GD"] <= 0.995
    assert min(accuracy[0.1, "DP-GD"], accuracy[0.1, "GD"]) >= 0.999
    for rows in found.values():
        assert rows["DP-GD"]["test_loss"] < rows["GD"]["test_loss"]


@pytest.mark.slow
def test_acceptance_cnn_22_the_stronger_gradient_has_the_losses_of_the_figure():
    hard, middle = figure("r3-coarse", 0.5), figure("r3-coarse", 0.3)
    assert hard["DP-GD"]["test_loss"] < 0.2 and hard["DP-GD"]["test_accuracy"] >= 0.95
    assert 0.66 <= hard["GD"]["test_accuracy"] <= 0.80
    assert 0.15 <= middle["GD"]["test_loss"] - middle["DP-GD"]["test_loss"] <= 0.25


def test_variants_have_the_stated_numbers():
    literal, strong = (cnn_figure_1.configs("full", 1, v)[1] for v in ("r1", "r3"))
    assert (literal.step_size, literal.noise, literal.steps, literal.coarsen) == (
        0.1,
        0.01,
        20_000,
        1,
    )
    assert (literal.d, literal.n, literal.m, literal.scale) == (2000, 1000, 100, 0.007)
    assert (strong.step_size, strong.noise, strong.scale) == (0.5, 0.002, 0.003)
    moved = {c.step_size * c.noise * math.sqrt(c.steps) for c in (literal, strong)}
    assert max(moved) == pytest.approx(min(moved))
    coarse = cnn_figure_1.configs("full", 1, "r1-coarse")[1]
    assert dataclasses.replace(coarse, variant="r1", coarsen=1) == literal
    assert {c.spread for c in cnn_figure_1.configs("full")} == {0.1, 0.3, 0.5}


def test_the_small_task_is_a_quarter_of_the_figures():
    small, large = cnn_figure_1.CI, Setting()
    for name in ("n", "m", "d", "steps"):
        assert getattr(large, name) == 4 * getattr(small, name)
    for value in (
        lambda s: s.n / s.inverse_snr**2,
        lambda s: s.step_size * s.steps / s.m,
        lambda s: s.step_size * s.noise * math.sqrt(s.steps),
    ):
        assert value(small) == pytest.approx(value(large))


def test_rows_of_unclipped_runs_have_no_epsilon_but_the_conditional_one():
    rows = cnn_figure_1.run(TINY)
    assert not any(name in rows[0] for name in ("epsilon", "certified_epsilon"))
    assert rows[0]["random_dp_epsilon"] > 0
    plain = cnn_figure_1.run(dataclasses.replace(TINY, algorithm="GD", noise=0.0))
    assert plain[0]["random_dp_epsilon"] is None
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert cnn_figure_1.run(TINY) == rows


def test_the_figure_has_its_three_panels_and_the_coefficients():
    rows = [*cnn_figure_1.run(TINY)]
    rows += cnn_figure_1.run(dataclasses.replace(TINY, algorithm="GD", noise=0.0))
    axes = cnn_figure_1.plot(rows).axes
    assert [place.get_ylabel() for place in axes] == [
        "training loss (synthetic records)", "test loss", "test accuracy", "coefficient"]  # fmt: skip
    labels = axes[3].get_legend_handles_labels()[1]
    assert "κ" in labels and "largest γ, GD" in labels


def test_variants_reach_the_experiment_and_unknown_ones_are_refused(tmp_path, monkeypatch):
    seen = []

    def run(config):
        seen.append(config.variant)
        return cnn_figure_1.run(dataclasses.replace(TINY, algorithm=config.algorithm))

    real = experiment("cnn-figure-1")
    assert real.variants == ("r1", "r3", "r1-coarse", "r3-coarse")
    assert experiment("cnn-phase").variants == ()
    with pytest.raises(PlanError, match=r"variants of cnn-figure-1: r1, r3.*; got 'r9'"):
        real.configs("ci", None, "r9")
    with pytest.raises(PlanError, match="variants of cnn-phase: none; got 'r1'"):
        reproduce("cnn-phase", "ci", tmp_path, variant="r1")
    with pytest.raises(PlanError, match="variants are r1"):
        cnn_figure_1.configs("ci", variant="r9")
    module = sys.modules["antiphon_papers.common.reproduce"]
    monkeypatch.setattr(module, "rows_of", lambda id, config: run(config))
    reproduce("cnn-figure-1", "ci", tmp_path, variant="r3")
    assert seen == ["r3", "r3"]


@pytest.mark.slow
def test_acceptance_cnn_realised_budgets_of_the_figure():
    """Section 4.2: 12.1 by the largest norm of each step, 7.3 for the median record; one seed there."""
    run = simulate(Setting(), seed=0, coarsen=40, precision="float32", draws=100).dynamics
    assert run.realised.largest == pytest.approx(12.1, rel=0.05)
    assert np.median(run.realised.mu) == pytest.approx(7.3, rel=0.05)


# --- The sweep and the phase diagram


@pytest.mark.slow
def test_acceptance_cnn_23_accuracy_is_an_inverted_u_in_the_noise():
    noises = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
    found = [
        cnn_sigma_sweep.run(cnn_sigma_sweep.Config("noise", noise))[-1]["test_accuracy"]
        for noise in noises
    ]
    top = noises.index(0.01)
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


def test_too_much_noise_is_as_bad_as_none():
    (row,) = cnn_sigma_sweep.run(cnn_sigma_sweep.Config("noise", 0.6, is_small=True))
    assert row["test_accuracy"] < 0.8
    assert {c.study for c in cnn_sigma_sweep.configs("full")} == {"noise", "start"}


def test_gains_are_over_gd_of_the_same_spread():
    base = {"train_loss": 0.1, "test_loss": 0.1, "train_accuracy": 1.0, "largest_gamma": 1.0,
            "mean_rho": 1.0, "step": 5, "steps": 5, "n_snr2": 2.0}  # fmt: skip
    rows = [
        base | {"spread": s, "noise": noise, "seed": seed, "test_accuracy": s / 2 + noise + seed / 10}
        for s in (0.1, 0.5) for noise in (0.0, 0.2) for seed in (0, 1)
    ]  # fmt: skip
    gains = {(row["spread"], row["noise"]): row["gain"] for row in cnn_phase.summary(rows)}
    assert gains == pytest.approx({(0.1, 0.0): 0, (0.1, 0.2): 0.2, (0.5, 0.0): 0, (0.5, 0.2): 0.2})
    assert len(cnn_phase.plot(rows).axes) == 4  # two maps, two scales


# --- Certified runs


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_noise_of_a_certified_run_is_that_of_its_plan(relation):
    (row,) = cnn_certified.run(cnn_certified.Config(200, 100, 9, 8.0, relation))
    assert row["noise"] == pytest.approx(clipped_noise(200, 20, 1.0, 8.0, 1e-5, relation=relation))
    assert row["certified_epsilon"] == pytest.approx(8.0) and row["certified_epsilon"] <= 8.0
    plan = ap.Plan(n=200, sampling=ap.FullBatch(), steps=20, mechanism=ap.mechanisms.Independent(),
                   relation=relation, noise_multiplier=row["noise"] * 200)  # fmt: skip
    assert ap.certify(plan, 1e-5).epsilon == pytest.approx(8.0)
    (plain,) = cnn_certified.run(cnn_certified.Config(200, 100, 9, None, relation))
    assert plain["noise"] == 0 and plain["certified_epsilon"] is None


def test_acceptance_cnn_24_honest_run_of_a_thousand_records():
    rows = [
        cnn_certified.run(cnn_certified.Config(1000, 2000, 100, 8.0, "zero-out", seed))[0]
        for seed in (0, 1)
    ]
    for row in rows:
        assert 0.86 <= row["test_accuracy"] <= 0.96
        assert row["noise"] == pytest.approx(2.684306e-3, rel=1e-6)
        assert row["longest_clipped"] <= 1.0 * (1 + 1e-6)


@pytest.mark.slow
def test_acceptance_cnn_24_honest_run_of_four_thousand_records():
    for seed in (0, 1):
        (row,) = cnn_certified.run(cnn_certified.Config(4000, 2000, 100, 8.0, "zero-out", seed))
        assert row["test_accuracy"] >= 0.98 and row["longest_clipped"] <= 1 + 1e-6


# --- Pictures


def test_wrong_labels_are_wrong_and_as_many_as_asked():
    y = torch.arange(10).repeat(1000)
    found = cnn_real._mislabelled(y, 0.4, np.random.default_rng(0))
    share = float((found != y).double().mean())
    assert share == pytest.approx(0.4, abs=5 * (0.24 / 10_000) ** 0.5)
    shifts = torch.bincount((found - y)[found != y] % 10, minlength=10)
    assert shifts[0] == 0 and shifts[1:].min() > 350
    assert torch.equal(cnn_real._mislabelled(y, 0.0, np.random.default_rng(0)), y)


def test_gd_and_noisy_gd_differ_by_the_noise_alone():
    base = cnn_real.Config("digits", 0.4, 0.0, 100, 8)
    plain, noisy = cnn_real.run(base), cnn_real.run(dataclasses.replace(base, noise=0.05))
    assert [row["step"] for row in plain] == [*range(1, 9)]
    assert plain[0]["train_loss"] == noisy[0]["train_loss"]  # before the first step
    assert plain[-1]["train_loss"] != noisy[-1]["train_loss"]
    assert cnn_real.run(base) == plain


def test_a_step_is_plain_descent_and_noise_of_the_stated_size():
    config = cnn_real.Config("digits", 0.0, 0.5, 100, 1, step_size=0.2)
    X, y, _, _ = cnn_real._pictures("digits")
    torch.manual_seed(0)
    one, other = cnn_real.small_cnn(8), cnn_real.small_cnn(8)
    other.load_state_dict(one.state_dict())
    before = [p.detach().clone() for p in one.parameters()]
    cnn_real._step(one, X[:50], y[:50], config, 1)
    cnn_real._step(other, X[:50], y[:50], dataclasses.replace(config, noise=0.0), 1)
    gaps = torch.cat([(a - b).detach().flatten() for a, b in
                      zip(one.parameters(), other.parameters(), strict=True)])  # fmt: skip
    # Some 1900 normals: five standard errors of their standard deviation are 8.2 %.
    assert float(gaps.std()) == pytest.approx(0.2 * 0.5, rel=0.082)
    loss = torch.nn.functional.cross_entropy
    again = cnn_real.small_cnn(8)
    for weight, start in zip(again.parameters(), before, strict=True):
        weight.data.copy_(start)
    gradients = torch.autograd.grad(loss(again(X[:50]), y[:50]), list(again.parameters()))
    for moved, start, gradient in zip(other.parameters(), before, gradients, strict=True):
        torch.testing.assert_close(moved.detach(), start - 0.2 * gradient)


def test_unknown_pictures_are_refused():
    with pytest.raises(PlanError, match="data is 'mnist', 'fashion-mnist' or 'digits'; got 'cats'"):
        cnn_real.run(cnn_real.Config("cats", 0.0, 0.0))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("data", ["mnist", "fashion-mnist"])
def test_wrong_labels_are_memorised_and_cost_accuracy(data):
    rows = {wrong: cnn_real.run(cnn_real.Config(data, wrong, 0.0))[-1] for wrong in (0.0, 0.4)}
    assert min(row["train_accuracy"] for row in rows.values()) > 0.95
    assert rows[0.0]["test_accuracy"] > rows[0.4]["test_accuracy"] + 0.1
