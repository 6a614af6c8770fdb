import math

import numpy as np
import pytest

from antiphon.accounting import gaussian_epsilon
from antiphon.errors import DataError, PlanError
from antiphon_papers.relu.experiments.neuron_curves import METHODS, Config, configs, run, summary
from antiphon_papers.relu.experiments.neuron_tables import TABLES, table
from antiphon_papers.relu.experiments.relu_figure_1 import plot as plot_training
from antiphon_papers.relu.experiments.relu_figure_2 import plot as plot_test


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("ANTIPHON_CACHE", "")


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_CACHE", "")
        rows = [row for config in configs("ci") for row in run(config)]
    return {name: [row for row in rows if row["method"] == name] for name in METHODS}


def test_the_noise_of_one_pass_does_not_cover_several(found):
    for name in ("sgd", "mb"):
        assert found[name][0]["real_epsilon"] > 0.17  # one pass of the printed noise is below 0.17
    for name in ("sgd-honest", "mb-honest", "full-honest"):
        assert found[name][0]["real_epsilon"] == pytest.approx(0.5, abs=1e-9)
    n = 1600
    f = math.sqrt(8 * math.log(n**1.1)) / 0.5
    expected = gaussian_epsilon(math.sqrt(5) / f, n**-1.1)
    assert found["sgd"][0]["real_epsilon"] == pytest.approx(expected, rel=1e-9)


def test_losses_are_measured_along_the_way_and_once_for_the_average(found):
    for name, rows in found.items():
        assert [row["is_average"] for row in rows][-1] and sum(r["is_average"] for r in rows) == 1
        passes = [row["passes"] for row in rows]
        assert passes == sorted(passes)
        assert rows[-1]["passes"] == {"none": 0.0, "mb-honest": 1.0}.get(name, 5.0)


def test_least_squares_is_best_on_training_data(found):
    best = found["none"][0]["train_loss"]
    assert all(row["train_loss"] >= best for rows in found.values() for row in rows)


def test_the_full_preset_has_every_table_and_the_papers_passes():
    full = configs("full")
    assert {c.data for c in full} == set(TABLES) and {c.passes for c in full} == {500}
    assert {c.epsilon for c in full} == {0.05, 0.2, 0.5}


def test_pictures_and_summaries_have_all_curves(found):
    rows = [row for some in found.values() for row in some]
    assert {row["method"] for row in summary(rows)} == set(METHODS)
    for plot in (plot_training, plot_test):
        (axes,) = plot(rows).axes
        assert len(axes.get_legend_handles_labels()[0]) == len(METHODS)


def test_tables_are_standardised_with_a_column_of_ones_and_split_by_the_seed():
    first, second = table("synthetic", 0), table("synthetic", 1)
    X = np.concatenate([first.X_train, first.X_test])
    np.testing.assert_allclose(X[:, :-1].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, :-1].std(0), 1)
    assert (X[:, -1] == 1).all() and len(first.y_train) == 1600
    assert max(first.y_train.max(), first.y_test.max()) == 1
    assert not np.array_equal(first.y_train, second.y_train)


def test_unknown_methods_and_tables_are_refused():
    with pytest.raises(PlanError, match="method is one of"):
        run(Config("synthetic", "adam", 0.5, 5, 0))
    with pytest.raises(DataError, match=r"wine_quality_white\.npz was not found.*ANTIPHON_DATA"):
        table("wine", 0)
    with pytest.raises(DataError, match="no table is called"):
        table("iris", 0)


@pytest.mark.data
@pytest.mark.parametrize(("name", "rows", "features"), [
    ("california", 16_512, 8), ("gas-turbine-co", 29_386, 9), ("gas-turbine-nox", 29_386, 9),
    ("wine", 3918, 11),
])  # fmt: skip
def test_public_tables_have_the_papers_sizes(name, rows, features):
    assert table(name, 0).X_train.shape == (rows, features + 1)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("data", TABLES)
def test_slow_full_batches_at_an_honest_epsilon_beat_everything_as_printed(data):
    ends = {
        name: run(Config(data, name, 0.05, 500, 0))[-1] for name in ("mb", "sgd", "full-honest")
    }
    assert ends["mb"]["real_epsilon"] > 0.36 and ends["full-honest"]["real_epsilon"] < 0.051
    assert ends["full-honest"]["test_loss"] < 0.2 * min(
        ends["mb"]["test_loss"], ends["sgd"]["test_loss"]
    )
