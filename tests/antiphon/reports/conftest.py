"""Three small fits that all tests of reports share."""

import numpy as np
import pandas as pd
import pytest
from oracles.browser import chromium as chromium

from antiphon import reports
from antiphon.mechanisms import LambdaCGD
from antiphon.tables.data import Column, Schema
from antiphon.tables.estimators import PrivateKANClassifier, PrivateKANRegressor

RNG = np.random.default_rng(0)
ROWS = 300
TABLE = pd.DataFrame(
    {
        "age": RNG.uniform(18, 90, ROWS),
        "<script>alert(1)</script>": RNG.uniform(0, 1, ROWS),
        "smoker": RNG.choice(["yes", "no & never"], ROWS),
    }
)
LABELS = np.where(TABLE["age"] > 50, "ill", "<b>well</b>")
PRESSURE = 100 + TABLE["age"] + 20 * (TABLE["smoker"] == "yes")
QUICK = {"epsilon": 2.0, "sampling": "full-batch", "steps": 12}
CATEGORIES = {"smoker": ["yes", "no & never"]}
BINS = [[0.1, 0.15, 40], [0.5, 0.45, 10], [0.9, 0.95, 50], [0.7, 0.0, 0]]
CURVE = [{"step": 1, "accuracy": 0.5}, {"step": 6, "accuracy": 0.75}, {"step": 12, "accuracy": 0.8}]


@pytest.fixture(scope="session")
def kept_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def classifier(kept_cache):
    """Seeded, with private bounds of all numbers, and noise that takes itself back."""
    model = PrivateKANClassifier(
        **QUICK, categories=CATEGORIES, mechanism=LambdaCGD(0.5), random_state=7
    )
    return model.fit(TABLE, LABELS)


@pytest.fixture(scope="session")
def regressor(kept_cache):
    """Secret, with declared bounds, independent noise and a hidden layer."""
    schema = Schema(
        (
            Column("age", bounds=(0, 100)),
            Column("<script>alert(1)</script>", bounds=(0, 1)),
            Column("smoker", categories=CATEGORIES["smoker"]),
        )
    )
    model = PrivateKANRegressor(
        **QUICK, bounds=schema, target_bounds=(80, 240), mechanism="independent", hidden=(2,)
    )
    return model.fit(TABLE, PRESSURE)


@pytest.fixture(scope="session")
def report(classifier):
    return reports.describe(
        classifier,
        table="clinic <2>.csv",
        target="state",
        learning=CURVE,
        evaluation={
            "kind": "public",
            "rows": 100,
            "metrics": {"accuracy": 0.875, "log.loss": np.float64(0.25)},
            "pairs": {"bins": BINS},
        },
        command="antiphon train 'clinic <2>.csv' --target state",
        date="2026-01-31",
    )


@pytest.fixture(scope="session")
def plain_report(regressor):
    """Without learning curve and score."""
    return reports.describe(regressor, table="t.csv", target="pressure", date="2026-01-31")
