"""Statistical tests use fixed seeds: they pass or fail for good. The false-alarm rate that each one
states is the share of keys for which a perfect sampler would fail it."""

import pickle
from collections import Counter
from functools import cache
from itertools import combinations, pairwise, permutations
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from scipy import stats

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.participation import FixedEpochs
from antiphon.plans import (
    AbstractSampling,
    BallsInBins,
    CyclicPoisson,
    Draws,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Recorded,
    ShuffledEpochs,
)
from antiphon.plans.sampling import draws
from antiphon.plans.sampling.abstract_sampling import _KINDS

P_VALUE = 1e-6
SCHEMES = {
    "poisson": Poisson(0.1),
    "all": Poisson(1.0),
    "fixed size": FixedSize(13),
    "most": FixedSize(90),
    "shuffled": ShuffledEpochs(13),
    "reshuffled": ShuffledEpochs(13, reshuffle=True),
    "one pass": OnePass(7),
    "bins": BallsInBins(8),
    "cyclic": CyclicPoisson(0.3, 4),
    "full batch": FullBatch(),
    "recorded": Recorded(tuple((3 * step + 2, step) for step in range(30))),
}
REDRAWN = ["poisson", "fixed size", "most", "reshuffled", "cyclic"]
KEYED = [*REDRAWN, "shuffled", "bins"]


def drawn(sampling, n=100, seed=0):
    return Draws(sampling, n, Generator.seeded(seed))


def batches(sampling, n, steps, seed=0):
    schedule = drawn(sampling, n, seed)
    return [tuple(schedule.rows(step).tolist()) for step in range(steps)]


# What holds for every scheme


@pytest.mark.parametrize("name", SCHEMES)
def test_rows_are_distinct_ascending_rows_that_exist(name):
    for step in range(14):
        rows = drawn(SCHEMES[name]).rows(step)
        assert rows.dtype is torch.int64
        assert rows.device.type == "cpu"
        assert rows.ndim == 1
        assert len(rows.unique()) == len(rows)
        assert ((rows >= 0) & (rows < 100)).all()
        assert name == "recorded" or (rows.diff() > 0).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_a_batch_depends_on_key_and_step_alone(name):
    one = drawn(SCHEMES[name])
    forwards = [one.rows(step) for step in range(14)]
    backwards = [one.rows(step) for step in reversed(range(14))]
    assert all(map(torch.equal, forwards, reversed(backwards)))
    assert all(
        torch.equal(drawn(SCHEMES[name]).rows(step), rows) for step, rows in enumerate(forwards)
    )


@pytest.mark.parametrize("name", KEYED)
def test_other_keys_give_other_batches(name):
    assert batches(SCHEMES[name], 100, 5, seed=1) != batches(SCHEMES[name], 100, 5, seed=2)


@pytest.mark.parametrize("name", REDRAWN)
def test_other_steps_give_other_batches(name):
    assert len(set(batches(SCHEMES[name], 100, 40))) > 35


@pytest.mark.parametrize("name", SCHEMES)
def test_changing_the_rows_that_were_given_changes_no_later_batch(name):
    schedule = drawn(SCHEMES[name])
    rows = schedule.rows(3)
    expected = rows.clone()
    rows.fill_(-1)
    assert torch.equal(schedule.rows(3), expected)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_copy_through_pickle_draws_the_same(name):
    schedule = drawn(SCHEMES[name])
    schedule.rows(0)
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule
    assert torch.equal(again.rows(5), schedule.rows(5))


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.device("meta")])
@pytest.mark.parametrize("name", SCHEMES)
def test_torch_modes_change_nothing(name, mode):
    with mode():
        rows = drawn(SCHEMES[name]).rows(2)
    assert torch.equal(rows, drawn(SCHEMES[name]).rows(2))


@pytest.mark.parametrize("name", ["poisson", "bins", "cyclic", "full batch"])
@given(st.integers(1, 300), st.integers(1, 50), st.integers(0, 20))
def test_rows_added_at_the_end_leave_the_others_where_they_were(name, n, more, step):
    assert SCHEMES[name].own_coin
    longer = drawn(SCHEMES[name], n + more).rows(step)
    assert torch.equal(drawn(SCHEMES[name], n).rows(step), longer[longer < n])


def test_every_scheme_can_be_drawn():
    assert {type(sampling) for sampling in SCHEMES.values()} == set(_KINDS.values())


BY_STEP = [("batches", step) for step in range(10)]
ADDRESSES = {
    "poisson": BY_STEP,
    "fixed size": BY_STEP,
    "most": BY_STEP,
    "cyclic": [*BY_STEP, ("places", 0)],
    "bins": [("places", 0)],
    "shuffled": [("places", 0)],
    "reshuffled": [("places", 0), ("places", 1)],  # an epoch has 8 steps
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_no_word_is_used_for_two_purposes(name, monkeypatch):
    used, read = set(), draws._words
    monkeypatch.setattr(draws, "_words", lambda *address: used.add(address[:2]) or read(*address))
    schedule = drawn(SCHEMES[name])
    for step in range(10):
        schedule.rows(step)
    root = Generator.seeded(0)
    assert used == {(root.spawn(label), step) for label, step in ADDRESSES[name]}


# Sizes and passes


@given(st.integers(1, 80), st.data())
def test_fixed_size_batches_have_their_size(n, data):
    batch = data.draw(st.integers(1, n))
    assert {len(rows) for rows in batches(FixedSize(batch), n, 5)} == {batch}


@given(st.integers(1, 80), st.booleans(), st.data())
def test_every_epoch_uses_every_row_once(n, reshuffle, data):
    batch = data.draw(st.integers(1, n))
    per_epoch = -(-n // batch)
    parts = batches(ShuffledEpochs(batch, reshuffle), n, 3 * per_epoch)
    for start in range(0, 3 * per_epoch, per_epoch):
        epoch = parts[start : start + per_epoch]
        assert sorted(sum(epoch, ())) == [*range(n)]
        assert {len(rows) for rows in epoch[:-1]} <= {batch}
    if not reshuffle:
        assert parts[:per_epoch] == parts[per_epoch : 2 * per_epoch] == parts[2 * per_epoch :]


@given(st.integers(1, 80), st.data())
def test_one_pass_keeps_the_given_order_and_then_ends(n, data):
    batch = data.draw(st.integers(1, n))
    steps = -(-n // batch)
    assert sum(batches(OnePass(batch), n, steps), ()) == (*range(n),)
    with pytest.raises(PlanError, match=rf"{steps} steps; {steps + 1} were asked for"):
        drawn(OnePass(batch), n).rows(steps)


@given(st.integers(1, 80), st.integers(1, 20))
def test_a_row_is_in_one_bin_and_stays_there(n, bins):
    parts = batches(BallsInBins(bins), n, 2 * bins)
    assert sorted(sum(parts[:bins], ())) == [*range(n)]
    assert parts[:bins] == parts[bins:]


@given(st.integers(1, 80), st.integers(1, 20))
def test_groups_of_cyclic_poisson_are_those_of_bins(n, cycle):
    groups = batches(BallsInBins(cycle), n, 3 * cycle)
    assert batches(CyclicPoisson(1.0, cycle), n, 3 * cycle) == groups
    parts = batches(CyclicPoisson(0.5, cycle), n, 3 * cycle)
    assert all(set(part) <= set(group) for part, group in zip(parts, groups, strict=True))


def test_full_and_recorded_batches_are_what_they_say():
    assert batches(FullBatch(), 5, 3) == [(0, 1, 2, 3, 4)] * 3
    assert batches(Recorded([[3, 1], [], [2]]), 4, 3) == [(3, 1), (), (2,)]


# The law of Poisson batches


@cache
def inclusions(sampling, n, steps, seed=0):
    """Which row is in which batch, as a table of steps by rows."""
    table, schedule = np.zeros((steps, n)), drawn(sampling, n, seed)
    for step in range(steps):
        table[step, schedule.rows(step).numpy()] = 1
    table.flags.writeable = False
    return table


def row_p_value(table, rate):
    """Chi-square test that every row comes up at ``rate``."""
    expected = rate * len(table)
    return stats.chi2.sf(
        ((table.sum(0) - expected) ** 2).sum() / (expected * (1 - rate)), table.shape[1]
    )


def pair_p_value(table, rate):
    """Chi-square test that no two rows are correlated."""
    scores = (table - rate).T @ (table - rate) / (rate * (1 - rate) * len(table) ** 0.5)
    above = scores[np.triu_indices(len(scores), 1)]
    return stats.chi2.sf((above**2).sum(), len(above))


def size_p_value(table, rate):
    """Chi-square test that sizes are binomial, with rare sizes taken together."""
    n, sizes = table.shape[1], table.sum(1)
    low, high = stats.binom.ppf([0.001, 0.999], n, rate)
    edges = np.arange(low, high + 1)
    cells = np.diff([0, *stats.binom.cdf(edges, n, rate), 1])
    found = np.bincount(np.searchsorted(edges, sizes), minlength=len(cells))
    return stats.chisquare(found, cells * len(table)).pvalue


LAWS = {"rows": row_p_value, "pairs": pair_p_value, "sizes": size_p_value}


@pytest.mark.parametrize("rate", [0.03, 0.07, 0.3, 0.7])
@pytest.mark.parametrize("test", LAWS)
def test_poisson_batches_have_the_law_of_independent_coins(test, rate):
    """False-alarm rate 1e-6 each."""
    assert LAWS[test](inclusions(Poisson(rate), 40, 10_000), rate) > P_VALUE


@pytest.mark.parametrize("row", [0, 1, 12, 13, 14, 15, 38, 39])
def test_rows_at_the_ends_and_at_a_redrawn_gap_have_the_rate_of_the_others(row):
    """False-alarm rate 1e-6 for each row; gaps of 14 are drawn anew."""
    count = int(inclusions(Poisson(0.07), 40, 10_000)[:, row].sum())
    assert stats.binomtest(count, 10_000, 0.07).pvalue > P_VALUE


def without(table, row):
    changed = table.copy()
    changed[:, row] = 0
    return changed


def test_wrong_samplers_are_rejected():
    rate, table = 0.07, inclusions(Poisson(0.07), 40, 20_000)
    assert all(test(table, rate) > P_VALUE for test in LAWS.values())
    too_large = inclusions(Poisson(1.05 * rate), 40, 20_000)
    assert row_p_value(too_large, rate) < P_VALUE
    assert size_p_value(too_large, rate) < P_VALUE
    assert row_p_value(without(table, 39), rate) < P_VALUE  # stops one row too early
    assert row_p_value(without(table, 0), rate) < P_VALUE  # starts one row too late
    apart = table.copy()
    apart[:, 1:] *= 1 - table[:, :-1]  # a row and the next never together
    assert pair_p_value(apart, rate) < P_VALUE
    fixed = inclusions(FixedSize(3), 40, 10_000)  # 3 / 40 for each row, but not independent
    assert row_p_value(fixed, 3 / 40) > P_VALUE
    assert size_p_value(fixed, 3 / 40) < P_VALUE
    assert pair_p_value(fixed, 3 / 40) < P_VALUE


def test_batches_of_large_data_have_a_binomial_size_and_uniform_rows():
    """False-alarm rate 2e-6."""
    n, rate = 60_000, 256 / 60_000
    parts = batches(Poisson(rate), n, 1000)
    total = sum(map(len, parts))
    assert stats.binomtest(total, 1000 * n, rate).pvalue > P_VALUE
    assert stats.binomtest(total, 1000 * n, 1.05 * rate).pvalue < P_VALUE
    cells = np.bincount(np.concatenate(parts) // 600, minlength=100)
    assert stats.chisquare(cells).pvalue > P_VALUE


def test_steps_of_poisson_sampling_are_independent():
    """False-alarm rate 1e-6: whether a row is in a batch says nothing of the next batch."""
    table = inclusions(Poisson(0.3), 40, 10_000) - 0.3
    scores = (table[1:] * table[:-1]).sum(0) / (0.3 * 0.7 * 9_999**0.5)
    assert stats.chi2.sf((scores**2).sum(), 40) > P_VALUE


def test_cyclic_poisson_draws_its_group_at_the_rate_and_no_other_row():
    """False-alarm rate 2e-6."""
    table, rate = inclusions(CyclicPoisson(0.2, 3), 40, 9_000), 0.2
    groups = [[*rows] for rows in batches(BallsInBins(3), 40, 3)]
    for turn, group in enumerate(groups):
        within = table[turn::3][:, group]
        assert table[turn::3].sum() == within.sum()
        assert row_p_value(within, rate) > P_VALUE / 3
        assert pair_p_value(within, rate) > P_VALUE / 3
        assert row_p_value(within, 1.2 * rate) < P_VALUE


# Uniform sets, orders and bins


def uniform_p_value(outcomes, possible):
    counts = Counter(outcomes)
    assert counts.keys() <= set(possible)
    return stats.chisquare([counts[outcome] for outcome in possible]).pvalue


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5])
def test_fixed_size_batches_are_uniform_sets(batch):
    """False-alarm rate 1e-6 each. From 4 on, the rows that stay out are drawn."""
    possible = [*combinations(range(6), batch)]
    found = batches(FixedSize(batch), 6, 4000)
    assert len(possible) == comb(6, batch)
    assert uniform_p_value(found, possible) > P_VALUE
    first = (found[0],) * 400  # a set that comes up too often
    assert uniform_p_value([*found, *first], possible) < P_VALUE


def orders(sampling, seeds, epochs):
    for seed in range(seeds):
        rows = sum(batches(sampling, 4, 4 * epochs, seed), ())
        yield from (rows[4 * e : 4 * e + 4] for e in range(epochs))


def test_orders_are_uniform_over_epochs_and_over_keys():
    """False-alarm rate 3e-6, with the test of neighbouring epochs."""
    possible = [*permutations(range(4))]
    by_epoch = [*orders(ShuffledEpochs(1, reshuffle=True), 1, 3000)]
    assert uniform_p_value(by_epoch, possible) > P_VALUE
    assert uniform_p_value(orders(ShuffledEpochs(1), 3000, 1), possible) > P_VALUE
    last_to_first = [(a[-1], b[0]) for a, b in pairwise(by_epoch)]
    assert uniform_p_value(last_to_first, [(i, j) for i in range(4) for j in range(4)]) > P_VALUE


@pytest.mark.parametrize("bins", [2, 7, 1000])
def test_bins_are_uniform_and_those_of_neighbours_independent(bins):
    """False-alarm rate 2e-6 each."""
    n, place = 200_000, np.empty(200_000, dtype=int)
    for number, rows in enumerate(batches(BallsInBins(bins), n, bins)):
        place[list(rows)] = number
    assert stats.chisquare(np.bincount(place, minlength=bins)).pvalue > P_VALUE
    if bins < 10:
        pairs = bins * place[0::2] + place[1::2]
        assert stats.chisquare(np.bincount(pairs, minlength=bins**2)).pvalue > P_VALUE


# Values and errors


def test_equal_schedules_are_equal_and_what_is_printed_holds_no_key():
    assert drawn(Poisson(0.1)) == drawn(Poisson(0.1)) != drawn(Poisson(0.1), seed=1)
    assert len({drawn(Poisson(0.1)), drawn(Poisson(0.1)), drawn(Poisson(0.2))}) == 2
    schedule = drawn(ShuffledEpochs(10))
    schedule.rows(0)
    assert (
        repr(schedule)
        == f"Draws(sampling={schedule.sampling}, n=100, generator=<Generator: seeded>)"
    )


def test_a_schedule_cannot_be_changed():
    with pytest.raises(AttributeError):
        drawn(Poisson(0.1)).n = 5


@pytest.mark.parametrize("n", [0, -1, True, 2.0])
def test_a_number_of_rows_that_is_not_whole_is_refused(n):
    with pytest.raises((PlanError, TypeCheckError)):
        drawn(FullBatch(), n)


@pytest.mark.parametrize("step", [-1, True, 1.0, None, "0"])
def test_a_step_that_is_not_a_natural_number_is_refused(step):
    with pytest.raises(PlanError, match="step must be a whole number of at least 0; got"):
        draws._natural(step)
    with pytest.raises((PlanError, TypeCheckError)):
        drawn(FullBatch()).rows(step)


@pytest.mark.parametrize("scheme", [FixedSize, ShuffledEpochs, OnePass])
def test_a_batch_larger_than_the_data_is_refused(scheme):
    with pytest.raises(PlanError, match="batch of 11"):
        drawn(scheme(11), 10)


def test_a_schedule_ends_and_holds_rows_that_exist():
    with pytest.raises(PlanError, match="2 batches; there is none for step 2"):
        drawn(Recorded([[0], [1]])).rows(2)
    with pytest.raises(PlanError, match="row 9, but rows are 0 to 8"):
        drawn(Recorded([[0], [9]]), 9)


def test_a_scheme_that_cannot_be_drawn_is_refused(monkeypatch):
    monkeypatch.setattr("antiphon.plans.sampling.abstract_sampling._KINDS", {})

    class Unknown(AbstractSampling):
        name, own_coin = "unknown", False

        def check(self, n, steps):
            pass

        def expected_batch(self, n):
            return 1.0

        def participation(self, n, steps):
            return FixedEpochs(1, 1)

    with pytest.raises(PlanError, match="not known how to draw"):
        drawn(Unknown()).rows(0)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_block_is_the_batches_one_after_another(name):
    drawn, most = Draws(SCHEMES[name], 100, Generator.seeded(3)), {"one pass": 15}.get(name, 30)
    for start, stop in ((0, most), (3, 4), (5, 5), (6, 9), (7, most)):
        rows, offsets = drawn.block(start, stop)
        batches = [drawn.rows(step).tolist() for step in range(start, stop)]
        assert [rows[a:b].tolist() for a, b in pairwise(offsets)] == batches
        assert len(offsets) == stop - start + 1 and rows.dtype == np.int64
    rows, _ = drawn.block(0, 2)
    rows[:] = -1  # the caller's own
    assert drawn.rows(0).tolist() == drawn.block(0, 1)[0].tolist()


def test_a_block_of_single_records_is_an_order():
    rows, offsets = Draws(ShuffledEpochs(1), 50, Generator.seeded(3)).block(0, 50)
    assert sorted(rows.tolist()) == [*range(50)] and offsets.tolist() == [*range(51)]
    with pytest.raises(PlanError):
        Draws(OnePass(7), 100, Generator.seeded(3)).block(14, 16)
