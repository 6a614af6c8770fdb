"""Names of samplings: one reader for Python and the command line."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanError
from antiphon.participation import Relation
from antiphon.plans import (
    SAMPLINGS,
    BallsInBins,
    CyclicPoisson,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Recorded,
    ShuffledEpochs,
    relation_of,
    sampling_of,
)


def test_every_name_has_its_sampling():
    found = {name: sampling_of(name, 64, 8) for name in SAMPLINGS if name != "cyclic-poisson"}
    assert found == {
        "poisson": Poisson(0.125),
        "fixed-size": FixedSize(8),
        "shuffled": ShuffledEpochs(8),
        "reshuffled": ShuffledEpochs(8, reshuffle=True),
        "one-pass": OnePass(8),
        "balls-in-bins": BallsInBins(8),
        "full-batch": FullBatch(),
    }
    assert sampling_of("cyclic-poisson", 64, 8, cycle=4) == CyclicPoisson(0.5, 4)
    given = Recorded([[0], [1]])
    assert sampling_of(given, 64) is given


@given(st.data())
def test_balls_fall_into_as_few_bins_as_keep_batches_from_being_larger(data):
    n = data.draw(st.integers(1, 10**9))
    size = data.draw(st.integers(1, n))
    bins = sampling_of("balls-in-bins", n, size).bins
    assert bins * size >= n > (bins - 1) * size


@given(st.integers(1, 10**6))
def test_a_rate_is_not_a_bin_short_or_over_for_its_rounding(bins):
    assert sampling_of("balls-in-bins", 10**7, rate=1 / bins).bins == bins


@given(st.data())
def test_no_batch_is_expected_to_be_larger_than_asked_for(data):
    n = data.draw(st.integers(1, 10**6))
    size = data.draw(st.integers(1, n))
    for name in set(SAMPLINGS) - {"cyclic-poisson", "full-batch"}:
        assert sampling_of(name, n, size).expected_batch(n) <= size * (1 + 1e-12)
    cycle = data.draw(st.integers(1, n // size))
    found = sampling_of("cyclic-poisson", n, size, cycle=cycle)
    assert math.isclose(found.expected_batch(n), size, rel_tol=1e-9)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_rate_is_a_batch_size(name):
    cycle = 3 if name == "cyclic-poisson" else None
    by_size = sampling_of(name, 1000, 300, cycle=cycle)
    assert sampling_of(name, 1000, rate=0.3, cycle=cycle) == by_size


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (
            "weighted",
            {"batch_size": 3},
            r"sampling is 'poisson', .*'full-batch', or .*got 'weighted'",
        ),
        ("poisson", {}, "sampling='poisson' needs batch_size"),
        ("poisson", {"batch_size": 11}, "batch_size=11 is larger than the 10 units"),
        ("shuffled", {"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ("shuffled", {"batch_size": 2, "rate": 0.2}, "give batch_size or rate; got batch_size=2"),
        ("balls-in-bins", {"rate": 1.5}, r"rate must be in \(0, 1\]; got 1.5"),
        (
            "balls-in-bins",
            {"batch_size": 2, "cycle": 2},
            "cycle=2 belongs to .*; got 'balls-in-bins'",
        ),
        ("cyclic-poisson", {"batch_size": 2}, r"give CyclicPoisson\(rate, cycle\)"),
        ("cyclic-poisson", {"batch_size": 2, "cycle": 0}, "cycle must be a whole number"),
        ("cyclic-poisson", {"batch_size": 4, "cycle": 3}, "a cycle of at most 2"),
    ],
)
def test_what_no_run_can_have_is_one_line(kind, given, words):
    with pytest.raises(PlanError, match=words) as refused:
        sampling_of(kind, 10, **given)
    assert "\n" not in str(refused.value)


def test_the_relation_follows_the_sampling_unless_it_is_given():
    assert relation_of(None, Poisson(0.1)) is Relation.ADD_REMOVE
    assert relation_of(None, FixedSize(2)) is Relation.ZERO_OUT
    assert relation_of(None, OnePass(2), Relation.REPLACE_ONE) is Relation.REPLACE_ONE
    assert relation_of("replace-one", Poisson(0.1)) is Relation.REPLACE_ONE
