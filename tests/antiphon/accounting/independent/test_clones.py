"""Clones: exact sums against enumeration, and the Gaussian bound against what shuffling really hides."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from antiphon.accounting.independent.clones import _excess, clones_delta, gaussian_clones_delta
from antiphon.accounting.independent.gaussian import gaussian_delta
from antiphon.errors import PlanError


def hockey_stick(P, Q, epsilon):
    """Of two laws given as dictionaries."""
    return sum(max(0.0, P[x] - math.exp(epsilon) * Q.get(x, 0.0)) for x in P)


def enumerated(reports, local_epsilon, epsilon, order=(0, 1)):
    """By listing every clone and its side, as the theorem is stated."""
    clone, q = math.exp(-local_epsilon), 1 / (1 + math.exp(-local_epsilon))
    laws = {}, {}
    for kinds in product((0, 1, None), repeat=reports - 1):
        weight = math.prod(1 - clone if kind is None else clone / 2 for kind in kinds)
        zeros, ones = kinds.count(0), kinds.count(1)
        for own, chance in ((1, q), (0, 1 - q)):
            for law, zero in zip(laws, (own, 1 - own), strict=True):
                key = zeros + zero, ones + 1 - zero
                law[key] = law.get(key, 0.0) + weight * chance
    return hockey_stick(laws[order[0]], laws[order[1]], epsilon)


def randomised_response(reports, local_epsilon, epsilon):
    """The truth for binary randomised response, all others with the value 1: the number of ones."""
    q = 1 / (1 + math.exp(-local_epsilon))
    others = binom.pmf(np.arange(-1, reports + 1), reports - 1, q)
    one, zero = (r * others[:-1] + (1 - r) * others[1:] for r in (q, 1 - q))
    scale = math.exp(epsilon)
    return max(np.maximum(a - scale * b, 0).sum() for a, b in ((one, zero), (zero, one)))


@pytest.mark.parametrize("reports", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("local_epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3, 0.9, 2.5])
def test_clones_equal_enumeration_in_both_directions(reports, local_epsilon, epsilon):
    found = clones_delta(reports, local_epsilon, epsilon)
    for order in ((0, 1), (1, 0)):
        true = enumerated(reports, local_epsilon, epsilon, order)
        assert true - 1e-15 <= found <= true * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("reports", [2, 30, 1000])
@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
def test_clones_bound_randomised_response(reports, local_epsilon):
    for epsilon in (0.0, 0.01, 0.1, 0.4):
        true = randomised_response(reports, local_epsilon, epsilon)
        assert clones_delta(reports, local_epsilon, epsilon) >= true * (1 - 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.110189217963), (0.2, 0.043004477335), (0.6, 0.002556050681)]
)
def test_acceptance_relu_5_delta_of_thirty_reports(epsilon, delta):
    assert clones_delta(30, 1.0, epsilon) == pytest.approx(delta, abs=2e-11)


@pytest.mark.parametrize(
    ("reports", "local_epsilon", "epsilon"),
    [(10**5, 4.0, 0.169770), (10**4, 1.0, 0.053005), (10**4, 0.5, 0.020401)],
)
def test_acceptance_relu_5_epsilon_at_one_in_a_million(reports, local_epsilon, epsilon):
    found = brentq(lambda e: clones_delta(reports, local_epsilon, e) - 1e-6, 0, 1, xtol=1e-12)
    assert found == pytest.approx(epsilon, abs=6e-7)
    if reports == 10**5:
        assert 0.167539 <= found <= 0.172791  # the published bracket


def test_pure_clones_are_ordered():
    assert clones_delta(1, 1.0, 0.0) == pytest.approx(math.tanh(0.5))
    assert clones_delta(100, 1.0, 1.0) == 0
    falls = [
        [clones_delta(n, 1.0, 0.1) for n in (1, 2, 5, 30, 1000, 10**6)],
        [clones_delta(1000, e, 0.1) for e in (8.0, 3.0, 1.0, 0.3)],
        [clones_delta(1000, 2.0, e) for e in np.linspace(0, 1.9, 40)],
    ]
    assert all((np.diff(row) < 0).all() for row in falls)


# --- Gaussian clones


def mean_excess(reports, p, own, a):
    """E[(ΣT/(C + 1) - a)₊] by repeated convolution of T on a fine lattice, and a sum over C."""
    w = np.linspace(-9 - own, 9 + own, 200_001)
    density = (norm.pdf(w, own / 2) + norm.pdf(w, -own / 2)) / 2
    cells = math.ceil(max(500, 200 / own))
    index = np.rint(cells * np.tanh(own * w / 2)).astype(int) + cells
    law = np.bincount(index, density * (w[1] - w[0]), 2 * cells + 1)
    total, whole = 0.0, law
    for m in range(1, reports + 1):
        x = np.linspace(-m, m, len(whole))
        total += binom.pmf(m - 1, reports - 1, p) * np.sum(np.maximum(x / m - a, 0) * whole)
        whole = np.convolve(whole, law)
    return total


def oracle(reports, own, apart, epsilon):
    """The theorem at a grid of ε₀."""
    locals_ = np.linspace(0.05, apart * (apart / 2 + 7), 16)
    values = [
        mean_excess(reports, math.exp(-e), own, math.tanh(epsilon / 2))
        + (reports - 1) * math.exp(-e) * float(gaussian_delta(apart, e))
        for e in locals_
    ]
    return min(float(gaussian_delta(own, epsilon)), (1 + math.exp(epsilon)) * min(values))


@pytest.mark.parametrize(
    ("reports", "own", "apart"), [(2, 0.5, 0.5), (7, 0.2, 0.4), (7, 0.1, 0.1), (7, 1.0, 1.0)]
)
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.4])
def test_gaussian_clones_equal_the_slow_sum(reports, own, apart, epsilon):
    found, slow = (
        gaussian_clones_delta(reports, own, apart, epsilon),
        oracle(reports, own, apart, epsilon),
    )
    assert 0.9 * slow < found < 1.1 * slow  # their choices of ε₀ differ


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("own", [0.1, 0.5, 2.0])
def test_the_sum_by_fourier_transform_equals_the_slow_sum(p, own):
    for epsilon in (0.02, 0.3):
        a = math.tanh(epsilon / 2)
        fast, slow = _excess(9, p, own, a)[0] / (9 * p), mean_excess(9, p, own, a)
        assert slow * (1 - 1e-4) < fast < slow * 1.005


def shuffled(reports, sigma, epsilon, others, record, other_record, seed, draws=50_000):
    """A lower confidence limit of the true δ, wrong with probability 1e-9 [Hoeffding63].

    All others have the gradient ``others``, so that the likelihood ratio of an order is that of one report.
    The place of the record is in all its orders alike: no need to draw it.
    """
    z = others + sigma * np.random.default_rng(seed).standard_normal((draws, reports))
    z[:, 0] += record - others

    def likelihood(mean):
        return np.exp(((z - others) ** 2 - (z - mean) ** 2) / (2 * sigma**2)).mean(axis=1)

    gain = np.maximum(1 - math.exp(epsilon) * likelihood(other_record) / likelihood(record), 0)
    return gain.mean() - math.sqrt(math.log(1e9) / (2 * draws))


@pytest.mark.parametrize("reports", [2, 8, 30])
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_the_bound_is_above_what_an_attack_reaches(reports, sigma):
    # 6 × 5 × 3 = 90 limits: a false alarm, under other seeds, has probability below 1e-7.
    cases = [(-1, 1, -1), (-1, -1, 1), (0, 1, -1), (-1, 1, 0), (-1, 0, 1)]
    for i, (others, record, other_record) in enumerate(cases):
        own = abs(record - other_record) / sigma
        for epsilon in (0.05, 0.2, 0.5):
            reached = shuffled(reports, sigma, epsilon, others, record, other_record, seed=i)
            assert gaussian_clones_delta(reports, own, 2 / sigma, epsilon) >= reached


def test_the_attack_would_notice_a_bound_at_half_the_distance():
    assert shuffled(8, 1.0, 0.2, -1, 1, -1, seed=0) > gaussian_clones_delta(8, 1.0, 1.0, 0.2)


def test_others_hide_less_the_further_away_they_may_be():
    # Zero-out moves a record by 1, but the others are up to 2 away from it.
    near, far = (gaussian_clones_delta(1000, 0.5, apart, 0.05) for apart in (0.5, 1.0))
    assert far > 2 * near


def adaptive(reports, sigma, epsilon, seed, draws=50_000):
    """The same limit where every gradient points along the sign of the release before it."""
    rng = np.random.default_rng(seed)
    place = rng.integers(reports, size=draws)
    ratio = np.zeros((2, draws))
    before = np.ones(draws)
    for t in range(reports):
        away = np.sign(before)
        z = np.where(place == t, away, -away) + sigma * rng.standard_normal(draws)
        for b, mean in enumerate((away, 0.0)):
            ratio[b] += np.exp(((z + away) ** 2 - (z - mean) ** 2) / (2 * sigma**2))
        before = z
    gain = np.maximum(1 - math.exp(epsilon) * ratio[1] / ratio[0], 0)
    return gain.mean() - math.sqrt(math.log(1e9) / (2 * draws))


def test_the_bound_holds_for_gradients_that_answer_to_releases():
    for epsilon in (0.05, 0.3):
        reached = adaptive(20, 1.5, epsilon, seed=1)
        assert 0.005 < reached <= gaussian_clones_delta(20, 1 / 1.5, 2 / 1.5, epsilon)


def test_gaussian_clones_are_ordered():
    falls = [
        [gaussian_clones_delta(n, 0.5, 0.5, 0.1) for n in (1, 10, 100, 1000, 10**4)],
        [gaussian_clones_delta(1000, mu, mu, 0.1) for mu in (2.0, 1.0, 0.5, 0.25)],
        [gaussian_clones_delta(1000, own, 1.0, 0.1) for own in (1.0, 0.7, 0.5, 0.2)],
        [gaussian_clones_delta(1000, 0.5, apart, 0.1) for apart in (2.0, 1.0, 0.7, 0.5)],
        [gaussian_clones_delta(1000, 0.5, 0.5, e) for e in np.linspace(0, 0.5, 30)],
    ]
    assert all((np.diff(row) < 0).all() for row in falls)


def test_gaussian_clones_never_cost_more_than_no_shuffling_and_do_not_fail():
    rng = np.random.default_rng(7)
    for _ in range(200):
        reports, noise = int(10 ** rng.uniform(0, 6)), 10 ** rng.uniform(-1.3, 3)
        own, epsilon = rng.choice([1, 2]) / noise, 10 ** rng.uniform(-4, 1.3)
        found = gaussian_clones_delta(reports, own, 2 / noise, epsilon)
        assert 0 <= found <= gaussian_delta(own, epsilon)


def test_what_is_not_a_number_of_reports_or_a_distance_is_refused():
    for call, word in (
        (lambda: clones_delta(0, 1.0, 0.1), "reports"),
        (lambda: clones_delta(10, 0.0, 0.1), "ε₀"),
        (lambda: clones_delta(10, 1.0, -0.1), "ε"),
        (lambda: gaussian_clones_delta(10, 1.0, 0.5, 0.1), "own <= apart"),
        (lambda: gaussian_clones_delta(10, 0.0, 0.5, 0.1), "positive"),
    ):
        with pytest.raises(PlanError, match=word):
            call()
