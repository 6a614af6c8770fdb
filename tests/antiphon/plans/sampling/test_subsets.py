"""The draws, word for word, against slow ones; their laws, exactly, where they can be enumerated."""

from collections import Counter
from fractions import Fraction
from itertools import chain, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans.sampling import subsets
from antiphon.plans.sampling.subsets import _thresholds, below, bernoulli, order, subset

RATES = [0.99, 0.9, 0.5, 0.3, 0.25, 0.1, 0.004, 2.0**-30]
words = st.integers(0, 2**64 - 1)
rates = st.floats(0.001, 0.999)


def source(*first):
    """Words that begin as given and go on at random."""
    rest = Generator.seeded(0)

    def read(count):
        tail = rest.words(count, 0).numpy().view(np.uint64)
        return np.concatenate([np.array(first, dtype=np.uint64), tail])[:count]

    return read


# Poisson


def gap_thresholds(rate, count):
    """P(gap < k) × 2**64, rounded, by exact fractions."""
    return [round(2**64 * (1 - (1 - Fraction(rate)) ** k)) for k in range(1, count + 1)]


@pytest.mark.parametrize("rate", RATES)
def test_thresholds_are_exact_to_the_last_bit(rate):
    table = _thresholds(rate)
    assert len(table) == min(int(1 / rate), 2**16)
    assert table[:300].tolist() == gap_thresholds(rate, min(300, len(table)))
    last = round(2**64 * (1 - (1 - Fraction(rate)) ** min(len(table), 5000)))
    assert table[:5000][-1] == last


def law(rate, n):
    """The probability of each batch, counting the words of every gap."""
    table = _thresholds(rate).tolist()
    reach = len(table)

    def at_least(gap):
        return 1 - Fraction(table[gap - 1], 2**64) if gap else Fraction(1)

    def batches(start):
        left = n - start
        gaps = range(min(left, reach))
        ways = [(gap + 1, (start + gap,), at_least(gap) - at_least(gap + 1)) for gap in gaps]
        ways.append((len(gaps), (), at_least(len(gaps))))
        total = Counter()
        for passed, row, chance in ways if left else []:
            for rest, other in batches(start + passed).items():
                total[row + rest] += chance * other
        return total or {(): Fraction(1)}

    return batches(0)


@pytest.mark.parametrize("rate", RATES)
def test_every_batch_has_its_poisson_probability_up_to_the_stated_factor(rate, n=6):
    found = law(rate, n)
    assert len(found) == 2**n
    assert sum(found.values()) == 1
    for batch, probability in found.items():
        m, r = len(batch), Fraction(rate)
        truth = r**m * (1 - r) ** (n - m)
        assert abs(probability / truth - 1) <= Fraction(1, 2**61) * (m / r + n)


def walk(read, n, rate):
    """One word after the other: skip its gap and take a row, or skip ``len(table)`` rows."""
    table, rows, at, used = _thresholds(rate).tolist(), [], 0, 0
    while at < n:
        word = int(read(used + 1)[used])
        gap = sum(word >= threshold for threshold in table)
        if gap < len(table):
            rows.append(at + gap)
        at, used = at + min(gap + 1, len(table)), used + 1
    return [row for row in rows if row < n]


@given(st.lists(words, max_size=20), st.integers(1, 200), rates)
def test_gaps_in_bulk_are_those_of_one_word_after_the_other(first, n, rate):
    assert bernoulli(source(*first), n, rate).tolist() == walk(source(*first), n, rate)


@given(st.integers(1, 300), rates)
def test_a_word_at_its_threshold_starts_the_next_gap(n, rate):
    for k, threshold in enumerate(_thresholds(rate)[:5].tolist(), start=1):
        below_it = bernoulli(source(threshold - 1), n, rate).tolist()
        assert below_it[:1] == [k - 1] or n <= k - 1
        assert k - 1 not in bernoulli(source(threshold), n, rate).tolist()


@given(st.integers(0, 500), rates)
def test_more_words_are_fetched_until_the_gaps_reach_the_end(n, rate):
    assert bernoulli(lambda count: np.zeros(count, np.uint64), n, rate).tolist() == [*range(n)]
    assert len(bernoulli(lambda count: np.full(count, 2**64 - 1, np.uint64), n, rate)) == 0


@given(st.integers(1, 500), st.integers(1, 100), rates)
def test_rows_added_at_the_end_leave_the_others_as_they_were(n, more, rate):
    longer = bernoulli(source(), n + more, rate)
    assert bernoulli(source(), n, rate).tolist() == longer[longer < n].tolist()


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 2.0**-65, 1e-12])
def test_a_tiny_rate_gives_empty_batches(rate):
    assert len(bernoulli(source(), 100_000, rate)) == 0


def test_a_rate_of_one_and_the_largest_below_it_give_all_rows():
    for rate in (1.0, 1 - 2.0**-53):
        assert bernoulli(source(), 1000, rate).tolist() == [*range(1000)]


# Sets, orders, bins


@pytest.mark.parametrize("draw", [bernoulli, subset])
def test_the_number_of_words_fetched_at_a_time_changes_nothing(monkeypatch, draw):
    chosen = {bernoulli: 0.1, subset: 30}[draw]
    usual = draw(source(), 100, chosen)
    monkeypatch.setattr(subsets, "_growing", lambda _: chain(range(1, 300), [10_000]))
    assert draw(source(), 100, chosen).tolist() == usual.tolist()


@given(st.lists(words, max_size=30), st.integers(1, 60), st.data())
def test_a_small_set_is_the_first_distinct_numbers_and_a_large_one_the_rest(first, n, data):
    size = data.draw(st.integers(0, n))
    read, few = source(*first), min(size, n - size)
    numbers = dict.fromkeys(int(word) * n >> 64 for word in read(10_000))
    expected = set(list(numbers)[:few])
    if 2 * size > n:
        expected = set(range(n)) - expected
    assert subset(read, n, size).tolist() == sorted(expected)


def test_a_set_is_found_after_many_equal_words():
    assert len(subset(source(*[5] * 1000), 100, 50)) == 50


@given(st.lists(words, min_size=1, max_size=40))
def test_an_order_is_that_of_the_words(first):
    read, n = source(*first), len(first)
    assert order(read, n).tolist() == sorted(range(n), key=lambda i: (first[i], read(2 * n)[n + i]))


def test_equal_words_are_ordered_by_second_ones():
    for second in product((1, 2, 3), repeat=3):
        expected = sorted(range(3), key=lambda i: second[i])
        assert order(source(7, 7, 7, *second), 3).tolist() == expected


@given(st.lists(words), st.integers(1, 2**32))
def test_numbers_below_a_limit_are_the_integer_part_of_the_exact_product(given_words, limit):
    given_words += [0, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    numbers = below(np.array(given_words, dtype=np.uint64), limit)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [word * limit >> 64 for word in given_words]


def test_a_limit_that_would_overflow_is_refused():
    with pytest.raises(PlanError, match=r"at most 2\*\*32 .* got 4294967297"):
        below(np.zeros(1, dtype=np.uint64), 2**32 + 1)
