"""Fits that are interrupted, resumed, watched and paid for."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from antiphon import Ledger
from antiphon.accounting import gaussian_mu
from antiphon.certificates import certify
from antiphon.errors import LedgerError, PlanError, StateError
from antiphon.mechanisms import LambdaCGD
from antiphon.numerics import Generator
from antiphon.plans import GaussianRelease
from antiphon.releases import private_accuracy
from antiphon.tables.estimators import PrivateKANClassifier, PrivateKANRegressor
from antiphon.training.checkpoints import peek

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 3))
Y = (X[:, 0] + 0.5 * np.abs(X[:, 1]) > 0.2).astype(int)
SEED = 987_654_321
QUICK = {
    "steps": 30, "sampling": "full-batch", "delta": 1e-3, "random_state": SEED, "epsilon": 2.0,
}  # fmt: skip
SCORE = GaussianRelease(0.2, "an accuracy")


class Stop(Exception):
    """What a callback raises."""


def quick(**options):
    return PrivateKANClassifier(**{**QUICK, **options})


def stop_at(last):
    def callback(step, model):
        if step == last:
            raise Stop

    return callback


def interrupted(folder, step, **options):
    fit = options.pop("fit", {})
    with pytest.raises(Stop):
        quick(**options).fit(X, Y, checkpoint=folder, callback=stop_at(step), **fit)


def weights(model):
    return torch.cat([p.flatten() for p in model.model_.parameters()])


def same(a, b):
    return (
        torch.equal(weights(a), weights(b))
        and a.certificate_ == b.certificate_
        and a.schema_ == b.schema_
        and a.n_iter_ == b.n_iter_
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "fit"


@pytest.fixture(scope="module")
def whole():
    return quick().fit(X, Y)


@pytest.mark.parametrize("step", [1, 23, 30])
def test_an_interrupted_fit_resumes_to_the_same_bits(step, whole, tmp_path, monkeypatch):
    interrupted(tmp_path / "fit", step)
    for name in ("abstract_estimator.private_bounds", "planning.calibrate", "planning.certify"):
        monkeypatch.setattr(f"antiphon.tables.estimators.{name}", None)  # not again
    resumed = quick().fit(X, Y, checkpoint=tmp_path / "fit", resume=True)
    assert same(resumed, whole)
    assert same(quick().fit(X, Y, checkpoint=tmp_path / "fit", resume=True), whole)


def test_small_batches_correlated_noise_a_hidden_layer_and_a_ball(folder):
    options = {
        "sampling": "fixed-size", "batch_size": 30, "mechanism": LambdaCGD(0.5), "hidden": (4,),
        "radius": 0.5, "bounds": (-1, 1), "epsilon": 8.0,
    }  # fmt: skip
    expected = quick(**options).fit(X, Y)
    interrupted(folder, 24, **options)
    assert same(quick(**options).fit(X, Y, checkpoint=folder, resume=True), expected)


def test_an_unseeded_fit_resumes_within_the_ball_around_its_own_start(folder):
    options = {"hidden": (4,), "radius": 1e-3, "bounds": (-1, 1), "random_state": None}
    starts = []
    network = PrivateKANClassifier._network

    class Spied(PrivateKANClassifier):
        def _network(self, schema, outputs):
            model = network(self, schema, outputs)
            starts.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
            return model

    with pytest.raises(Stop):
        Spied(**{**QUICK, **options}).fit(X, Y, checkpoint=folder, callback=stop_at(25))
    model = Spied(**{**QUICK, **options}).fit(X, Y, checkpoint=folder, resume=True)
    assert all(torch.equal(start, starts[0]) for start in starts)
    assert 0 < float((weights(model) - starts[0].double()).norm()) <= 1e-3 * (1 + 1e-4)


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from estimators.test_resuming import X, Y, quick

def callback(step, model):
    if step == {step}:
        os.kill(os.getpid(), signal.SIGKILL)

quick().fit(X, Y, checkpoint={folder!r}, callback=callback)
"""


def test_a_killed_process_leaves_a_fit_that_can_be_resumed(whole, tmp_path):
    folder = str(tmp_path / "fit")
    tests = os.path.dirname(os.path.dirname(__file__))
    code = KILLED.format(tests=tests, step=23, folder=folder)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert same(quick().fit(X, Y, checkpoint=folder, resume=True), whole)


def dies(*args, **kwargs):
    raise KeyboardInterrupt


def test_a_fit_that_died_before_its_training_begins_it(whole, folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("antiphon.tables.estimators.abstract_estimator.fit_model", dies)
        old = os.umask(0)
        with pytest.raises(KeyboardInterrupt):
            quick().fit(X, Y, checkpoint=folder)
        os.umask(old)
    assert os.listdir(folder) == ["start.json"]
    assert stat.S_IMODE((folder / "start.json").stat().st_mode) == 0o600
    monkeypatch.setattr("antiphon.tables.estimators.abstract_estimator.private_bounds", None)
    assert same(quick().fit(X, Y, checkpoint=folder, resume=True), whole)


def test_a_training_that_has_begun_is_not_begun_again(folder):
    interrupted(folder, 5)
    shutil.rmtree(folder / "training")
    with pytest.raises(StateError, match="training of this fit has begun"):
        quick().fit(X, Y, checkpoint=folder, resume=True)


FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


@pytest.mark.parametrize(
    ("options", "table", "y", "fit", "words"),
    [
        ({"steps": 60}, X, Y, {}, "steps = 30, but steps = 60"),
        ({"epsilon": 1.0}, X, Y, {}, "epsilon = 2.0"),
        ({"bounds": (-1, 1)}, X, Y, {}, "bounds = 'private'"),
        ({"mechanism": LambdaCGD(0.9)}, X, Y, {}, "mechanism"),
        ({"hidden": (4,)}, X, Y, {}, "hidden"),
        ({"learning_rate": 0.1}, X, Y, {}, "learning_rate = None"),
        ({"random_state": 5}, X, Y, {}, "another random_state"),
        ({"random_state": None}, X, Y, {}, "another random_state"),
        ({}, X[:-1], Y[:-1], {}, "units = 300"),
        ({}, FRAME, Y, {}, "columns"),
        ({}, X[::-1], Y[::-1], {}, "other records"),
        ({}, X, 1 - Y, {}, "other records"),
        ({}, X, Y, {"extra": [SCORE]}, "extra"),
    ],
)
def test_another_fit_does_not_resume(begun, options, table, y, fit, words):
    with pytest.raises(PlanError, match=words) as caught:
        quick(**options).fit(table, y, checkpoint=begun, resume=True, **fit)
    assert str(SEED) not in str(caught.value)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun") / "fit"
    interrupted(folder, 5)
    return folder


def test_other_users_are_refused(folder):
    users = np.arange(300) // 3
    interrupted(folder, 5, bounds=(-1, 1), fit={"user": users})
    for other, words in ((None, "unit"), (users[::-1].copy(), "users")):
        with pytest.raises(PlanError, match=words):
            quick(bounds=(-1, 1)).fit(X, Y, checkpoint=folder, resume=True, user=other)
    quick(bounds=(-1, 1)).fit(X, Y, checkpoint=folder, resume=True, user=users)


def test_another_estimator_does_not_resume(begun):
    model = PrivateKANRegressor(**QUICK)
    with pytest.raises(PlanError, match="estimator = 'PrivateKANClassifier'"):
        model.fit(X, Y, checkpoint=begun, resume=True)


def test_folders_that_are_none_are_refused(begun, tmp_path):
    with pytest.raises(PlanError, match="checkpoint="):
        quick().fit(X, Y, resume=True)
    with pytest.raises(StateError, match="no fit to resume"):
        quick().fit(X, Y, checkpoint=tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()
    with pytest.raises(StateError, match="holds a fit already"):
        quick().fit(X, Y, checkpoint=begun)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(StateError, match=r"holds 'notes.txt'"):
        quick().fit(X, Y, checkpoint=tmp_path / "mine")
    with pytest.raises(StateError, match="cannot be used"):
        quick().fit(X, Y, checkpoint=tmp_path / "mine" / "notes.txt" / "fit")


def test_of_two_fits_that_begin_in_one_folder_one_is_refused(folder, monkeypatch):
    from antiphon.tables.estimators.fit_folder import FitFolder

    prepare = FitFolder.prepare

    def while_another_begins(self):
        prepare(self)
        monkeypatch.setattr(FitFolder, "prepare", prepare)
        interrupted(folder, 5)

    monkeypatch.setattr(FitFolder, "prepare", while_another_begins)
    with pytest.raises(StateError, match="holds a fit already"):
        quick(steps=10).fit(X, Y, checkpoint=folder)
    assert quick().fit(X, Y, checkpoint=folder, resume=True).n_iter_ == 30


@pytest.mark.parametrize("damage", ["cut", "edited", "empty", "foreign"])
def test_a_damaged_start_is_refused(damage, begun, tmp_path):
    folder = tmp_path / "fit"
    shutil.copytree(begun, folder)
    path = folder / "start.json"
    text = path.read_text()
    edited = text.replace('"epsilon": ', '"epsilon": 1')
    path.write_text({"cut": text[:-9], "edited": edited, "empty": "", "foreign": "[1]"}[damage])
    with pytest.raises(StateError, match="damaged"):
        quick().fit(X, Y, checkpoint=folder, resume=True)


def test_the_folder_is_its_owner_s_alone(begun, tmp_path):
    old = os.umask(0)
    try:
        interrupted(tmp_path / "fit", 2)
    finally:
        os.umask(old)
    for place in [tmp_path / "fit", *(tmp_path / "fit").rglob("*")]:
        mode = stat.S_IMODE(place.stat().st_mode)
        assert mode == (0o700 if place.is_dir() else 0o600), place
    assert "secret" in json.loads((begun / "start.json").read_text())


@pytest.mark.parametrize("seed", [SEED, None])
def test_neither_key_nor_seed_nor_noise_leaves_the_folder(seed, folder, tmp_path):
    book, file = book_of(tmp_path), tmp_path / "model.safetensors"
    model = quick(random_state=seed, mechanism=LambdaCGD(0.5), bounds=(-1, 1))
    model.fit(X, Y, checkpoint=folder, ledger=book)
    model.save(file)
    start = json.loads((folder / "start.json").read_text())["start"]
    meta, _ = peek(folder / "training")
    key = bytes.fromhex(meta["key"])
    noise = Generator(key, True).spawn("noise").normal(torch.empty(8), step=0).numpy().tobytes()
    secrets = [key, key.hex().encode(), noise[:8], start["data"].encode()]
    secrets += [b"last_digest", b"is_secure", *([] if seed is None else [str(SEED).encode()])]
    whole = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert key.hex().encode() in whole and start["data"].encode() in whole  # what is looked for
    shown = file.read_bytes() + book.path.read_bytes() + repr(model.certificate_).encode()
    assert not any(secret in shown for secret in secrets)


def test_the_callback_sees_what_fit_would_leave(whole):
    seen = []
    model = quick().fit(X, Y, callback=lambda step, model: seen.append((step, model)))
    assert [step for step, _ in seen] == list(range(1, 31))
    last = seen[-1][1]
    assert same(last, whole) and same(model, whole)  # and it changes nothing
    assert not torch.equal(weights(seen[0][1]), weights(last))
    curve = [each.score(X, Y) for _, each in seen]
    assert curve[-1] == model.score(X, Y) > 0.6
    assert last.n_features_in_ == 3 and last.plan_ == model.plan_


def test_further_releases_are_paid_for_beside_the_bounds():
    model = quick().fit(X, Y, extra=[SCORE])
    bounds, score = model.plan_.extra
    assert bounds.what == "bounds of the columns" and score == SCORE
    training = np.sqrt(30) / model.plan_.noise_multiplier
    total = training**2 + bounds.mu**2 + 0.2**2
    assert total == pytest.approx(gaussian_mu(2.0, 1e-3) ** 2, rel=1e-6)
    assert certify(model.plan_, 1e-3).epsilon <= 2.0
    assert any("an accuracy" in line for line in model.certificate_.assumptions)
    released = private_accuracy(model.predict(X) == Y, mu=0.2)
    assert released.event in model.plan_.extra
    declared = quick(bounds=(-1, 1)).fit(X, Y, extra=(SCORE,))
    assert declared.plan_.extra == (SCORE,)


def test_what_cannot_be_paid_beside_training_is_refused():
    with pytest.raises(PlanError, match="already cost more"):
        quick().fit(X, Y, extra=[GaussianRelease(50.0)])
    with pytest.raises(PlanError, match="replace-one"):
        quick().fit(X, Y, extra=[GaussianRelease(0.1, "a mean", "replace-one")])


def book_of(path, epsilon=5.0):
    return Ledger.create(path / "ledger", epsilon=epsilon, delta=1e-3, relation="add-remove")


def test_a_fit_is_paid_for_once_and_first(tmp_path, monkeypatch):
    book, folder = book_of(tmp_path), tmp_path / "fit"
    spent = []
    release = sys.modules["antiphon.tables.estimators.abstract_estimator"].private_bounds

    def spied(*args, **kwargs):
        spent.append((len(book.entries()), os.listdir(folder)))
        return release(*args, **kwargs)

    monkeypatch.setattr("antiphon.tables.estimators.abstract_estimator.private_bounds", spied)
    interrupted(folder, 25, fit={"ledger": book, "extra": (SCORE,)})
    assert spent == [(1, [])]  # nothing is written before it is paid for
    model = quick().fit(X, Y, checkpoint=folder, resume=True, ledger=book, extra=(SCORE,))
    (entry,) = book.entries()
    assert entry.plan == model.plan_ and SCORE in entry.plan.extra
    quick().fit(X, Y, ledger=book)
    assert len(book.entries()) == 2


def test_a_fit_beyond_the_budget_leaves_nothing(tmp_path, monkeypatch):
    book, folder = book_of(tmp_path, epsilon=1.0), tmp_path / "fit"
    for name in ("private_bounds", "fit_model"):
        monkeypatch.setattr(f"antiphon.tables.estimators.abstract_estimator.{name}", None)
    with pytest.raises(LedgerError):
        quick().fit(X, Y, checkpoint=folder, ledger=book)
    assert not os.listdir(folder) and not book.entries()


def test_a_fit_that_died_between_payment_and_start_cannot_be_resumed(tmp_path, monkeypatch):
    book = book_of(tmp_path)
    monkeypatch.setattr("antiphon.tables.estimators.abstract_estimator.private_bounds", dies)
    with pytest.raises(KeyboardInterrupt):
        quick().fit(X, Y, checkpoint=tmp_path / "fit", ledger=book)
    with pytest.raises(StateError, match="no fit to resume"):
        quick().fit(X, Y, checkpoint=tmp_path / "fit", ledger=book, resume=True)
    assert len(book.entries()) == 1


@pytest.mark.parametrize(
    ("options", "y", "words"),
    [
        ({"learning_rate": -1.0}, Y, "learning_rate"),
        ({"radius": -1.0}, Y, "radius"),
        ({"hidden": (0,)}, Y, "width"),
        ({"classes": [0, 5]}, Y, "declared classes"),
        ({"categories": {2: ["f"]}}, Y, "missing values"),
    ],
)
def test_what_cannot_be_learned_is_not_paid_for(options, y, words, tmp_path):
    book = book_of(tmp_path)
    table = FRAME.assign(a=np.where(X[:, 0] > 0.9, np.nan, 0)) if "categories" in options else X
    with pytest.raises(PlanError, match=words):
        quick(**options).fit(table, y, ledger=book, checkpoint=tmp_path / "fit")
    assert not book.entries() and not (tmp_path / "fit").exists()


def test_a_generator_as_random_state_is_not_drawn_from_again(folder):
    interrupted(folder, 25, random_state=np.random.RandomState(5))
    expected = quick(random_state=np.random.RandomState(5)).fit(X, Y)
    again = quick(random_state=np.random.RandomState(77))
    assert same(again.fit(X, Y, checkpoint=folder, resume=True), expected)


def test_regression_keeps_the_released_bounds_of_its_target(folder):
    model = PrivateKANRegressor(**QUICK)
    expected = PrivateKANRegressor(**QUICK).fit(X, 30 * X[:, 0])
    with pytest.raises(Stop):
        model.fit(X, 30 * X[:, 0], checkpoint=folder, callback=stop_at(25))
    model.fit(X, 30 * X[:, 0], checkpoint=folder, resume=True)
    assert same(model, expected) and model.target_ == expected.target_
