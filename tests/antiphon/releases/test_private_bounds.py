import math
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Plan, certify
from antiphon.accounting import gaussian_epsilon, gaussian_mu
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.numerics import Generator
from antiphon.plans import FullBatch, GaussianRelease
from antiphon.releases import false_inclusion, mu_of_share, private_bounds, private_histogram
from antiphon.releases.histogram import CELLS, EDGES, OCTAVES

MODULE = import_module("antiphon.releases.private_bounds")

D = 30


def columns(kind, n, seed):
    """A table of 30 columns whose scales lie between 0.01 and 1000, as those of breast-cancer data do."""
    rng = np.random.default_rng(seed)
    scale = 10 ** rng.uniform(-2, 3, D)
    z = rng.standard_normal((n, D))
    return {
        "narrow": np.exp(0.5 * z) * scale,
        "wide": np.exp(z) * scale,
        "signed": z * scale,
        "binary": (z > 0).astype(float),
    }[kind]


def share_within(factor, kind, n, mu, repeats=4):
    """How many columns' bounds are wide enough and not too wide, against the 1 % and 99 % quantiles."""
    good = []
    for seed in range(repeats):
        X = columns(kind, n, seed)
        low, high, _ = private_bounds(X, mu=mu, generator=Generator.seeded(seed))
        least, most = np.quantile(X, [0.01, 0.99], axis=0)
        width = (high - low) / (most - least)
        overlaps = (low < np.median(X, axis=0)) & (np.median(X, axis=0) < high)
        good.append(overlaps & (1 / factor <= width) & (width <= factor))
    return np.mean(good)


def ends_within(factor, n, mu, repeats=4):
    """How many columns have both bounds within a factor of the quantiles."""
    good = []
    for seed in range(repeats):
        X = columns("narrow", n, seed)
        low, high, _ = private_bounds(X, mu=mu, generator=Generator.seeded(seed))
        least, most = np.quantile(X, [0.01, 0.99], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.abs(np.log([np.maximum(low, 0) / least, np.maximum(high, 0) / most]))
        good.append((ratios <= math.log(factor)).all(0))
    return np.mean(good)


def test_a_tenth_of_epsilon_1_finds_both_ends_of_most_lognormal_columns():
    assert ends_within(4, 569, mu_of_share(1.0, 569**-1.1, 0.1)) >= 0.8


@pytest.mark.parametrize(
    ("kind", "n", "epsilon", "least"),
    [
        ("narrow", 569, 1.0, 0.9),
        ("wide", 569, 1.0, 0.75),
        ("signed", 569, 4.0, 0.9),
        ("binary", 569, 4.0, 0.8),
        ("wide", 10_000, 1.0, 0.9),
        ("signed", 10_000, 1.0, 0.9),
    ],
)
def test_widths_are_within_a_factor_of_4_for_most_columns(kind, n, epsilon, least):
    assert share_within(4, kind, n, mu_of_share(epsilon, n**-1.1, 0.1)) >= least


def test_bounds_are_those_of_the_quantiles_cells_where_noise_is_small():
    X = columns("wide", 50_000, seed=0)
    low, high, _ = private_bounds(X, mu=20.0, generator=Generator.seeded(0))
    least, most = np.quantile(X, [0.01, 0.99], axis=0)
    slack = 1.05  # a quantile close to an edge may fall on its other side
    assert (low <= slack * least).all() and (least <= slack * 2 * low).all()
    assert (most <= slack * high).all() and (high <= slack * 2 * most).all()


@pytest.mark.parametrize(("n", "d"), [(50, 1), (50, 1000), (0, 3), (1, 1), (1_000_000, 2)])
@pytest.mark.parametrize("mu", [1e-6, 0.1, 100.0])
def test_all_sizes_give_usable_bounds(n, d, mu):
    X = np.random.default_rng(0).normal(size=(n, d))
    low, high, events = private_bounds(X, mu=mu, generator=Generator.seeded(0))
    assert low.shape == high.shape == (d,)
    assert np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()
    assert [event.mu for event in events] == [mu]


@given(
    st.lists(st.tuples(st.floats(), st.floats()), max_size=5),
    st.sampled_from([1e-9, 1e-2, 1.0, 1e3, 1e9]),
    st.integers(0, 99),
)
def test_no_data_make_it_fail(rows, mu, seed):
    X = np.array(rows).reshape(-1, 2)
    low, high, _ = private_bounds(X, mu=mu, generator=Generator.seeded(seed))
    assert (low < high).all() and np.isfinite([low, high]).all()


def test_what_is_not_finite_changes_nothing():
    X = columns("narrow", 100, seed=0)
    dirty = np.concatenate([X, np.full((5, D), np.nan), np.full((5, D), np.inf)])
    first, second = (private_bounds(x, mu=1.0, generator=Generator.seeded(3)) for x in (X, dirty))
    assert (first.low == second.low).all() and (first.high == second.high).all()


@pytest.mark.parametrize("relation", ["add-remove", "zero-out", "replace-one"])
def test_bounds_depend_on_the_data_only_through_the_audited_histogram(relation, monkeypatch):
    X, generator = columns("wide", 200, seed=0), Generator.seeded(0)
    noisy, _ = private_histogram(
        X, mu=0.9, relation=relation, generator=generator, what="bounds of the columns"
    )
    expected = private_bounds(X, mu=0.9, relation=relation, generator=generator)
    event = GaussianRelease(0.9, "bounds of the columns", relation)
    monkeypatch.setattr(MODULE, "private_histogram", lambda *_, **__: (noisy, event))
    found = private_bounds(None, mu=0.9, relation=relation)
    assert (found.low == expected.low).all() and (found.high == expected.high).all()
    assert found.events == expected.events == (event,)


def test_bounds_and_training_compose_exactly():
    epsilon, delta = 1.0, 1e-5
    events = private_bounds(columns("wide", 50, 0), mu=mu_of_share(epsilon, delta, 0.1)).events
    noise = 1 / (math.sqrt(0.9) * gaussian_mu(epsilon, delta))
    plan = Plan(
        n=50,
        sampling=FullBatch(),
        steps=1,
        mechanism=Independent(),
        noise_multiplier=noise,
        extra=events,
    )
    assert certify(plan, delta=delta).epsilon == pytest.approx(epsilon, rel=1e-6)
    alone = gaussian_epsilon(1 / noise, delta)
    assert alone < epsilon


def test_empty_cells_are_taken_in_as_seldom_as_is_claimed():
    noise = np.random.default_rng(0).standard_normal((4_000, CELLS))
    full, last = OCTAVES + 20, OCTAVES + 22
    noise[:, full : last + 1] += 1_000.0
    chosen = MODULE._best_runs(noise, 1.0)
    too_high = (CELLS - 1 - chosen[:, ::-1].argmax(1) > last).mean()
    too_low = chosen[:, :full].any(1).mean()
    # Standard error 0.0055. Upwards exactly as claimed; downwards zero and the other sign may join.
    assert too_high == pytest.approx(false_inclusion(), abs=0.025)
    assert too_low == pytest.approx(0.2, abs=0.03)
    octaves_too_many = CELLS - 1 - chosen[:, ::-1].argmax(1) - last
    assert (octaves_too_many > 1).mean() < 0.05 and (octaves_too_many > 2).mean() < 0.02


@given(st.integers(0, 200), st.floats(0.5, 1.0))
def test_the_chosen_cells_are_in_order_and_hold_the_coverage(seed, coverage):
    noisy = np.random.default_rng(seed).normal(size=(5, CELLS)) * 3
    noisy[:, 90:95] += 20
    chosen = MODULE._best_runs(noisy, 3.0)
    first, last = MODULE._trimmed(noisy, chosen, coverage)
    mass = np.where(chosen, noisy, 0)
    assert (first <= last).all() and chosen.any(1).all()
    for row, start, end in zip(mass, first, last, strict=True):
        assert row[start : end + 1].sum() >= coverage * row.sum() - 1e-9


def test_the_best_runs_are_the_best_of_all():
    rng = np.random.default_rng(0)
    noisy = rng.normal(size=(20, CELLS)) * 2 + 4 * (rng.random((20, CELLS)) < 0.1)
    chosen = MODULE._best_runs(noisy, 1.0)
    excess = noisy - MODULE._THRESHOLD
    for row, mask in zip(excess, chosen, strict=True):
        negative, positive = row[OCTAVES - 1 :: -1], row[OCTAVES + 1 :]
        best = max(row[OCTAVES], one_run(negative), one_run(positive))
        for start in range(OCTAVES):
            arms = [
                max(0.0, np.cumsum(arm[start:]).max() - MODULE._SIGN)
                for arm in (negative, positive)
            ]
            both = sum(arms) + max(row[OCTAVES], 0.0)
            best = max(best, both if both > 0 else -math.inf)
        sides = int(mask[:OCTAVES].any()) + int(mask[OCTAVES + 1 :].any())
        exact = row[mask].sum()
        assert best - 1e-9 <= exact <= best + sides * MODULE._SIGN + 1e-9


def one_run(row):
    return max(np.cumsum(row[start:]).max() for start in range(len(row)))


def test_wholly_empty_columns_get_some_bounds_among_the_edges():
    low, high, _ = private_bounds(np.empty((0, 4)), mu=1.0, generator=Generator.seeded(0))
    assert set(low) | set(high) <= set(EDGES)


@pytest.mark.parametrize("coverage", [0.0, 1.5, -1.0, math.nan])
def test_a_coverage_that_is_no_share_is_refused(coverage):
    with pytest.raises(PlanError, match="coverage is a share"):
        private_bounds(np.zeros((3, 1)), mu=1.0, coverage=coverage)


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan])
def test_a_share_of_nothing_or_all_is_refused(share):
    with pytest.raises(PlanError, match="share of the budget"):
        mu_of_share(1.0, 1e-5, share)
