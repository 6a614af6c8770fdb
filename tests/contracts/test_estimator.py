"""What every estimator of tables must do; a new one joins by a line in ``ESTIMATORS``."""

import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier

import antiphon
from antiphon.certificates import certify
from antiphon.errors import PlanError
from antiphon.tables.estimators import (
    PrivateKANClassifier,
    PrivateKANRegressor,
    PrivateLogisticRegression,
    PrivateMLPClassifier,
    PrivateMLPRegressor,
    PrivateReLURegressor,
    load,
)

ESTIMATORS = {
    "KAN classifier": PrivateKANClassifier,
    "KAN regressor": PrivateKANRegressor,
    "MLP classifier": PrivateMLPClassifier,
    "MLP regressor": PrivateMLPRegressor,
    "logistic regression": PrivateLogisticRegression,
    "ReLU regressor": PrivateReLURegressor,
}
RNG = np.random.default_rng(0)
N = 400
X = RNG.uniform(-1, 1, (N, 3))
FRAME = pd.DataFrame({"age": 50 + 50 * X[:, 0], "sex": np.where(X[:, 1] > 0, "f", "m")})
DECLARED = {"bounds": {"age": (0, 100)}, "categories": {"sex": ["f", "m"]}}
QUICK = {"steps": 30, "sampling": "full-batch", "random_state": 0, "delta": 1e-3, "epsilon": 4.0}


class Stop(Exception):
    """What a callback raises."""


@pytest.fixture(params=ESTIMATORS)
def kind(request):
    return ESTIMATORS[request.param]


def target_of(kind):
    return (X[:, 0] > 0.1).astype(int) if is_classifier(kind()) else 3 * X[:, 0]


def outputs(model, table):
    return model.predict_proba(table) if is_classifier(model) else model.predict(table)


CHECKS = """
import sys, warnings
from sklearn.utils.estimator_checks import check_estimator
import antiphon.tables.estimators as estimators

warnings.simplefilter("ignore")
for name in sys.argv[2:]:
    try:
        check_estimator(getattr(estimators, name)(**eval(sys.argv[1])), on_skip=None)
    except BaseException as error:
        raise SystemExit(f"{name}: {error!r}")
"""


def run_checks(options):
    # In a process of its own: the tests' type checks would refuse what scikit-learn puts into __init__.
    names = [kind.__name__ for kind in ESTIMATORS.values()]
    command = [sys.executable, "-c", CHECKS, repr(options), *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_scikit_learn_checks_pass_with_few_steps():
    run_checks({"steps": 2, "sampling": "full-batch"})


@pytest.mark.slow
def test_scikit_learn_checks_pass_with_defaults():
    run_checks({})


def test_every_estimator_is_in_the_contract():
    from antiphon.tables import estimators

    named = {n for n in estimators.__all__ if n.startswith("Private")}
    kinds = {kind.__name__ for kind in ESTIMATORS.values()}
    assert kinds == named
    assert kinds <= set(antiphon.__all__)
    assert all(getattr(antiphon, name) is getattr(estimators, name) for name in kinds)


def test_parameters_are_those_of_the_docstring(kind):
    given = inspect.signature(kind).parameters
    assert list(given)[:2] == ["epsilon", "delta"]
    assert {"bounds", "categories", "relation", "mechanism", "random_state"} <= set(given)
    documented = kind.__doc__.split("Args:")[1].split("Attributes:")[0]
    assert all(f"\n        {name}: " in documented for name in given)
    assert "Guarantee:" in kind.__doc__
    assert kind(0.5).get_params()["epsilon"] == 0.5
    with pytest.raises(TypeError):
        kind(1.0, 1e-3, (-1, 1))


def test_it_learns_under_its_certificate(kind):
    y = target_of(kind)
    model = kind(**QUICK, bounds=(-1, 1)).fit(X, y)
    assert model.score(X, y) > 0.7
    assert model.certificate_.epsilon <= 4.0
    assert certify(model.plan_, 1e-3).epsilon == pytest.approx(model.certificate_.epsilon)
    assert model.n_features_in_ == 3 and model.n_iter_ == 30 and model.learning_rate_ > 0


def test_it_resumes_to_the_same_bits_and_is_read_from_a_file(kind, tmp_path):
    y = target_of(kind)

    def stop(step, model):
        if step == 23:
            raise Stop

    whole = kind(**QUICK).fit(X, y)
    with pytest.raises(Stop):
        kind(**QUICK).fit(X, y, checkpoint=tmp_path / "fit", callback=stop)
    resumed = kind(**QUICK).fit(X, y, checkpoint=tmp_path / "fit", resume=True)
    states = [m.model_.state_dict() for m in (whole, resumed)]
    assert all(torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True))
    resumed.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is kind
    assert np.array_equal(outputs(loaded, X), outputs(whole, X))
    assert loaded.certificate_ == whole.certificate_ and loaded.schema_ == whole.schema_


def test_it_takes_frames_with_categories_and_draws_what_it_learned(kind):
    model = kind(**QUICK, **DECLARED).fit(FRAME, target_of(kind))
    assert model.feature_names_in_.tolist() == ["age", "sex"]
    assert model.get_feature_names_out().tolist() == ["age", "sex=f", "sex=m"]
    figure = model.plot()
    assert "ε = 4" in figure.get_supxlabel() and figure.axes


def test_what_cannot_be_is_refused_alike(kind):
    y = target_of(kind)
    for options, words in (
        ({"epsilon": 0.0}, "epsilon|ε"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"bounds": "public"}, "bounds"),
    ):
        with pytest.raises(PlanError, match=words):
            kind(**QUICK | options).fit(X, y)


def test_clones_are_equal_and_unfitted(kind):
    model = clone(kind(**QUICK | {"radius": 2.0}))
    assert model.radius == 2.0 and not hasattr(model, "model_")
