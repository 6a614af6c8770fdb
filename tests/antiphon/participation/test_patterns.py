import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles.patterns import is_allowed, largest, patterns

from antiphon.numerics import lower
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Patterns,
    Reshuffled,
)

T = 8
counts = st.integers(1, 4)
spaced = st.tuples(counts, counts).filter(lambda pair: (pair[0] - 1) * pair[1] < T)
rows = st.sets(st.integers(0, T - 1), min_size=1, max_size=4).map(lambda steps: tuple(steps))
# A family is made within the test: a run-time check of types there may use random numbers.
families = st.one_of(
    st.just((Once,)),
    st.tuples(st.sampled_from([MinSeparation, FixedEpochs]), spaced).map(lambda p: (p[0], *p[1])),
    st.sampled_from([(Reshuffled, times, -(-T // times)) for times in (1, 2, 3, 4, 8)]),
    st.tuples(st.just(Patterns), st.lists(rows, min_size=1, max_size=4).map(tuple)),
)
# Small whole numbers: sums are exact, and there are ties.
weights = st.lists(st.integers(0, 5), min_size=T * T, max_size=T * T).map(
    lambda entries: np.array(entries, dtype=float).reshape(T, T)
)


def total(W, steps):
    return W[np.ix_(steps, steps)].sum()


def make(family):
    kind, *arguments = family
    return kind(*arguments)


def symmetric(M):
    return np.triu(M) + np.triu(M, 1).T


@given(families, weights)
def test_heaviest_bounds_every_pattern_and_names_one_of_them(family, M):
    participation, W = make(family), symmetric(M)
    participation.check(T)
    bound, pattern = participation.heaviest(W)
    assert bound >= max(total(W, steps) for steps in patterns(participation, T))
    assert not pattern or is_allowed(participation, pattern)


@given(families, weights)
def test_heaviest_is_exact_where_it_promises_to_be(family, M):
    participation, W, steps = make(family), symmetric(M), np.arange(T)
    match participation:
        case MinSeparation(_, apart):
            W = W * (np.abs(steps[:, None] - steps) < apart)
        case Reshuffled(times, batches) if times > 2:
            W = W * (np.abs(steps[:, None] // batches - steps // batches) < 2)
    bound, pattern = participation.heaviest(W)
    assert bound == max(total(W, steps) for steps in patterns(participation, T))
    assert not pattern or bound == total(W, pattern)


@given(families, st.lists(st.floats(0, 1), min_size=T, max_size=T))
def test_densest_is_the_worst_pattern_for_decreasing_toeplitz_encoders(family, column):
    participation = make(family)
    worst = participation.densest(T)
    if worst is None:
        return
    C = lower(np.array(sorted(column, reverse=True)))
    norms = {steps: np.linalg.norm(C[:, steps].sum(1)) for steps in patterns(participation, T)}
    assert norms[worst] >= max(norms.values()) * (1 - 1e-12)


@given(counts, counts, st.integers(1, 12))
def test_fixed_epochs_list_the_patterns_that_are_not_part_of_another(times, apart, T):
    if (times - 1) * apart < T:
        participation = FixedEpochs(times, apart)
        assert sorted(participation.patterns(T)) == sorted(largest(patterns(participation, T)))


@given(families)
def test_json_gives_the_participation_back(family):
    participation = make(family)
    text = json.dumps(participation.to_dict())
    assert AbstractParticipation.from_dict(json.loads(text)) == participation


def test_patterns_are_a_set_of_sets():
    assert Patterns(((2, 0), (1,), (0, 2))) == Patterns(((1,), (0, 2)))
    assert hash(Patterns(((2, 0), (1,)))) == hash(Patterns(((1,), (0, 2))))


def test_a_recorded_schedule_gives_the_steps_of_each_unit():
    schedule = Patterns.recorded([[7, 8], [9], [], [8, 7, 5]])
    assert schedule == Patterns(((0, 3), (1,), (3,)))


def test_reshuffling_is_between_a_fixed_order_and_no_order():
    c = 0.8 ** np.arange(12)
    X = lower(c).T @ lower(c)
    fixed, shuffled, free = (
        max(total(X, steps) for steps in patterns(participation, 12))
        for participation in (FixedEpochs(3, 4), Reshuffled(3, 4), MinSeparation(3, 1))
    )
    assert fixed < shuffled < free
