import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from antiphon.accounting import gaussian_mu
from antiphon.certificates import certify
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent, LambdaCGD
from antiphon.numerics import Generator
from antiphon.plans import FixedSize, FullBatch, Poisson
from antiphon.tables.data import Column, Schema
from antiphon.tables.estimators import PrivateKANClassifier, PrivateKANRegressor, ScaledDataWarning

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 3))
Y = (X[:, 0] + 0.5 * np.abs(X[:, 1]) > 0.2).astype(int)
QUICK = {"steps": 10, "sampling": "full-batch", "bounds": (-1, 1), "random_state": 0}


def quick(**options):
    return PrivateKANClassifier(**{**QUICK, **options})


def test_breast_cancer_at_epsilon_one_without_any_setting():
    A, b = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(A))
    train, test = order[:455], order[455:]
    model = PrivateKANClassifier(random_state=0).fit(A[train], b[train])
    assert model.score(A[test], b[test]) > 0.85  # 0.93 on average, 0.63 are of one class
    certificate = model.certificate_
    assert certificate.epsilon <= 1.0 and certificate.delta == 455**-1.1
    assert str(certificate.relation) == "add-remove"
    assert any("not for release" in line for line in certificate.assumptions)
    assert any("taken from the labels in y" in line for line in certificate.assumptions)


def test_what_ran_is_what_is_certified():
    model = quick(epsilon=0.7, delta=1e-3).fit(X, Y)
    plan = model.plan_
    assert plan.n == 400 and plan.steps == 10 and plan.sampling == FullBatch()
    assert certify(plan, 1e-3).epsilon == pytest.approx(model.certificate_.epsilon)
    assert model.certificate_.epsilon <= 0.7 and model.certificate_.epsilon > 0.69


def test_private_bounds_are_paid_within_the_same_budget():
    model = quick(bounds="private", bounds_share=0.2, delta=1e-3).fit(X, Y)
    (event,) = model.plan_.extra
    assert event.mu == pytest.approx(np.sqrt(0.2) * gaussian_mu(1.0, 1e-3))
    training = np.sqrt(10) / model.plan_.noise_multiplier
    assert training**2 + event.mu**2 <= gaussian_mu(1.0, 1e-3) ** 2 * (1 + 1e-9)
    assert any("bounds of the columns" in line for line in model.certificate_.assumptions)
    assert all(column.bounds is not None for column in model.schema_.columns)


def test_bounds_are_released_with_noise_of_their_own(monkeypatch):
    names = []
    spawn = Generator.spawn
    monkeypatch.setattr(
        Generator, "spawn", lambda self, name: names.append(name) or spawn(self, name)
    )
    quick(bounds="private").fit(X, Y)
    assert len(names) == len(set(names)) and {"bounds", "noise", "sampling"} <= set(names)


def test_nothing_is_looked_at_before_the_certificate(monkeypatch):
    seen = []
    for name in ("private_bounds", "fit_model"):
        monkeypatch.setattr(
            f"antiphon.tables.estimators.abstract_estimator.{name}", lambda *a, **k: seen.append(1)
        )
    with pytest.raises(PlanError, match=r"δ|delta"):
        quick(bounds="private", delta=1.5).fit(X, Y)
    with pytest.raises(PlanError, match="clip_norm"):
        quick(bounds="private", clip_norm=0).fit(X, Y)
    with pytest.raises(PlanError, match=r"already cost more|strictly between"):
        quick(bounds="private", bounds_share=1.0).fit(X, Y)
    assert not seen


def test_defaults_are_poisson_batches_and_an_automatic_mechanism():
    model = PrivateKANClassifier(bounds=(-1, 1), random_state=0, steps=20).fit(X, Y)
    assert model.plan_.sampling == Poisson(0.5) and model.plan_.mechanism == Independent()


def test_algorithm_1_correlated_noise_and_a_ball():
    model = PrivateKANClassifier(
        bounds=(-1, 1), mechanism=LambdaCGD(0.5), sampling=FixedSize(20), batch_size=20, steps=5,
        hidden=(4,), radius=0.5, random_state=0, epsilon=4.0,
    )  # fmt: skip
    model.fit(X, Y)
    assert model.plan_.mechanism == LambdaCGD(0.5) and str(model.plan_.relation) == "zero-out"
    torch.manual_seed(0)
    start = model._network(model.schema_, 1).double()
    moved = [
        (a - b).detach().square().sum()
        for a, b in zip(model.model_.parameters(), start.parameters(), strict=True)
    ]
    assert 0.0 < float(sum(moved)) ** 0.5 <= 0.5 * (1 + 1e-5)


def test_a_seed_repeats_the_fit_and_none_does_not():
    first, again = (quick().fit(X, Y).decision_function(X) for _ in range(2))
    assert np.array_equal(first, again)
    secret = [quick(random_state=None).fit(X, Y) for _ in range(2)]
    assert not np.array_equal(*(m.decision_function(X) for m in secret))
    assert not any("not for release" in line for line in secret[0].certificate_.assumptions)


def test_the_seed_or_key_is_not_in_the_pickle():
    model = quick(random_state=None).fit(X, Y)
    held = pickle.dumps(model)
    assert b"Generator" not in held and b"randomness" not in held
    assert np.array_equal(pickle.loads(held).predict_proba(X), model.predict_proba(X))


def test_many_classes():
    A, b = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[b]
    model = quick(bounds=(0, 8), epsilon=8.0, classes=[*np.unique(names), "unseen"], steps=40)
    probabilities = model.fit(A, names).predict_proba(A)
    assert probabilities.shape == (150, 4)
    assert np.allclose(probabilities.sum(1), 1)
    assert model.score(A, names) > 0.6
    assert "the list of the 4 classes is public" in model.certificate_.assumptions


def test_learns_interactions_with_a_hidden_layer():
    A = np.random.default_rng(1).uniform(-1, 1, (4000, 2))
    b = (A[:, 0] * A[:, 1] > 0).astype(int)
    options = dict(QUICK, epsilon=8.0, steps=100)
    additive = PrivateKANClassifier(**options).fit(A, b).score(A, b)
    deep = PrivateKANClassifier(**options, hidden=(16,)).fit(A, b).score(A, b)
    assert additive < 0.75 and deep > 0.9  # no sum of functions of single columns is above 3/4


def test_a_table_of_categories_alone_gets_a_hidden_layer():
    A = np.random.default_rng(1).choice(["a", "b", "c"], (3000, 3))
    b = A[:, 0] == A[:, 1]
    known = {key: ["a", "b", "c"] for key in range(3)}
    options = {"categories": known, "epsilon": 4.0, "steps": 100, "random_state": 0}
    model = PrivateKANClassifier(**options).fit(A, b)
    assert len(model.model_.further) == 1 and model.plan_.clip_norm == 1.0
    assert model.score(A, b) > 0.95
    additive = PrivateKANClassifier(**options, hidden=()).fit(A, b)
    assert not additive.model_.further and additive.plan_.clip_norm == 0.3
    assert additive.score(A, b) < 0.7


def test_a_width_that_is_a_word_is_refused():
    with pytest.raises(PlanError, match=r"hidden must be .* got 'wide'"):
        quick(hidden="wide").fit(X, Y)
    with pytest.raises(PlanError, match=r"widths such as \(16,\); got 16"):
        quick().set_params(hidden=16).fit(X, Y)


def test_missing_values_say_what_can_be_done_with_them():
    holes = X.copy()
    holes[3, 1] = np.nan
    with pytest.raises(PlanError, match=r"Input X contains NaN: .* missing='middle' puts them"):
        quick().fit(holes, Y)
    quick(missing="middle").fit(holes, Y)


def test_users_are_protected_as_a_whole():
    model = quick().fit(X, Y, user=np.arange(400) // 4)
    assert model.certificate_.unit == "user" and model.plan_.n == 100
    with pytest.raises(PlanError, match="Declare bounds"):
        quick(bounds="private").fit(X, Y, user=np.arange(400) // 4)


def test_pandas_with_categories_and_missing_values():
    frame = pd.DataFrame({"age": X[:, 0] * 50 + 50, "sex": np.where(X[:, 1] > 0, "f", "m")})
    frame.loc[3, "age"] = np.nan
    model = quick(
        bounds={"age": (0, 100)}, categories={"sex": ["f", "m"]}, missing="middle", epsilon=4.0
    )
    model.fit(frame, Y)
    assert model.get_feature_names_out().tolist() == ["age", "sex=f", "sex=m"]
    assert model.feature_names_in_.tolist() == ["age", "sex"]
    assert np.array_equal(model.predict(frame), model.predict(frame[["age", "sex"]]))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["sex", "age"]])
    with pytest.raises(PlanError, match="categories="):
        quick(bounds={"age": (0, 100)}).fit(frame.dropna(), Y[:399])


def test_a_schema_in_another_order_is_put_in_the_table_s_order():
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    forth = Schema((Column("a", (-1, 1)), Column("b", (-2, 2))))
    back = Schema(forth.columns[::-1])
    first, second = (quick(bounds=s).fit(frame, Y).predict_proba(frame) for s in (forth, back))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(value):
    bad = X.copy()
    bad[7, 1] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        quick().fit(bad, Y)


def test_missing_numbers_go_to_the_middle_if_told_so():
    holes = X.copy()
    holes[::5, 0] = np.nan
    model = quick(missing="middle").fit(holes, Y)
    middle = np.where(np.isnan(holes), 0.0, holes)
    assert np.array_equal(model.predict_proba(holes), model.predict_proba(middle))


def test_a_schema_says_itself_what_missing_numbers_do():
    holes = X.copy()
    holes[::5, 0] = np.nan
    schema = Schema(tuple(Column(name, (-1, 1)) for name in "abc"), missing="middle")
    quick(bounds=schema).fit(holes, Y)
    with pytest.raises(ValueError, match="NaN"):
        quick(bounds=Schema(schema.columns), missing="middle").fit(holes, Y)


@pytest.mark.parametrize(
    ("options", "y", "words"),
    [
        ({}, X[:, 0], "continuous"),
        ({"classes": [0, 5]}, Y, "declared classes"),
        ({"classes": [1]}, Y, "two classes"),
        ({}, np.zeros(400), "1 class"),
        ({}, None, "requires y"),
        ({"epsilon": 0.0}, Y, "epsilon|ε"),
        ({"epsilon": -1.0}, Y, "epsilon|ε"),
        ({"steps": 0}, Y, "steps"),
        ({"learning_rate": -1.0}, Y, "learning_rate"),
        ({"learning_rate": 0.0}, Y, "learning_rate"),
        ({"radius": -1.0}, Y, "radius"),
        ({"hidden": (0,)}, Y, "width"),
        ({"sampling": "random"}, Y, "sampling"),
        ({"mechanism": 3}, Y, "mechanism"),
        ({"relation": "neighbours"}, Y, "relation|neighbours"),
        ({"bounds": "public"}, Y, "bounds"),
        ({"missing": "mean"}, Y, "missing"),
    ],
)
def test_wrong_input_is_refused(options, y, words):
    with pytest.raises(ValueError, match=words):
        quick(**options).fit(X, y)


def test_unfitted_estimators_say_so():
    for call in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(quick(), call)(X)
    with pytest.raises(NotFittedError):
        quick().plot()


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MinMaxScaler((-1, 1))])
def test_scaling_by_the_data_is_warned_about(scaler):
    with pytest.warns(ScaledDataWarning, match="raw table"):
        make_pipeline(scaler, quick()).fit(X * 10 + 3, Y)


def test_raw_tables_and_indicators_are_not_warned_about():
    quick().fit(X, Y)
    quick(bounds=(0, 1)).fit((X > 0).astype(float), Y)


def test_clones_and_cross_validation():
    model = clone(quick(epsilon=2.0))
    assert cross_val_score(model, X, Y, cv=3).shape == (3,)


def test_plot_has_the_guarantee_below():
    figure = quick().fit(X, Y).plot()
    assert "ε = 1" in figure.get_supxlabel() and len(figure.axes) == 3


def test_regression_within_declared_bounds():
    y = 3 * np.sin(2 * X[:, 0]) + X[:, 2] ** 2
    model = PrivateKANRegressor(**dict(QUICK, steps=60, epsilon=4.0), target_bounds=(-3, 4))
    assert model.fit(X, y).score(X, y) > 0.5
    out = model.predict(10 * X)
    assert out.min() >= -3 and out.max() <= 4


def test_regression_with_private_bounds_of_the_target():
    y = 30 * X[:, 0] + 100
    model = PrivateKANRegressor(**dict(QUICK, bounds="private", steps=60, epsilon=8.0)).fit(X, y)
    assert model.target_.low <= 100 <= model.target_.high <= 1024
    assert len(model.plan_.extra) == 1


@pytest.mark.parametrize(
    ("options", "y", "words"),
    [
        ({"target_bounds": (1, 0)}, X[:, 0], "low below high"),
        ({"target_bounds": (-1e308, 1e308)}, X[:, 0], "finite"),
        ({"target_bounds": 3}, X[:, 0], "pair"),
        ({"target_bounds": "public"}, X[:, 0], "public"),
        ({}, np.where(X[:, 0] > 0, np.nan, 1), "NaN"),
        ({}, np.full(400, "a"), "numbers"),
    ],
)
def test_wrong_targets_are_refused(options, y, words):
    with pytest.raises(ValueError, match=words):
        PrivateKANRegressor(**{**QUICK, **options}).fit(X, y)


def test_one_seed_in_two_fits_does_not_share_noise():
    # With the same noise, two fits of one step would tell the gradient: solve for it from public numbers.
    fits = [quick(steps=1, epsilon=e, delta=1e-3).fit(X, Y) for e in (1.0, 2.0)]
    weights = [torch.cat([p.flatten() for p in m.model_.parameters()]) for m in fits]
    scales = [m.plan_.noise_scale / m.plan_.n for m in fits]
    sums = [-w / m.learning_rate_ for w, m in zip(weights, fits, strict=True)]
    z = (sums[0] - sums[1]) / (scales[0] - scales[1])
    guess = sums[0] - scales[0] * z
    exact = quick(steps=1, epsilon=1e4, delta=1e-3, learning_rate=1.0).fit(X, Y)
    truth = -torch.cat([p.flatten() for p in exact.model_.parameters()])
    noise = scales[0] * len(truth) ** 0.5
    assert float((guess - truth).norm()) > 0.5 * noise


def test_the_certificate_says_what_was_declared_and_chosen():
    lines = quick().fit(X, Y).certificate_.assumptions
    assert any("settings were chosen without looking" in line for line in lines)
    assert any("declared without looking" in line for line in lines)
    y = X[:, 0]
    model = PrivateKANRegressor(**dict(QUICK, bounds="private"), target_bounds=(-1, 1)).fit(X, y)
    assert any("declared without looking" in line for line in model.certificate_.assumptions)
    users = quick().fit(X, Y, user=np.arange(400) // 4).certificate_
    assert any("number of users, 100, is public" in line for line in users.assumptions)
    assert any("no two users share a name" in line for line in users.assumptions)


def test_a_large_delta_is_warned_about():
    with pytest.warns(UserWarning, match="is large"):
        quick().fit(X[:20], Y[:20])


def test_an_error_does_not_quote_a_record():
    bad = X.astype(object)
    bad[3, 1] = "HIV+"
    with pytest.raises(PlanError, match="texts") as caught:
        quick().fit(bad, Y)
    assert "HIV" not in str(caught.value) and caught.value.__suppress_context__


def test_tables_with_categories_are_checked_too():
    options = {"bounds": {0: (0, 1)}, "categories": {1: ["f", "m"]}}
    frame = pd.DataFrame({0: X[:, 0], 1: np.where(X[:, 1] > 0, "f", "m")})
    model = quick(**options).fit(frame, Y)
    assert model.predict(frame).shape == (400,)
    for wrong in (frame[:0], frame[:1], {"a": [1]}):
        with pytest.raises(PlanError, match=r"records are needed|data frame"):
            quick(**options).fit(wrong, Y[: len(wrong)])
    with pytest.raises(PlanError, match="at least 1 records"):
        model.predict(frame[:0])


def test_names_asked_for_must_be_the_table_s():
    model = quick().fit(X, Y)
    assert model.get_feature_names_out(["x0", "x1", "x2"]).tolist() == ["x0", "x1", "x2"]
    with pytest.raises(PlanError, match="input_features"):
        model.get_feature_names_out(["a", "b", "c"])


@pytest.mark.parametrize("users", [[None] * 400, np.full(400, np.nan), [["a"]] * 400])
def test_users_must_have_names(users):
    with pytest.raises(PlanError, match="user"):
        quick().fit(X, Y, user=users)


def test_a_user_with_more_records_than_are_computed_together_is_clipped_as_a_whole(monkeypatch):
    monkeypatch.setattr("antiphon.tables.estimators.fitting._AT_ONCE", 1)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (300, 2)), rng.integers(0, 2, 300)
    user = np.r_[np.zeros(100), np.arange(1, 201)]
    model = PrivateKANClassifier(4.0, 1e-3, bounds=(-1, 1), steps=3, mechanism="independent")
    assert model.fit(X, y, user=user).plan_.n == 201
