import math

import numpy as np
import pytest
from scipy.stats import binom

from antiphon.accounting.monte_carlo import confidence as monte_carlo
from antiphon.accounting.monte_carlo.confidence import (
    bernstein_upper,
    certify,
    chunks,
    hedged_lower,
    hedged_upper,
    kl_upper,
)
from antiphon.errors import PlanError

TRIALS, COUNT, FAILURE = 150, 150, 0.05
# A limit that keeps its promise misses more often than this once in a million tests.
ALLOWED = binom.isf(1e-6, TRIALS, FAILURE)
LAWS = {
    "rare ones": (0.01, lambda rng, n: (rng.random(n) < 0.01).astype(float)),
    "rare and small": (0.01, lambda rng, n: (rng.random(n) < 0.1) * rng.beta(1, 9, n)),
    "spread out": (0.5, lambda rng, n: rng.random(n)),
    "constant": (0.2, lambda _, n: np.full(n, 0.2)),
    "half ones": (0.5, lambda rng, n: (rng.random(n) < 0.5).astype(float)),
}


def hedged(x, failure):
    return hedged_upper(*np.unique(x, return_counts=True), failure)


LIMITS = {
    "KL": lambda x, failure: kl_upper(float(x.mean()), len(x), failure),
    "Bernstein": lambda x, failure: bernstein_upper(x.mean(), x.var(ddof=1), len(x), failure),
    "hedged": hedged,
}


def misses(limit, law, scale=1.0):
    """In how many of the trials the mean, times ``scale``, is above the limit."""
    mean, draw = LAWS[law]
    rng = np.random.default_rng(7)
    return sum(scale * mean > limit(draw(rng, COUNT), FAILURE) for _ in range(TRIALS))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", LIMITS)
def test_upper_limits_miss_no_more_often_than_they_say(name, law):
    assert misses(LIMITS[name], law) <= ALLOWED


def test_a_standard_error_is_not_a_limit_and_would_be_caught():
    def normal(x, _):
        return x.mean() + 1.645 * x.std(ddof=1) / math.sqrt(len(x))

    assert misses(normal, "rare ones") > ALLOWED


def test_a_limit_that_is_too_small_would_be_caught():
    def shrunk(x, failure):  # for half as many participations as there are
        return hedged(x / 2, failure)

    assert misses(shrunk, "spread out") > ALLOWED
    assert misses(hedged, "spread out", scale=1.15) > ALLOWED


@pytest.mark.parametrize("law", LAWS)
def test_lower_limits_miss_no_more_often_than_they_say(law):
    assert misses(lambda x, failure: 1 - hedged_lower(1 - x, failure), law) <= ALLOWED


def test_lower_limits_hold_for_unbounded_weights():
    rng = np.random.default_rng(8)
    draws = [rng.lognormal(-0.5, 1, 300) for _ in range(TRIALS)]  # mean 1
    assert sum(hedged_lower(x, FAILURE) > 1 for x in draws) <= ALLOWED
    assert np.median([hedged_lower(x, FAILURE) for x in draws[:100]]) > 0.5
    x = rng.exponential(size=10_000)
    assert 0.94 < hedged_lower(x, 1e-3) < x.mean()
    assert hedged_lower(1e-9 * x, 1e-3) == pytest.approx(1e-9 * hedged_lower(x, 1e-3), rel=1e-5)


def test_nothing_seen_has_closed_forms():
    n, failure = 10**6, 1e-6
    assert kl_upper(0.0, n, failure) == pytest.approx(1 - failure ** (1 / n), rel=1e-5)
    one_bet = (2 / failure) ** (1 / n) - 1  # the capital of a bet of 1, which has weight 1/2
    assert hedged_upper(np.zeros(1), np.array([n]), failure) == pytest.approx(one_bet, rel=1e-3)
    assert hedged_lower(np.zeros(9), failure) == 0


def test_all_ones_allow_no_limit_below_one():
    assert kl_upper(1.0, 100, 0.01) == 1
    assert hedged_upper(np.ones(1), np.array([100]), 0.01) == 1


def test_hedged_limit_is_the_tightest_for_small_contributions():
    """The table in the module, at 2e6 paths."""
    mean, n, failure = 1e-5, 2 * 10**6, 5e-7
    b = 2 / 0.12 - 2
    k = round(n * mean * (1 + b))
    x = 1 - (1 - (np.arange(k) + 0.5) / k) ** (1 / b)
    values, counts = np.append(x, 0.0), np.append(np.ones(k, int), n - k)
    assert hedged_upper(values, counts, failure) / mean == pytest.approx(1.83, abs=0.02)
    assert kl_upper(mean, n, failure) / mean == pytest.approx(2.73, abs=0.02)
    variance = float(np.sum(x**2)) / n - mean**2
    assert bernstein_upper(mean, variance, n, failure) / mean == pytest.approx(3.2, abs=0.02)


def test_limits_grow_with_the_contributions_and_shrink_with_the_failure():
    x = np.random.default_rng(0).random(200) / 2
    assert hedged(x, 0.01) < hedged(np.ceil(x * 64) / 64, 0.01)
    for limit in LIMITS.values():
        assert x.mean() < limit(x, 0.1) < limit(x, 0.01) < limit(x, 1e-6) <= 1
    assert hedged_lower(x, 1e-6) < hedged_lower(x, 0.01) < hedged_lower(x, 0.1) < x.mean()


def test_certify_rounds_up_and_shares_the_failure():
    def draw(rng, count):
        return np.stack([0.3 * (rng.random(count) < 0.01), np.zeros(count)])

    found = certify(draw, paths=20_000, seed=1, stream=0, failure=0.02)
    x = np.concatenate(list(chunks(draw, 20_000, 1, 0)), axis=1)[0]
    assert hedged(x, 0.01) <= found.remove < hedged(x + (x > 0) * 2e-5, 0.01)
    assert found.add == hedged(np.zeros(20_000), 0.01)
    assert (found.delta, found.direction) == (found.remove, "remove")
    assert (found.paths, found.failure) == (20_000, 0.02)


def test_chunks_do_not_depend_on_threads_and_report_progress(monkeypatch):
    def draw(rng, count):
        return rng.random(count)

    results, seen = [], []
    for cores in (1, 2, 5):
        monkeypatch.setattr(monte_carlo, "_cores", lambda cores=cores: cores)
        parts = chunks(draw, 1000, 3, 4, size=300, progress=lambda *a: seen.append(a))
        results.append(np.concatenate(list(parts)))
    assert all(np.array_equal(results[0], other) for other in results)
    assert seen == 3 * [(300, 1000), (600, 1000), (900, 1000), (1000, 1000)]
    assert len(np.unique(results[0])) == 1000
    others = [np.concatenate(list(chunks(draw, 1000, *key))) for key in ((3, 5), (4, 4))]
    assert not np.intersect1d(results[0], np.concatenate(others)).size


def test_errors_in_a_chunk_are_not_swallowed():
    def draw(rng, count):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        certify(draw, paths=10, seed=0, stream=0, failure=0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kl_upper(math.nan, 10, 0.1),
        lambda: kl_upper(1.1, 10, 0.1),
        lambda: kl_upper(0.1, 0, 0.1),
        lambda: kl_upper(0.1, 10, 0.0),
        lambda: bernstein_upper(0.1, math.nan, 10, 0.1),
        lambda: bernstein_upper(0.1, 0.1, 1, 0.1),
        lambda: hedged_upper(np.array([2.0]), np.array([1]), 0.1),
        lambda: hedged_upper(np.array([-0.1]), np.array([1]), 0.1),
        lambda: hedged_upper(np.array([math.nan]), np.array([1]), 0.1),
        lambda: hedged_lower(np.array([-1.0, 2.0]), 0.1),
        lambda: hedged_lower(np.array([math.nan, 2.0]), 0.1),
        lambda: hedged_lower(np.ones(3), 1.0),
        lambda: certify(lambda rng, n: np.zeros((2, n)), paths=0, seed=0, stream=0, failure=0.1),
        lambda: certify(lambda rng, n: np.zeros((2, n)), paths=9, seed=-1, stream=0, failure=0.1),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(PlanError):
        call()
