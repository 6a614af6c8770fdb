"""Audits by one run: the least mass against linear programmes, and coverage for honest and hostile runs."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog
from scipy.stats import binom

from antiphon.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from antiphon.audits import (
    AbstractCurve,
    GaussianCurve,
    PointCurve,
    epsilon_from_one_run,
    guesses_for,
    is_refuted,
    mu_from_one_run,
)
from antiphon.audits.one_run_bounds import least_mass, point_tail
from antiphon.errors import PlanError


class Polygon(AbstractCurve):
    """Several (ε, δ) at once: all that a linear programme can take of a curve."""

    def __init__(self, *points):
        self.points = points

    def inverse(self, probability):
        return max(PointCurve(*point).inverse(probability) for point in self.points)


def gaussian_polygon(mu):
    return Polygon(*((e, float(gaussian_delta(mu, e))) for e in (0.0, 0.2, 0.5, 1.0, 1.5, 2.5)))


def sums(c):
    """Rows i = 1 … c: what p gives to i right guesses, and to one less after a flip."""
    i = np.arange(1, c + 1)
    return np.eye(c + 1)[1:] * i[:, None], np.eye(c + 1)[:-1] * (c - i + 1)[:, None]


def least_mass_by_programme(points, reached, v, c, m):
    """Least mass of any p with P(at least v right) >= reached that obeys the tail inequalities."""
    right, wrong = sums(c)
    tails = np.triu(np.ones((c, c)))[:v]
    rows = [tails @ (right - math.exp(e) * wrong) for e, _ in points]
    limits = [np.full(v, m * delta) for _, delta in points]
    rows.append(-(np.arange(c + 1) >= v)[None].astype(float))
    limits.append([-reached])
    return linprog(np.ones(c + 1), np.vstack(rows), np.concatenate(limits)).fun


def largest_tail_by_programme(points, v, c, m):
    """Largest P(at least v right) of any law that obeys the inequalities for all sets of numbers.

    The sum over the worst set is the sum of positive parts, for each of which there is a variable.
    """
    right, wrong = sums(c)
    k = len(points)
    rows = [
        np.hstack([right - math.exp(e) * wrong, -np.kron(np.eye(k)[j], np.eye(c))])
        for j, (e, _) in enumerate(points)
    ]
    rows.append(np.hstack([np.zeros((k, c + 1)), np.kron(np.eye(k), np.ones(c))]))
    limits = np.concatenate([np.zeros(k * c), [m * delta for _, delta in points]])
    is_law = np.hstack([np.ones(c + 1), np.zeros(k * c)])[None]
    goal = -np.hstack([np.arange(c + 1) >= v, np.zeros(k * c)])
    return -linprog(goal, np.vstack(rows), limits, is_law, [1.0]).fun


settings_of_runs = st.integers(1, 12).flatmap(
    lambda c: st.tuples(st.integers(1, c), st.just(c), st.integers(c, 3 * c))
)


@given(settings_of_runs, st.floats(0.01, 0.6), st.floats(0.05, 1.5))
@settings(max_examples=30)
def test_the_lazy_law_has_the_least_mass(run, reached, mu):
    for curve in (gaussian_polygon(mu), Polygon((mu, 0.02)), Polygon((mu, 0.0))):
        exact = least_mass_by_programme(curve.points, reached, *run)
        lazy = least_mass(curve, reached, *run)
        assert lazy == pytest.approx(exact, rel=1e-6) or min(lazy, exact) > 1


@given(settings_of_runs, st.floats(0, 2), st.sampled_from([0.0, 1e-3, 0.02, 0.3]))
@settings(max_examples=30)
def test_the_tail_under_epsilon_and_delta_is_the_largest_that_all_sets_allow(run, epsilon, delta):
    exact = largest_tail_by_programme([(epsilon, delta)], *run)
    tail = point_tail(PointCurve(epsilon, delta), *run)
    assert tail == pytest.approx(exact, rel=1e-6)
    # The lazy law knows upper sets only: what it refutes, the tail refutes.
    assert least_mass(PointCurve(epsilon, delta), 0.99 * tail, *run) <= 1 + 1e-9


@pytest.mark.parametrize(("v", "c", "m"), [(16, 20, 20), (17, 20, 60), (24, 30, 300)])
def test_for_gaussians_all_sets_say_little_more_than_upper_sets(v, c, m):
    curve = gaussian_polygon(0.5)
    best = largest_tail_by_programme(curve.points, v, c, m)
    lazy = brentq(lambda a: least_mass(curve, a, v, c, m) - 1, 1e-9, 1.0)
    assert best <= lazy <= 1.35 * best


def test_pure_privacy_has_the_binomial_tail_which_randomised_response_reaches():
    for epsilon in (0.0, 0.7, 3.0):
        tail = point_tail(PointCurve(epsilon, 0.0), 15, 20, 20)
        assert tail == pytest.approx(binom.sf(14, 20, 1 / (1 + math.exp(-epsilon))))
        assert least_mass(PointCurve(epsilon, 0.0), tail, 15, 20, 20) < 1  # lazy is weaker


def scores_and_coins(rng, mu, runs, m):
    coins = rng.random((runs, m)) < 0.5
    return coins, rng.normal(size=(runs, m)) + mu * (coins - 0.5)


def right_guesses(coins, scores, c):
    """How many of the c largest scores, in absolute value, have the sign of their coin."""
    top = np.argsort(-abs(scores), axis=1)[:, :c]
    return np.take_along_axis((scores > 0) == coins, top, axis=1).sum(1)


@pytest.mark.parametrize(("m", "c"), [(50, 50), (200, 40), (200, 10)])
def test_independent_gaussian_canaries_are_overrated_at_most_as_often_as_stated(m, c, mu=0.5):
    """2000 runs at 80 %: more than 490 above the truth have probability below 1e-6."""
    rng = np.random.default_rng(1)
    counts = np.bincount(right_guesses(*scores_and_coins(rng, mu, 2000, m), c), minlength=c + 1)
    bounds = np.array([mu_from_one_run(v, c, m, 0.8) for v in range(c + 1)])
    assert binom.sf(490, 2000, 0.2) < 1e-6
    assert counts[bounds > mu].sum() <= 490
    assert counts[bounds > 0].sum() > 490  # so does a mechanism without any leak


def is_overrated(curve, law, c, m, confidence):
    """Exact probability with which a curve that holds is refuted."""
    return sum(float(law[v]) for v in range(c + 1) if is_refuted(curve, v, c, m, confidence))


@pytest.mark.parametrize("delta", [0.0, 0.001, 0.01, 0.04])
def test_a_mechanism_that_seldom_reveals_everything_is_not_overrated(delta, epsilon=0.5):
    for c, confidence in [(1, 0.5), (10, 0.95), (40, 0.95), (40, 0.99)]:
        law = (1 - delta) * binom.pmf(np.arange(c + 1), c, 1 / (1 + math.exp(-epsilon)))
        law[c] += delta
        assert is_overrated(PointCurve(epsilon, delta), law, c, c, confidence) <= 1 - confidence


def test_forgetting_delta_or_the_canaries_that_were_not_guessed_would_overrate():
    delta, c, confidence = 0.04, 40, 0.97
    law = (1 - delta) * binom.pmf(np.arange(c + 1), c, 0.5)
    law[c] += delta
    assert is_overrated(PointCurve(0.0, delta), law, c, c, confidence) <= 1 - confidence
    assert is_overrated(PointCurve(0.0, 0.0), law, c, c, confidence) > 1 - confidence
    # One coin of m, drawn at random, is revealed: (0, 1/m)-DP, and one guess is always right.
    m, always = 20, [0.0, 1.0]
    assert is_overrated(PointCurve(0.0, 1 / m), always, 1, m, 0.45) == 0
    assert is_overrated(PointCurve(0.0, 1 / m), always, 1, 1, 0.45) == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_mechanism_beats_the_inequalities(seed, m=3):
    """Random tables of output probabilities and guesses, with every probability counted out."""
    rng = np.random.default_rng(seed)
    c, outputs = int(rng.integers(1, m + 1)), 6
    coins = np.array(list(product((0, 1), repeat=m)))
    table = rng.dirichlet(np.full(outputs, rng.choice([0.1, 1.0])), size=len(coins))
    law = np.zeros(c + 1)
    for output in range(outputs):
        weight = table[:, output] @ (2.0 * coins - 1)  # what the output says of each coin
        guessed = np.argsort(-abs(weight))[:c]
        for row, probabilities in zip(coins, table, strict=True):
            law[((weight > 0) == row)[guessed].sum()] += probabilities[output] / len(coins)
    points = [(e, profile(table, coins, e)) for e in (0.0, 0.5, 1.0, 2.0, 4.0)]
    for v in range(1, c + 1):
        reached = law[v:].sum()
        assert least_mass(Polygon(*points), reached, v, c, m) <= 1 + 1e-9
        for e, delta in points:
            assert delta >= 1 or reached <= point_tail(PointCurve(e, delta), v, c, m) + 1e-12


def profile(table, coins, epsilon):
    """Smallest δ of a table of output probabilities, over all flips of one coin."""
    return max(
        float(np.maximum(table[a] - math.exp(epsilon) * table[b], 0).sum())
        for a, b in product(range(len(coins)), repeat=2)
        if abs(coins[a] - coins[b]).sum() == 1
    )


@pytest.mark.parametrize("rare", [0.001, 0.02, 0.1])
@pytest.mark.parametrize("loud", [1.0, 3.0])
def test_a_gaussian_curve_is_safe_from_mechanisms_that_are_seldom_loud(rare, loud, c=30):
    """All coins by randomised response with ε = loud, or with probability 1 − rare nothing at all."""
    e = np.linspace(0, loud, 200)
    profile = rare * (math.exp(loud) - np.exp(e)) / (1 + math.exp(loud))
    mu = brentq(lambda x: (gaussian_delta(x, e) - profile).min() - 1e-12, 1e-3, 10)
    i = np.arange(c + 1)
    law = rare * binom.pmf(i, c, 1 / (1 + math.exp(-loud))) + (1 - rare) * binom.pmf(i, c, 0.5)
    for confidence in (0.5, 0.9, 0.95, 0.99, 0.999):
        assert is_overrated(GaussianCurve(mu), law, c, c, confidence) <= 1 - confidence


@given(settings_of_runs, st.floats(0.5, 0.99), st.floats(0, 0.1))
@settings(max_examples=15)
def test_bounds_are_monotone(run, confidence, delta):
    v, c, m = run
    for bound in (
        mu_from_one_run,
        lambda v, c, m, confidence: epsilon_from_one_run(v, c, m, delta, confidence),
    ):
        here = bound(v, c, m, confidence)
        slack = 1e-8 * (1 + here)
        assert bound(v - 1, c, m, confidence) <= here + slack
        assert bound(v, c, m, (1 + confidence) / 2) <= here + slack
        assert bound(v, c, m + 5, confidence) >= 0
    assert epsilon_from_one_run(v, c, m, 0.0, confidence) >= epsilon_from_one_run(
        v, c, m, delta, confidence
    )


@given(settings_of_runs, st.floats(0.5, 0.99))
@settings(max_examples=15)
def test_a_bound_is_refuted_and_what_is_above_it_is_not(run, confidence):
    mu = mu_from_one_run(*run, confidence)
    assert mu == 0 or is_refuted(GaussianCurve(mu), *run, confidence)
    assert not is_refuted(GaussianCurve(mu + 1e-6), *run, confidence)
    epsilon = epsilon_from_one_run(*run, 1e-3, confidence)
    assert epsilon == 0 or is_refuted(PointCurve(epsilon, 1e-3), *run, confidence)
    assert not is_refuted(PointCurve(epsilon + 1e-6, 1e-3), *run, confidence)


@pytest.mark.parametrize(("epsilon", "share"), [(1, 0.65), (4, 0.7)])
def test_a_hundred_thousand_canaries_find_most_of_epsilon(epsilon, share, m=100_000):
    mu = gaussian_mu(epsilon, 1e-5)
    c = guesses_for(m, mu)
    assert 400 <= c <= 3000
    right = right_guesses(*scores_and_coins(np.random.default_rng(2), mu, 5, m), c)
    found = [gaussian_epsilon(mu_from_one_run(int(v), c, m, 0.95), 1e-5) for v in right]
    assert max(found) <= epsilon  # the bound is far enough below for all of 5 runs
    assert np.median(found) >= share * epsilon


def test_the_number_of_guesses_is_nearly_the_best(mu=1.0, m=1000):
    coins, scores = scores_and_coins(np.random.default_rng(3), mu, 25, m)

    def mean_bound(c):
        right = right_guesses(coins, scores, c).tolist()
        bounds = {v: mu_from_one_run(v, c, m, 0.95) for v in set(right)}
        return np.mean([bounds[v] for v in right])

    assert mean_bound(guesses_for(m, mu)) >= 0.93 * max(map(mean_bound, (10, 50, 200, 700)))
    assert guesses_for(1, mu) == 1


def test_extreme_outcomes_have_bounds():
    m = 100_000
    assert mu_from_one_run(0, 10, m, 0.95) == epsilon_from_one_run(0, 10, m, 1e-5, 0.95) == 0.0
    assert mu_from_one_run(m, m, m, 0.95) == pytest.approx(3.409242, rel=1e-5)
    assert epsilon_from_one_run(m, m, m, 0.0, 0.95) == pytest.approx(
        -math.log(0.05 ** (-1 / m) - 1), rel=1e-6
    )
    assert is_refuted(
        PointCurve(0.0, 1e-9), m - 1, m, m, 0.95
    )  # its tail is below the smallest float
    assert not is_refuted(PointCurve(9.0, 1e-9), 1, m, m, 0.95)
    assert epsilon_from_one_run(10, 10, 1000, 0.5, 0.95) == 0.0


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ((6, 5, 10), "right must be a whole number from 0 to guesses = 5; got 6"),
        ((1, 11, 10), "guesses must be a whole number from 0 to canaries = 10; got 11"),
        ((0, 0, 10), "guesses must be a whole number of at least 1; got 0"),
        ((1, 1, 0), "canaries must be a whole number of at least 1; got 0"),
    ],
)
def test_counts_that_cannot_be_are_refused(run, message):
    with pytest.raises(PlanError, match=message):
        mu_from_one_run(*run, 0.95)
    with pytest.raises(PlanError, match=message):
        epsilon_from_one_run(*run, 1e-5, 0.95)


def test_other_values_without_a_meaning_are_refused():
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(PlanError, match="confidence must lie strictly between 0 and 1"):
            is_refuted(GaussianCurve(1.0), 1, 2, 3, confidence)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(PlanError, match=r"below 1; got .* give that one, or 0"):
            epsilon_from_one_run(1, 2, 3, delta, 0.95)
    for value in (-1.0, math.inf, math.nan):
        with pytest.raises(PlanError, match="μ must be finite and non-negative"):
            GaussianCurve(value)
        with pytest.raises(PlanError, match="ε must be finite and non-negative"):
            PointCurve(value, 0.0)
    with pytest.raises(PlanError, match="mu must be positive"):
        guesses_for(10, 0.0)
