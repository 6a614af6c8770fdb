from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets

from antiphon.errors import DataError, PlanError
from antiphon.tables.data import Column, Dataset, Schema, datasets, load

NAMES = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country"
)


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)


def adult_arrays(rows=6):
    X = np.zeros((rows, 14))
    X[:, 0], X[:, 1], X[:, 8] = 40, 4, 1
    names = NAMES.split()
    arrays = {"columns": np.array(names)}
    for part in ("train", "test"):
        arrays[f"X_{part}"], arrays[f"y_{part}"] = X, np.arange(rows) % 2
    lists = {
        "workclass": ["?", "a", "b", "c", "Private"],
        "race": ["Black", "White"],
        "sex": ["Female", "Male"],
    }
    for name in names:
        arrays[f"cat_{name}"] = np.array(lists.get(name, ["?", "x"]))
    return arrays


def test_breast_cancer_is_shipped_and_always_split_alike():
    one, again = load("breast-cancer"), load("breast-cancer")
    assert np.array_equal(one.X_train, again.X_train)
    assert len(one.X_train) + len(one.X_test) == 569
    assert (np.concatenate([one.y_train, one.y_test]) == 0).sum() == 212
    X, y, *_ = one.encoded()
    assert X.dtype == np.float32 and set(y) == {0, 1}
    assert np.abs(X).max() <= 1
    # Bounds from public knowledge fit: few values are moved, and columns are not squeezed to a point.
    assert (np.abs(X) == 1).mean() < 0.05
    assert X.std(axis=0).min() > 0.05
    assert 0.5 < one.majority < 0.75


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(PlanError, match=r"no data set is called 'iris'; .*mnist-01"):
        load("iris")
    assert datasets()[0] == "breast-cancer"


@pytest.mark.parametrize(
    "name",
    [
        "adult",
        "credit-default",
        "mnist",
        "mnist-01",
        "fashion-mnist",
        "gue-promoters",
        "cifar-10-subset",
    ],
)
def test_what_is_nowhere_is_refused_with_where_it_was_sought(name, offline, tmp_path):
    with pytest.raises(DataError, match=r"\.npz was not found anywhere.*ANTIPHON_DATA"):
        load(name)
    with pytest.raises(DataError, match=rf"was not found in {tmp_path}"):
        load(name, tmp_path)


def test_the_folder_may_come_from_the_environment(tmp_path, monkeypatch):
    X = np.zeros((4, 28, 28), np.uint8)
    X[:, 0, 1] = 255
    y = np.array([0, 1, 2, 1], np.uint8)
    np.savez(tmp_path / "mnist.npz", X_train=X, y_train=y, X_test=X, y_test=y)
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    whole, two = load("mnist"), load("mnist-01")
    assert whole.X_train.shape == (4, 784) and whole.classes == tuple(range(10))
    assert two.y_train.tolist() == [0, 1, 1] and two.classes == (0, 1)
    assert two.encoded()[0][0, :3].tolist() == [-1, 1, -1]


def test_a_damaged_archive_is_refused(tmp_path):
    (tmp_path / "mnist.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(DataError, match="not a NumPy archive"):
        load("mnist", tmp_path)


def test_adult_has_texts_and_drops_the_weight(tmp_path):
    np.savez(tmp_path / "adult.npz", **adult_arrays())
    data = load("adult", tmp_path)
    assert "fnlwgt" not in data.schema.names
    assert data.X_train[0, :2].tolist() == [40, "Private"]
    assert data.X_train[0, 7:9].tolist() == ["White", "Female"]
    encoded = data.encoded()[0]
    assert encoded.shape == (6, data.features)
    place = data.schema.feature_names.index("workclass=Private")
    assert encoded[:, place].tolist() == [1.0] * 6


def openml_adult(monkeypatch, rich_first):
    arrays = adult_arrays(1)
    data = np.repeat(arrays["X_train"], 48_842, axis=0)
    data[5, 1] = np.nan  # how OpenML writes an answer not given
    target = np.full(48_842, "<=50K", dtype=object)
    target[:rich_first] = target[16_281 : 16_281 + 7841] = ">50K"
    bunch = SimpleNamespace(
        data=data,
        target=target,
        feature_names=list(arrays["columns"]),
        categories={k[4:]: list(v) for k, v in arrays.items() if k.startswith("cat_")},
    )
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda *a, **k: bunch)


def test_adult_of_openml_is_taken_apart_and_its_gaps_are_questions(monkeypatch):
    openml_adult(monkeypatch, 3846)
    data = load("adult")
    assert len(data.y_train) == 32_561 and data.y_train.sum() == 7841
    assert len(data.y_test) == 16_281 and data.y_test.sum() == 3846
    assert data.X_test[5, 1] == "?"


def test_adult_of_openml_in_another_order_is_refused(monkeypatch):
    openml_adult(monkeypatch, 3000)
    with pytest.raises(DataError, match="3000 labels above 50K"):
        load("adult")


def test_credit_default_and_pictures_come_from_openml_too(monkeypatch):
    tables = {
        "Fashion-MNIST": (np.full((60_002, 784), 7), np.array(["9"] * 60_002)),
        "default-of-credit-card-clients": (np.ones((10, 23)), np.array(["0", "1"] * 5)),
        "mnist_784": (np.zeros((60_005, 784), np.uint8), np.array(["1"] * 60_005)),
    }

    def fetch(name, **kwargs):
        data, target = tables[name]
        return SimpleNamespace(data=data, target=target)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    credit, mnist = load("credit-default"), load("mnist")
    assert credit.X_test.shape == (2, 23) and set(credit.y_train) == {0, 1}
    assert mnist.X_test.shape == (5, 784) and mnist.X_test.dtype == np.uint8
    clothes = load("fashion-mnist")
    assert clothes.X_test.shape == (2, 784) and clothes.name == "fashion-mnist"
    assert set(clothes.y_test) == {9} and (clothes.X_test == 7).all()


def test_colour_pictures_are_rows_of_pixels(tmp_path):
    X = np.arange(2 * 32 * 32 * 3).reshape(2, 32, 32, 3) % 256
    parts = {f"X_{part}": X.astype(np.uint8) for part in ("train", "test")}
    parts |= {f"y_{part}": np.array([3, 9], np.uint8) for part in ("train", "test")}
    np.savez(tmp_path / "cifar10_subset.npz", **parts)
    data = load("cifar-10-subset", tmp_path)
    assert data.X_train.shape == (2, 3072) and data.y_test.tolist() == [3, 9]
    assert data.X_train[0, :4].tolist() == [0, 1, 2, 3]  # red, green, blue, and red again


def test_promoters_are_letters(tmp_path):
    X, y = np.array([[0, 1, 2, 3], [3, 3, 4, 0]], np.uint8), np.array([1, 0], np.uint8)
    parts = {f"{k}_{part}": v for part in ("train", "test") for k, v in (("X", X), ("y", y))}
    np.savez(tmp_path / "gue_human_core_promoter.npz", alphabet="ACGTN", **parts)
    data = load("gue-promoters", tmp_path)
    assert data.X_train.tolist() == [["A", "C", "G", "T"], ["T", "T", "N", "A"]]
    assert data.encoded()[0].sum(axis=1).tolist() == [4, 3]


def test_a_data_set_whose_parts_do_not_fit_is_refused():
    schema = Schema((Column("x", bounds=(0, 1)),))
    X, y = np.zeros((3, 1)), np.zeros(3, np.int64)
    with pytest.raises(DataError, match="a record for each label"):
        Dataset("d", X, y[:2], X, y, schema)
    with pytest.raises(DataError, match=r"labels out of \(0, 1\)"):
        Dataset("d", X, y, X, y + 2, schema)


@pytest.mark.data
def test_acceptance_kan_dpgd_21_counts_of_mnist():
    data = load("mnist-01")
    assert np.bincount(data.y_train).tolist() == [5923, 6742]
    assert np.bincount(data.y_test).tolist() == [980, 1135]
    whole = load("mnist")
    assert whole.X_train.shape == (60_000, 784) and whole.X_test.shape == (10_000, 784)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "positive"),
    [
        ("adult", (32_561, 16_281), (7841, 3846)),
        ("credit-default", (24_000, 6_000), None),
        ("gue-promoters", (47_356, 5_920), (23_651, 2_968)),
    ],
)
def test_every_archive_is_read_and_its_categories_are_declared(name, rows, positive):
    data = load(name)
    assert (len(data.y_train), len(data.y_test)) == rows
    if positive is not None:
        assert (data.y_train.sum(), data.y_test.sum()) == positive
    X = data.encoded()[0]
    assert np.isfinite(X).all() and np.abs(X).max() <= 1
    texts = [c for c in data.schema.columns if c.kind != "number"]
    ones = sum(
        X[:, [n.startswith(f"{c.name}=") for n in data.schema.feature_names]].sum() for c in texts
    )
    assert ones == len(X) * len(texts)
