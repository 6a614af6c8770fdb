import numpy as np
import pytest
from scipy.interpolate import BSpline
from sklearn.linear_model import LogisticRegression

from antiphon.errors import PlanError
from antiphon_papers.common.generators import (
    HatSum,
    additive_score,
    separable_additive,
    synthetic_logistic,
)


def test_equal_seeds_give_equal_records_and_others_give_others():
    first, again, other = (synthetic_logistic(50, seed=s, test=10) for s in (1, 1, 2))
    assert np.array_equal(first.X_train, again.X_train)
    assert np.array_equal(first.y_test, again.y_test)
    assert not np.array_equal(first.X_train, other.X_train)


def test_the_truth_has_a_seed_of_its_own():
    one, other = (synthetic_logistic(4000, seed=1, theta_seed=t) for t in (0, 1))
    assert np.array_equal(one.X_train, other.X_train)
    for data, t in ((one, 0), (other, 1)):
        right = np.sign(HatSum.draw(t)(data.X_train)) == data.y_train
        assert right.mean() > 0.9
    wrong = np.sign(HatSum.draw(0)(other.X_train)) == other.y_train
    assert wrong.mean() < 0.7


def test_hats_are_linear_features_of_the_truth():
    truth, X = HatSum.draw(3), np.random.default_rng(0).uniform(-1, 1, (20, 10))
    np.testing.assert_allclose(truth.features(X) @ truth.theta.ravel(), truth(X), atol=1e-12)
    np.testing.assert_allclose(truth.features(X).sum(axis=1), 10)
    assert HatSum.draw(3, d=2).features(np.array([[-1.0, 1.0]]))[0].nonzero()[0].tolist() == [0, 79]


def test_the_seed_of_records_does_not_give_the_heights_of_the_truth():
    assert not np.isin(HatSum.draw(5).theta, np.random.default_rng(5).standard_normal(400)).any()


def test_labels_follow_the_logit():
    data, truth = synthetic_logistic(20_000, seed=4, test=1), HatSum.draw(0)
    h = truth(data.X_train)
    near = np.abs(h - 0.25) < 0.05  # sigmoid(1 + ξ) averages about 0.722; 5 standard errors
    assert near.sum() > 200
    share = (data.y_train[near] == 1).mean()
    assert abs(share - 0.722) < 5 * (0.2 / near.sum()) ** 0.5


def test_separable_data_have_their_margin_lie_in_the_ball_and_are_balanced():
    data = separable_additive(4000, seed=0, gap=0.15)
    X = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    assert (y * additive_score(X)).min() >= 0.15
    radii = np.linalg.norm(X, axis=1)
    assert 0.999 < radii.max() <= 1
    assert abs(y.mean()) < 5 / len(y) ** 0.5


def test_without_a_gap_the_ball_is_uniform():
    data = separable_additive(20_000, seed=0, gap=1e-9, test=1)
    inner = (np.linalg.norm(data.X_train, axis=1) < 0.8).mean()
    assert abs(inner - 0.8**5) < 5 * (0.22 / 20_000) ** 0.5


def test_a_gap_that_no_record_has_is_refused():
    with pytest.raises(PlanError, match="smaller gap"):
        separable_additive(10, seed=0, gap=50.0, test=10)


def cubic_splines(X, intervals=5):
    """The p = 8 basis of the specification for each number, by SciPy."""
    apart = 2 / intervals
    knots = -1 + apart * np.arange(-3, intervals + 4)
    parts = [BSpline.design_matrix(np.clip(x, -1, 1 - 1e-12), knots, 3).toarray() for x in X.T]
    return np.concatenate(parts, axis=1)


@pytest.mark.slow
def test_acceptance_kan_dpgd_20_properties_of_the_synthetic_data(draws=12):
    oracle, ceiling, hats = [], [], []
    for theta in range(draws):
        data, truth = synthetic_logistic(seed=1000 + theta, theta_seed=theta), HatSum.draw(theta)
        oracle.append((np.sign(truth(data.X_test)) == data.y_test).mean())
        for features, C, found in ((cubic_splines, 1.0, ceiling), (truth.features, 1.0, hats)):
            fit = LogisticRegression(C=C, max_iter=2000).fit(features(data.X_train), data.y_train)
            found.append(fit.score(features(data.X_test), data.y_test))
    assert np.mean(oracle) == pytest.approx(0.946, abs=0.005)
    assert np.mean(ceiling) == pytest.approx(0.683, abs=0.03)
    assert np.mean(hats) == pytest.approx(0.941, abs=0.005)
