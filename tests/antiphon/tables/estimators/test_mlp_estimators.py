import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from antiphon.errors import PlanError
from antiphon.tables.estimators import (
    PrivateLogisticRegression,
    PrivateMLPClassifier,
    PrivateMLPRegressor,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (2_000, 2))
QUICK = {
    "steps": 100,
    "sampling": "full-batch",
    "bounds": (-1, 1),
    "random_state": 0,
    "epsilon": 8.0,
}


def test_a_perceptron_learns_interactions_and_a_line_does_not():
    y = X[:, 0] * X[:, 1] > 0
    deep = PrivateMLPClassifier(**QUICK).fit(X, y)
    line = PrivateLogisticRegression(**QUICK).fit(X, y)
    assert deep.score(X, y) > 0.8 and line.score(X, y) < 0.6
    assert PrivateMLPClassifier(**QUICK, hidden=(8, 8)).fit(X, y).score(X, y) > 0.6


def test_regression_by_a_perceptron():
    y = 10 * X[:, 0] * X[:, 1]
    model = PrivateMLPRegressor(**QUICK | {"steps": 300}, target_bounds=(-8, 8)).fit(X, y)
    assert model.score(X, y) > 0.5  # no sum of functions of single columns is above 0
    out = model.predict(5 * X)
    assert out.min() >= -8 and out.max() <= 8


@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_are_the_decision_function_in_encoded_units(classes):
    y = np.digitize(X[:, 0] - X[:, 1], np.linspace(-0.5, 0.5, classes - 1))
    model = PrivateLogisticRegression(**QUICK | {"bounds": (-2, 2)}).fit(X, y)
    rows = 1 if classes == 2 else classes
    assert model.coef_.shape == (rows, 2) and model.intercept_.shape == (rows,)
    logits = (X / 2) @ model.coef_.T + model.intercept_
    found = model.decision_function(X).reshape(len(X), rows)
    assert found == pytest.approx(logits, abs=1e-6)
    assert model.coef_[-1, 0] > 0 > model.coef_[-1, 1]
    assert model.score(X, y) > (0.9 if classes == 2 else 0.6)


def test_an_unfitted_line_has_no_coefficients():
    with pytest.raises(NotFittedError):
        _ = PrivateLogisticRegression().coef_


def test_a_network_with_hidden_layers_has_no_coefficients():
    model = PrivateMLPClassifier(**QUICK | {"steps": 2}).fit(X, X[:, 0] > 0)
    with pytest.raises(PlanError, match="no coefficients"):
        model.model_.linear()


def test_pictures_of_coefficients_and_of_partial_effects():
    y = np.digitize(X[:, 0], [-0.3, 0.3])
    line = PrivateLogisticRegression(**QUICK | {"steps": 2}).fit(X, y)
    figure = line.plot()
    (axes,) = figure.axes
    assert [
        label.get_text() for label in axes.get_yticklabels()
    ] and "ε = 8" in figure.get_supxlabel()
    deep = PrivateMLPClassifier(**QUICK | {"steps": 2, "bounds": (-5, 5)}).fit(X, y)
    first, _ = deep.plot().axes
    drawn = next(line for line in first.get_lines() if len(line.get_xdata()) > 2)
    x = np.zeros((101, 2))
    x[:, 0] = drawn.get_xdata()
    assert x[0, 0] == -5
    effects = deep.decision_function(x) - deep.decision_function(np.zeros((1, 2)))
    assert drawn.get_ydata() == pytest.approx(effects[:, 0], abs=1e-5)
