import dataclasses

import numpy as np
import pytest
import torch
from numpy.linalg import norm
from scipy.special import ndtr
from torch import nn

import antiphon as ap
from antiphon.errors import PlanError
from antiphon.mechanisms import BLT, Banded, Independent, LambdaCGD
from antiphon.participation import FixedEpochs
from antiphon_papers.dp_ftrl import chain_speech
from antiphon_papers.dp_ftrl.experiments import dp_ftrl_figure_4 as figure
from antiphon_papers.dp_ftrl.experiments.dp_ftrl_figure_4 import (
    NOISES,
    Config,
    configs,
    plan_of,
    plot,
    run,
)
from antiphon_papers.dp_ftrl.experiments.ftrl_tasks import cross_entropy, new_model, tanh_cnn, task

TINY = Config("images", "digits", "nu-ftrl", 8.0, batches=5, epochs=2, n=100)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path))


def test_the_full_preset_is_what_was_asked_for():
    images = configs("full")
    private = [c for c in images if c.epsilon is not None]
    assert {c.epsilon for c in private} == {2.0, 4.0, 10.0, 20.0}
    assert {c.noise for c in private} == set(NOISES)
    assert {c.data for c in private} == {"cifar-10-subset", "fashion-mnist"}
    assert {(c.n, c.steps, c.batches, c.epochs, len(c.rates)) for c in private} == {
        (10_000, 1_000, 100, 10, 3)
    }
    assert {c.seed for c in private} == {0, 1, 2}
    assert sum(p.numel() for p in tanh_cnn(32, 3).parameters()) <= 60_000
    assert {c.data for c in configs("full", variant="text")} == {"shakespeare"}


def test_an_unknown_variant_is_refused():
    with pytest.raises(PlanError, match="variants are images, text; got 'sound'"):
        configs("ci", variant="sound")


@pytest.mark.parametrize(
    ("noise", "kind"),
    [("lambda-cgd", LambdaCGD), ("nu-ftrl", BLT), ("blt", BLT), ("banded", Banded)],
)
def test_correlated_noise_pays_for_all_its_epochs(noise, kind):
    plan = plan_of(dataclasses.replace(TINY, noise=noise))
    assert isinstance(plan.mechanism, kind)
    assert plan.participation == FixedEpochs(times=2, apart=5)
    noise = ap.calibrate(plan, 8.0, 1e-5).known_noise()
    encoder = plan.mechanism.encoder(10)
    once = [gaussian_delta(norm(encoder[:, j]) / noise) for j in range(5)]
    # The order is random and secret: a record is in each of the five batches of an epoch as often.
    both = [gaussian_delta(norm(encoder[:, j] + encoder[:, j + 5]) / noise) for j in range(5)]
    assert np.mean(both) == pytest.approx(1e-5, rel=1e-3)
    assert np.mean(once) < 1e-7  # what is claimed where one epoch is paid for and two are made


def gaussian_delta(mu, epsilon=8.0):
    return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def test_independent_noise_is_amplified_under_add_remove_and_says_so():
    plan = plan_of(dataclasses.replace(TINY, noise="independent"))
    assert plan.mechanism == Independent()
    assert plan.sampling == ap.Poisson(0.2) and plan.relation == "add-remove"


def test_batches_that_would_be_empty_are_refused():
    with pytest.raises(PlanError, match="100 units in batches of 4 are 25 batches, not 30"):
        plan_of(dataclasses.replace(TINY, batches=30))


def test_speakers_who_choose_the_learning_rate_are_not_those_who_are_reported():
    speech, found = chain_speech(60, 12, 4), task("chains")
    first = len(found.choosing[0])
    assert 0 < first < len(speech.test_pieces)
    assert speech.test_speaker[first - 1] != speech.test_speaker[first]


def test_users_are_the_unit_of_texts():
    config = configs("ci", variant="text")[-1]
    assert plan_of(config).unit == "user"
    assert plan_of(config).n == task("chains").units


def test_the_learning_rate_is_chosen_once_and_not_on_what_is_reported(monkeypatch):
    calls = []

    def trained(config, rate):
        calls.append((config.seed, rate))
        best = {0.008: 0.1, 0.02: 0.7, 0.05: 0.3}[rate]
        return {"learning_rate": rate, "choosing_accuracy": best, "accuracy": 1 - best}

    monkeypatch.setattr(figure, "_trained", trained)
    (first,) = run(TINY)
    (second,) = run(dataclasses.replace(TINY, seed=1))
    assert first["learning_rate"] == second["learning_rate"] == 0.02
    assert calls == [(0, 0.008), (0, 0.02), (0, 0.05), (1, 0.02)]


def test_the_parts_of_a_task_do_not_meet():
    found = task("digits", 100)
    assert len(found.train[0]) == 100
    both = len(found.choosing[0]) + len(found.test[0])
    assert both == 1797 - 1200 and len(found.choosing[0]) == round(0.2 * both)
    with pytest.raises(PlanError, match=r"tasks are .*digits.*; got 'mnist'"):
        task("mnist")


def test_a_model_of_text_sees_nothing_that_comes_later():
    found = task("chains")
    model = new_model(found, 0)
    codes = found.train[0][:3].clone()
    before = model(codes)
    codes[:, 6] = (codes[:, 6] + 1) % found.classes
    after = model(codes)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6], after[:, 6])


def test_the_loss_of_a_piece_is_the_mean_over_its_places():
    outputs, labels = torch.randn(1, 3, 5), torch.randint(0, 5, (1, 3))
    each = [nn.functional.cross_entropy(outputs[0, i], labels[0, i]) for i in range(3)]
    assert torch.allclose(cross_entropy(outputs, labels), torch.stack(each).mean())


def test_learning_rates_fall_in_the_last_quarter():
    factors = [figure._factor(step, 100) for step in (0, 75, 85, 95, 100)]
    assert factors == pytest.approx([1.0, 1.0, 0.62, 0.24, 0.05])


@pytest.mark.parametrize(
    ("variant", "data", "rate", "least"),
    [("images", "digits", 0.3, 0.6), ("text", "chains", 0.4, 0.5)],
)
def test_with_hardly_any_noise_pictures_and_texts_are_learnt(variant, data, rate, least):
    config = Config(variant, data, "hardly any", None, batches=10, epochs=6, n=600)
    assert figure._trained(config, rate)["accuracy"] > least


def test_the_figure_names_both_relations():
    base = {
        "relation": "zero-out",
        "learning_rate": 1.0,
        "noise_multiplier": 1.0,
        "prefix_error": 1.0,
    }
    rows = [
        base
        | {"data": "digits", "noise": noise, "epsilon": epsilon, "accuracy": 0.5, "unit": "example"}
        for noise, epsilon in [("hardly any", None), *((n, e) for n in NOISES for e in (2.0, 8.0))]
    ]
    drawn = plot(rows)
    assert "add-remove" in drawn.get_suptitle() and "zero-out" in drawn.get_suptitle()
    labels = drawn.axes[0].get_legend_handles_labels()[1]
    assert set(labels) == {*NOISES.values(), "hardly any noise"}
