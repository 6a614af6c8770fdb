"""Fitted estimators in files without pickle."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from antiphon.errors import StateError
from antiphon.mechanisms import BLT, LambdaCGD
from antiphon.plans import FixedSize
from antiphon.tables.data import Column, Schema
from antiphon.tables.estimators import PrivateKANClassifier, PrivateKANRegressor, load
from antiphon.tables.estimators.codec import from_json, to_json
from antiphon.training.checkpoints import export, read_export

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 3))
Y = (X[:, 0] + 0.5 * np.abs(X[:, 1]) > 0.2).astype(int)
SEED = 987_654_321
QUICK = {
    "steps": 10,
    "sampling": "full-batch",
    "bounds": (-1, 1),
    "random_state": SEED,
    "delta": 1e-3,
}


def quick(**options):
    return PrivateKANClassifier(**{**QUICK, **options})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(scope="module")
def model():
    return quick().fit(X, Y)


def again(model, path):
    model.save(path)
    return load(path)


def test_everything_public_comes_back(model, path):
    other = again(model, path)
    assert type(other) is PrivateKANClassifier
    assert np.array_equal(other.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(other.predict(X), model.predict(X))
    for name in ("certificate_", "plan_", "schema_", "n_features_in_", "n_iter_", "learning_rate_"):
        assert getattr(other, name) == getattr(model, name), name
    assert not hasattr(other, "feature_names_in_")
    assert other.get_params() == model.get_params() | {"random_state": None}
    assert other.plot().get_supxlabel() == model.plot().get_supxlabel()
    assert np.array_equal(again(other, path).predict_proba(X), model.predict_proba(X))
    other.fit(X, Y)


def test_frames_with_categories_keep_their_names(path):
    frame = pd.DataFrame({"age": X[:, 0] * 50 + 50, "sex": np.where(X[:, 1] > 0, "f", "m")})
    options = {"bounds": {"age": (0, 100)}, "categories": {"sex": np.array(["f", "m"])}}
    model = quick(**options, missing="middle", hidden=(4,)).fit(frame, Y)
    other = again(model, path)
    assert other.feature_names_in_.tolist() == ["age", "sex"]
    assert np.array_equal(other.predict_proba(frame), model.predict_proba(frame))
    assert other.get_feature_names_out().tolist() == ["age", "sex=f", "sex=m"]
    with pytest.raises(ValueError, match="feature names"):
        other.predict(frame[["sex", "age"]])


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 7]),
        np.array([3, 7], dtype=np.uint8),
        np.array([1.0, 2.0]),
        np.array([False, True]),
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array(["a", "b", "ü"]),
    ],
    ids=lambda labels: f"{len(labels)} {labels.dtype}",
)
def test_labels_keep_their_type(labels, path):
    y = labels[(X[:, 0] > 0).astype(int) + (len(labels) > 2) * (X[:, 1] > 0)]
    model = quick(steps=2).fit(X, y)
    found = again(model, path).classes_
    assert found.dtype == labels.dtype and found.tolist() == labels.tolist()
    assert [type(label) for label in found] == [type(label) for label in model.classes_]
    assert load(path).predict(X).dtype == labels.dtype


def test_regressions_keep_their_bounds(path):
    model = PrivateKANRegressor(**QUICK | {"bounds": "private"}).fit(X, 30 * X[:, 0])
    other = again(model, path)
    assert type(other) is PrivateKANRegressor and other.target_ == model.target_
    assert np.array_equal(other.predict(X), model.predict(X))


def test_the_file_holds_no_seed_no_key_and_no_record(model, path):
    model.save(path)
    data = path.read_bytes()
    tensors, meta = read_export(path)
    assert set(tensors) == set(model.model_.state_dict())
    assert set(meta) == {
        "certificate", "estimator", "has_names", "learning_rate", "parameters", "plan", "schema",
        "target",
    }  # fmt: skip
    for secret in (str(SEED), hex(SEED)[2:], "random_state", "key", "counter", "state.", "noise."):
        assert secret.encode() not in data, secret
    assert not any(record.tobytes() in data for record in (*X, *X.astype(np.float32)))


def test_schemas_mechanisms_and_samplings_come_back(path):
    schema = Schema(tuple(Column(name, (-1, 1)) for name in "abc"), missing="middle")
    options = {"bounds": schema, "mechanism": LambdaCGD(0.5), "sampling": FixedSize(30)}
    other = again(quick(**options, epsilon=8.0).fit(X, Y), path)
    assert {name: getattr(other, name) for name in options} == options


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        "a",
        (1, "b"),
        {1: (0, 2.5), "a": None},
        ((0, 1), (2, 3)),
        BLT((0.5,), (0.9,)),
    ],
)
def test_parameters_are_the_same_after_json(value):
    assert from_json(json.loads(json.dumps(to_json("it", value)))) == value


def test_lists_and_arrays_as_parameters():
    assert from_json(to_json("it", [1, [2]])) == (1, (2,))
    array = np.array([[1.5, np.inf], [2.0, -0.0]])
    found = from_json(json.loads(json.dumps(to_json("it", array))))
    assert found.dtype == array.dtype and np.array_equal(found, array)
    assert from_json(to_json("it", np.float64(0.1))) == 0.1


@pytest.mark.parametrize("value", [object(), b"bytes", np.array([1j]), np.array([None]), [3j]])
def test_what_cannot_be_kept_is_refused(value):
    with pytest.raises(StateError, match="it holds"):
        to_json("it", value)


def test_an_estimator_that_is_not_fitted_is_not_saved(path):
    with pytest.raises(NotFittedError):
        quick().save(path)
    assert not path.exists()


@pytest.mark.parametrize("damage", ["cut", "edited", "empty", "text", "pickle"])
def test_damaged_and_foreign_files_are_refused(damage, model, path):
    model.save(path)
    data = path.read_bytes()
    place = data.index(b"epsilon") + 12
    edited = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    path.write_bytes(
        {
            "cut": data[:-7],
            "edited": edited,
            "empty": b"",
            "text": b"not a model",
            "pickle": b"\x80\x04K\x01.",
        }[damage]
    )
    with pytest.raises(StateError, match=r"damaged|not written by"):
        load(path)


def test_exports_of_other_things_are_refused(model, path, tmp_path):
    with pytest.raises(StateError, match="no export"):
        load(path)
    export(path, {"weight": torch.ones(2)}, {})
    with pytest.raises(StateError, match="no estimator"):
        load(path)
    model.save(path)
    tensors, meta = read_export(path)
    first, *_ = tensors
    for wrong, changes in [
        ("other tensors", (tensors | {first: torch.ones(3)}, {})),
        ("a tensor too few", ({}, {})),
        ("another class", (tensors, {"estimator": "os.system"})),
        ("unknown parameter", (tensors, {"parameters": {"depth": 3}})),
        ("no schema", (tensors, {"schema": None})),
        ("no target", (tensors, {"target": {"$classes": 3}})),
        ("another plan", (tensors, {"certificate": {**meta["certificate"], "plan_hash": "0"}})),
        ("text as a rate", (tensors, {"learning_rate": "x"})),
        ("objects", (tensors, {"parameters": {"epsilon": {"$object": 1}}})),
    ]:
        export(path, changes[0], meta | changes[1])
        with pytest.raises(StateError):
            load(path)
            pytest.fail(wrong)
