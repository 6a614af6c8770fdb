"""Private ReLU regression of tables: methods, clip norms, certificates, resumed fits."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from antiphon.accounting.independent import pld
from antiphon.certificates import Ledger, certify
from antiphon.errors import LedgerError, PlanError, StateError, UnsupportedError
from antiphon.mechanisms import Independent, LambdaCGD, Tree
from antiphon.plans import FullBatch, GaussianRelease, Poisson, PureRelease, ShuffledEpochs
from antiphon.reports import describe
from antiphon.tables.estimators import PrivateReLURegressor, load
from antiphon.tables.estimators.neuron_fitting import fit_neuron
from antiphon.tables.estimators.relu_methods import METHODS, pass_steps

RNG = np.random.default_rng(0)
N = 3_000
X = RNG.uniform(-1, 1, (N, 3))
TRUTH = np.array([1.0, -0.7, 0.4])
Y = np.maximum(X @ TRUTH, 0) + 0.05 * RNG.normal(size=N)
PUBLIC = (X[:60], Y[:60])
QUICK = {
    "epsilon": 2.0,
    "bounds": (-1, 1),
    "target_bounds": (0, 2.1),
    "random_state": 0,
    "delta": 1e-4,
}


def quick(method="full-batch", **options):
    given = {"public_data": PUBLIC} if method == "glmtron" and "clip" not in options else {}
    return PrivateReLURegressor(method=method, **QUICK | given | options)


def fitted(method="full-batch", **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*vote on the clip norm")
        return quick(method, **options).fit(X, Y)


def said(model):
    return "\n".join(model.certificate_.assumptions)


@pytest.fixture(scope="module")
def models():
    return {method: fitted(method) for method in METHODS}


def test_methods_are_what_their_names_say(models):
    expected = {
        "full-batch": (FullBatch(), Independent(), "add-remove"),
        "poisson": (Poisson(0.5), Independent(), "add-remove"),
        "mb-glmtron": (ShuffledEpochs(300), Independent(), "replace-one"),
        "glmtron": (ShuffledEpochs(1), Independent(), "replace-one"),
        "ta-glmtron": (ShuffledEpochs(1), Tree(), "replace-one"),
        "pgd": (FullBatch(), Independent(), "add-remove"),
    }
    for method, (sampling, mechanism, relation) in expected.items():
        plan = models[method].plan_
        assert (plan.sampling, plan.mechanism, plan.relation) == (sampling, mechanism, relation)
    batch = models["sgd"].plan_
    assert 0 <= N - batch.steps * batch.sampling.batch < batch.steps
    assert models["glmtron"].n_iter_ == models["ta-glmtron"].n_iter_ == N


def test_the_better_methods_learn(models):
    line = LinearRegression().fit(X, Y).score(X, Y)
    for method in ("full-batch", "poisson", "pgd"):
        assert models[method].score(X, Y) > 0.9 > line - 0.05
    for method in ("ta-glmtron", "sgd"):
        assert models[method].score(X, Y) > 0.6


def test_acceptance_25_every_run_says_what_it_protects_and_what_it_takes_to_be_public(models):
    for method, model in models.items():
        c, text = model.certificate_, said(model)
        assert c.epsilon <= 2.0 and c.relation == model.plan_.relation
        proved = certify(model.plan_, 1e-4, epsilon=2.0)
        assert proved.epsilon == pytest.approx(c.epsilon)
        assert str(model.plan_.sampling) == c.sampling
        assert re.search("pass(es)? over the data", text)
        assert "treated as public: the number of records" in text
        assert ("60 records of public_data" in text) is (method == "glmtron")
        assert "reproducible, not for release" in text
        printed = str(c)
        assert str(c.relation) in printed and "pass" in printed
    assert "300 passes" in said(models["full-batch"])
    assert "used at most once: one pass" in said(models["glmtron"])


def test_acceptance_25_poisson_is_never_the_account_of_a_shuffled_run(models):
    for method in ("mb-glmtron", "glmtron", "ta-glmtron", "sgd"):
        assert models[method].certificate_.route != "pld"
        with pytest.raises(UnsupportedError, match="Poisson or FixedSize"):
            pld.account(models[method].plan_)
        with pytest.raises(PlanError, match="draws batches its own way"):
            quick(method, sampling="poisson").fit(X, Y)


def test_predictions_are_the_coefficients_above_the_lower_bound(models):
    model = fitted(target_bounds=(-1.0, 4.0), bounds=(-2, 2))
    line = X / 2 @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.predict(X), -1 + np.clip(line, 0, 5), atol=1e-6)
    assert models["full-batch"].predict(X).min() == 0.0  # silent somewhere


def test_without_intercept_the_weights_are_those_of_the_paper():
    model = fitted(fit_intercept=False)
    assert model.intercept_ == 0.0 and len(model.model_.weight) == 3
    np.testing.assert_allclose(model.coef_, TRUTH, atol=0.15)


def test_negative_targets_count_from_their_lower_bound():
    y = 3 * X[:, 0]
    model = quick(target_bounds=(-3, 3)).fit(X, y)
    assert model.score(X, y) > 0.9 and model.predict(X).min() < -2


@pytest.mark.parametrize("clip", ["threshold", "quantile"])
def test_a_clip_norm_that_is_found_is_paid_for_and_used(clip):
    model = fitted(clip=clip)
    (event,) = model.plan_.extra
    assert event.what == "the clip norm" and event.relation == "add-remove"
    (block,) = model.plan_.blocks
    assert "over the step's clip norm" in block.name and "at most 1 in direction" in said(model)
    assert model.plan_.noise_multiplier > fitted().plan_.noise_multiplier
    assert model.certificate_.epsilon <= 2.0
    assert model.score(X, Y) > 0.85
    assert "the clip norm was released" in said(model)


def test_votes_stand_apart_and_cost_no_more_than_the_steps(models):
    plan = models["mb-glmtron"].plan_
    (votes,) = plan.apart
    assert votes.mu == pytest.approx(2 / plan.noise_multiplier, rel=1e-6)
    assert "records that take part in no step" in said(models["mb-glmtron"])
    assert not fitted("mb-glmtron", clip="fixed").plan_.apart
    with pytest.warns(UserWarning, match="30 records vote on the clip norm of a batch"):
        quick("mb-glmtron", epsilon=0.5).fit(X, Y)


def test_shuffling_amplifies_where_nothing_else_is_released(models):
    assert models["glmtron"].certificate_.route == "shuffling"
    private = fitted("glmtron", bounds="private", target_bounds="private")
    assert private.certificate_.route == "gaussian"
    assert private.plan_.noise_multiplier > 2 * models["glmtron"].plan_.noise_multiplier


def test_any_mechanism_can_take_the_place_of_the_tree():
    other = LambdaCGD(0.9)
    assert fitted("ta-glmtron", mechanism=other).plan_.mechanism == other
    assert fitted(mechanism=LambdaCGD(0.3), steps=20).plan_.mechanism == LambdaCGD(0.3)
    assert fitted("mb-glmtron", mechanism="independent").plan_.mechanism == Independent()


def test_weights_stay_in_the_ball():
    seen = []
    model = quick("pgd", radius=0.1, average="last", steps=20)
    model.fit(X, Y, callback=lambda step, m: seen.append(m.model_.weight.norm() * m.model_.scale))
    assert max(seen) <= 0.1 + 1e-6 and max(seen) > 0.099


def test_averages_differ():
    results = [fitted(average=average, steps=10).coef_ for average in ("full", "tail", "last")]
    assert not np.allclose(results[0], results[1]) and not np.allclose(results[1], results[2])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip": "quantile"},
        {"method": "poisson"},
        {"method": "mb-glmtron"},
        {"method": "glmtron"},
        {"method": "ta-glmtron"},
        {"method": "sgd", "mechanism": LambdaCGD(0.4)},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*vote on the clip norm")
def test_an_interrupted_fit_resumes_to_the_same_bits(options, tmp_path):
    class Stop(Exception):
        pass

    def stop(step, model):
        if step == 7:
            raise Stop

    some = slice(0, 400)
    whole = quick(**options).fit(X[some], Y[some])
    with pytest.raises(Stop):
        quick(**options).fit(X[some], Y[some], checkpoint=tmp_path / "fit", callback=stop)
    again = quick(**options).fit(X[some], Y[some], checkpoint=tmp_path / "fit", resume=True)
    assert np.array_equal(again.coef_, whole.coef_) and again.intercept_ == whole.intercept_
    assert again.certificate_ == whole.certificate_


def test_an_unseeded_run_resumes_with_its_own_key(tmp_path):
    def stop(step, model):
        kept.append(model.coef_)
        if step == 5:
            raise KeyboardInterrupt

    kept = []
    options = {"random_state": None, "steps": 8, "average": "last"}
    with pytest.raises(KeyboardInterrupt):
        quick(**options).fit(X, Y, checkpoint=tmp_path / "fit", callback=stop)
    first, kept = kept, []
    with pytest.raises(KeyboardInterrupt):
        quick(**options).fit(X, Y, checkpoint=tmp_path / "fit", resume=True, callback=stop)
    assert np.array_equal(first, kept)
    model = quick(**options).fit(X, Y, checkpoint=tmp_path / "fit", resume=True)
    assert "not for release" not in said(model)
    assert not np.array_equal(model.coef_, quick(**options).fit(X, Y).coef_)


def test_other_public_records_cannot_take_over_a_run(tmp_path):
    def stop(step, model):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick("glmtron").fit(X, Y, checkpoint=tmp_path / "fit", callback=stop)
    other = quick("glmtron", public_data=(X[:50], Y[:50]))
    with pytest.raises(StateError, match="same noise to a different gradient"):
        other.fit(X, Y, checkpoint=tmp_path / "fit", resume=True)


def test_files_hold_what_is_released_and_nothing_of_public_records(models, tmp_path):
    for method in ("full-batch", "glmtron", "mb-glmtron"):
        model, path = models[method], tmp_path / method
        model.save(path)
        other = load(path)
        assert np.array_equal(other.predict(X), model.predict(X))
        assert other.plan_ == model.plan_ and other.certificate_ == model.certificate_
        assert other.public_data is None and other.method == method
        assert other.coef_.tolist() == model.coef_.tolist()
    again = pickle.loads(pickle.dumps(models["full-batch"]))
    assert np.array_equal(again.predict(X), models["full-batch"].predict(X))


def test_frames_and_their_public_part_have_names():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    given = quick("glmtron", public_data=(frame[:40], Y[:40]))
    model = given.fit(frame, Y)
    assert model.get_feature_names_out().tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        quick("glmtron", public_data=(frame[["a", "b"]][:40], Y[:40])).fit(frame, Y)


def test_a_ledger_pays_for_everything_first(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger", epsilon=2.5, delta=1e-4, relation="add-remove")
    quick(clip="quantile").fit(X, Y, ledger=ledger)
    with pytest.raises(LedgerError):
        quick(clip="quantile").fit(X, Y, ledger=ledger)


def test_what_is_refused_is_not_paid(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger", epsilon=2.5, delta=1e-4, relation="replace-one")
    with pytest.raises(PlanError, match="leave no record to learn from"):
        quick("mb-glmtron", steps=None, batch_size=1).fit(X, Y, ledger=ledger)
    assert not ledger.entries()


def test_a_seed_draws_other_noise_for_another_quantile(monkeypatch):
    seeds = []

    def remember(*given, seed, **how):
        seeds.append(seed)
        return fit_neuron(*given, seed=seed, **how)

    monkeypatch.setattr("antiphon.tables.estimators.relu_regressor.fit_neuron", remember)
    low, high, _ = (fitted(clip="quantile", quantile=q) for q in (0.1, 0.9, 0.1))
    assert low.plan_.hash == high.plan_.hash
    assert seeds[0] == seeds[2] != seeds[1]


def test_a_clip_norm_pays_for_no_score():
    with pytest.raises(PlanError, match="pays for nothing of the kind"):
        describe(
            fitted(clip="quantile"),
            table="a table",
            target="a target",
            evaluation={"kind": "paid", "rows": 9, "metrics": {"R²": 0.9}},
        )


def test_releases_of_the_caller_are_paid_for():
    event = GaussianRelease(0.1, "a score")
    model = quick().fit(X, Y, extra=(event,))
    assert model.plan_.extra == (event,) and model.certificate_.epsilon <= 2.0
    with pytest.raises(PlanError, match="Gaussian releases only"):
        quick("mb-glmtron").fit(X, Y, extra=(PureRelease(0.1),))
    with pytest.raises(PlanError, match="already cost more"):
        quick("mb-glmtron").fit(X, Y, extra=(GaussianRelease(5.0),))


def test_defaults_learn_from_diabetes_with_private_bounds():
    table, y = load_diabetes(return_X_y=True, scaled=False)
    scores = [
        PrivateReLURegressor(epsilon=4.0, random_state=seed).fit(table[:350], y[:350])
        for seed in range(5)
    ]
    assert np.median([model.score(table[350:], y[350:]) for model in scores]) > 0.3


def test_steps_of_a_pass_grow_with_the_budget():
    assert pass_steps(4, 0.1) == 2 and pass_steps(10**7, 1.0) == 300
    found = [pass_steps(n, 0.3) for n in (100, 1_000, 10_000)]
    assert found == sorted(found) and found[-1] > found[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "newton"}, "method is one of"),
        ({"average": "median"}, "average is one of"),
        ({"clip": "none"}, "clip is 'fixed'"),
        ({"clip": "quantile", "quantile": 1.0}, "quantile lies"),
        ({"clip": "quantile", "clip_share": 0.0}, "share of the budget"),
        ({"sampling": "poisson"}, "draws batches its own way"),
        ({"batch_size": 10}, "batches are all records"),
        ({"method": "poisson", "batch_size": N + 1}, "larger than the 3000 records"),
        ({"method": "glmtron", "public_data": None}, "public_data"),
        ({"method": "glmtron", "public_data": 3}, "public_data is a pair"),
        ({"method": "glmtron", "steps": 10}, "one step with each"),
        ({"method": "mb-glmtron", "steps": 10, "batch_size": 500}, "more than one pass"),
        ({"method": "sgd", "relation": "add-remove"}, "no accountant"),
        ({"radius": -1.0}, "radius"),
        ({"target_bounds": (1, 0)}, "target_bounds"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises((PlanError, UnsupportedError), match=words):
        quick(**options).fit(X, Y)


def test_users_are_refused():
    with pytest.raises(PlanError, match="protects single records"):
        quick().fit(X, Y, user=np.arange(N) // 2)
