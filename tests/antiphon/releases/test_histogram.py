import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.release_auditors import is_as_claimed, likelihood_ratios

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import GaussianRelease
from antiphon.releases import histogram, histogram_sensitivity, private_histogram
from antiphon.releases.histogram import CELLS, EDGES, cell_counts

MU, D = 0.7, 4
TABLE = np.array([[1.5] * D, [-3.0] * D, [0.0] * D])
RECORD = np.array([[100.0] * D])  # alone in its cells: the worst case
WITH, WITHOUT = np.concatenate([TABLE, RECORD]), TABLE
REPLACED = np.concatenate([TABLE, -RECORD])
PAIRS = {
    "add-remove": (WITH, WITHOUT),
    "zero-out": (WITHOUT, WITH),
    "replace-one": (WITH, REPLACED),
}
numbers = st.floats(allow_nan=True, allow_infinity=True)


def audit(relation, pair):
    here, there = pair

    def release(generator):
        return private_histogram(here, mu=MU, relation=relation, generator=generator)[0]

    return is_as_claimed(likelihood_ratios(release, cell_counts(here), cell_counts(there), MU), MU)


@pytest.mark.parametrize("relation", PAIRS)
def test_worst_neighbours_are_told_apart_exactly_as_well_as_the_event_says(relation):
    here, there = PAIRS[relation]
    event = private_histogram(here, mu=MU, relation=relation)[1]
    assert event == GaussianRelease(MU, "histograms of the columns", relation)
    assert audit(relation, (here, there))


@pytest.mark.parametrize(
    ("relation", "wrong"),
    [
        ("add-remove", D),  # d in place of sqrt(d)
        ("replace-one", math.sqrt(D)),  # without sqrt(2)
    ],
)
def test_a_wrong_sensitivity_would_be_seen(relation, wrong, monkeypatch):
    monkeypatch.setattr(histogram, "histogram_sensitivity", lambda *_: wrong)
    assert not audit(relation, PAIRS[relation])


@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=6), st.tuples(*[numbers] * 3))
def test_a_record_is_in_one_cell_of_each_column_where_it_is_finite(rows, record):
    table = np.array(rows).reshape(-1, 3)
    change = cell_counts(np.concatenate([table, [record]])) - cell_counts(table)
    assert (np.sort(change, axis=1)[:, :-1] == 0).all()
    assert (change.sum(1) == np.isfinite(record)).all()
    assert np.linalg.norm(change) <= histogram_sensitivity(3, "add-remove")


@given(st.permutations(range(5)))
def test_the_order_of_records_does_not_matter(order):
    X = np.array([[1.0, -2.0], [3e15, 0.1], [0.0, 5.0], [np.nan, 7.0], [-1e-300, 8.0]])
    assert (cell_counts(X[list(order)]) == cell_counts(X)).all()


@given(st.floats(-1e12, 1e12))
def test_a_number_lies_within_the_edges_of_its_cell(x):
    cell = cell_counts(np.array([[x]]))[0].argmax()
    assert EDGES[cell] <= x <= EDGES[cell + 1]


@pytest.mark.parametrize(
    ("x", "low", "high"),
    [(1.0, 1, 2), (2.0, 2, 4), (-1.0, -2, -1), (0.0, -(2.0**-40), 2.0**-40)],
)
def test_powers_of_two_begin_their_cells(x, low, high):
    cell = cell_counts(np.array([[x]]))[0].argmax()
    assert (EDGES[cell], EDGES[cell + 1]) == (low, high)


def test_numbers_beyond_the_grid_are_in_its_last_cells():
    counts = cell_counts(np.array([[1e300], [-1e300], [2.0**40], [5e-324]]))[0]
    assert (counts[0], counts[-1], counts[CELLS // 2], counts.sum()) == (1, 2, 1, 4)


def test_noise_is_never_shared_by_different_counts_labels_or_scales():
    generator = Generator.seeded(0)

    def noise(X, mu=1.0, what="x"):
        noisy = private_histogram(X, mu=mu, generator=generator, what=what)[0]
        return (noisy - cell_counts(X)) * mu

    base = noise(WITH)
    assert (noise(WITH) == base).all()
    for other in (noise(WITHOUT), noise(WITH, mu=2.0), noise(WITH, what="y")):
        assert (np.abs(other - base) < 1e-9).mean() < 0.01  # cells of the grid meet by chance
        assert abs(np.corrcoef(other.ravel(), base.ravel())[0, 1]) < 0.2


def test_without_a_generator_the_noise_is_new_each_time():
    first, second = (private_histogram(WITH, mu=1.0)[0] for _ in range(2))
    assert (first != second).all()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"got shape \(3,\)"),
        (np.zeros((3, 0)), r"got shape \(3, 0\)"),
        ([["a"]], "for numbers"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(X, message):
    with pytest.raises(PlanError, match=message):
        private_histogram(X, mu=1.0)


@pytest.mark.parametrize("mu", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_must_be_positive_and_finite(mu):
    with pytest.raises(PlanError, match="mu must be positive and finite"):
        private_histogram(WITH, mu=mu)


def test_an_unknown_relation_is_refused():
    with pytest.raises(PlanError, match="relation is one of"):
        private_histogram(WITH, mu=1.0, relation="swap")
