"""Laws that hold across accountants: order, monotonicity, convexity."""

import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon as ap
from antiphon.accounting.correlated import moments
from antiphon.accounting.curve import ConvexProfile
from antiphon.accounting.independent.unamplified import account as gaussian
from antiphon.accounting.search.registry import best_account, open_routes
from antiphon.mechanisms import Banded, Independent, LambdaCGD, NuFTRL


def plan(sampling, mechanism, steps, noise, relation="add-remove", n=1000):
    return ap.Plan(
        n=n,
        sampling=sampling,
        steps=steps,
        mechanism=mechanism,
        noise_multiplier=noise,
        relation=relation,
    )


PLANS = [
    plan(ap.Poisson(0.05), Independent(), 30, 1.0),
    plan(ap.Poisson(0.05), LambdaCGD(0.5), 30, 2.0),
    plan(ap.Poisson(0.05), NuFTRL(0.05), 30, 4.0, "zero-out"),
    plan(ap.FixedSize(50), Independent(), 20, 2.0, "zero-out"),
    plan(ap.ShuffledEpochs(50), Independent(), 20, 2.0, "replace-one"),
    plan(ap.CyclicPoisson(0.2, 3), Banded((1.0, 0.5)), 30, 1.5),
    plan(ap.BallsInBins(5), LambdaCGD(0.5), 20, 2.0, "replace-one"),
    plan(ap.FullBatch(), LambdaCGD(0.5), 10, 8.0),
]


def exact(lam, rate, T, kappa, epsilon, points=121):
    """The larger divergence of the mixture pair, summed over all patterns on a grid."""
    axis = np.linspace(-6.5, 6.5 + 4 / kappa, points)
    x = np.stack(np.meshgrid(*[axis] * T, indexing="ij"), axis=-1).reshape(-1, T)
    C = LambdaCGD(lam).encoder(T) / kappa
    L = np.zeros(len(x))
    for y in product((0, 1), repeat=T):
        mean = C @ np.array(y)
        L += rate ** sum(y) * (1 - rate) ** (T - sum(y)) * np.exp(x @ mean - mean @ mean / 2)
    q = np.exp(-(x**2).sum(1) / 2) * ((axis[1] - axis[0]) / math.sqrt(2 * math.pi)) ** T
    factor = math.exp(epsilon)
    return max(np.sum(q * np.maximum(L - factor, 0)), np.sum(q * np.maximum(1 - factor * L, 0)))


@pytest.mark.parametrize("question", PLANS, ids=str)
def test_a_certified_curve_falls_and_is_convex_in_the_exponential(question):
    profile = ap.certify(question, 1e-2).profile
    grid = np.linspace(1.0, math.exp(4), 200)
    values = np.array([profile.delta(math.log(x)) for x in grid])
    assert (np.diff(values) <= 1e-12).all()
    assert (np.diff(values, 2) >= -1e-12).all()
    assert 0 <= values[-1] <= values[0] <= 1


@pytest.mark.parametrize("question", PLANS, ids=str)
def test_the_hull_is_below_every_route_and_the_best_of_them_is_quoted(question):
    certificate = ap.certify(question, 1e-3)
    accounts = open_routes(question).values()
    for account in accounts:
        assert certificate.epsilon <= account.profile.epsilon(1e-3) * (1 + 1e-9)
    for epsilon, delta in certificate.curve:
        routes = [account.profile.delta(epsilon) for account in accounts]
        if certificate.confidence is None and epsilon != certificate.epsilon:
            assert delta == pytest.approx(min(1.0, *routes))


def test_more_steps_rate_or_correlation_never_lower_the_exact_divergence():
    for kappa, epsilon in ((0.8, 0.5), (1.5, 0.2)):
        by_steps = [exact(0.5, 0.3, T, kappa, epsilon) for T in (1, 2, 3)]
        by_rate = [exact(0.5, r, 2, kappa, epsilon) for r in (0.1, 0.3, 0.6, 0.9, 1.0)]
        by_lambda = [exact(lam, 0.3, 2, kappa, epsilon) for lam in (0.0, 0.3, 0.6, 0.9)]
        for row in (by_steps, by_rate, by_lambda):
            assert all(a <= b + 1e-9 for a, b in pairwise(row))


@pytest.mark.parametrize("mechanism", [Independent(), LambdaCGD(0.5)])
def test_more_steps_or_a_higher_rate_never_lower_what_is_proved(mechanism):
    base = plan(ap.Poisson(0.02), mechanism, 20, 2.0)
    steps = [
        best_account(replace(base, steps=T), 1e-5).profile.epsilon(1e-5) for T in (5, 10, 20, 40)
    ]
    rates = [
        best_account(replace(base, sampling=ap.Poisson(r)), 1e-5).profile.epsilon(1e-5)
        for r in (0.01, 0.02, 0.05, 0.2)
    ]
    for row in (steps, rates):
        assert all(a <= b * (1 + 1e-3) for a, b in pairwise(row))


def test_more_correlation_never_lowers_what_is_proved():
    values = [
        best_account(plan(ap.Poisson(0.02), LambdaCGD(lam), 20, 2.0), 1e-5).profile.epsilon(1e-5)
        for lam in (0.01, 0.2, 0.5, 0.9)
    ]
    assert all(a <= b * (1 + 1e-3) for a, b in pairwise(values))


@pytest.mark.parametrize("mechanism", [Independent(), LambdaCGD(0.5), NuFTRL(0.1)])
def test_rate_one_is_the_gaussian_in_every_accountant(mechanism):
    question = plan(ap.Poisson(1.0), mechanism, 6, 8.0)
    truth = gaussian(question).profile
    accounts = {**open_routes(question)}
    if mechanism != Independent():
        accounts["moments"] = moments.account(question)
    for name, account in accounts.items():
        found = account.profile.epsilon(1e-5)
        # Rényi divergences lose a little on the way to δ.
        slack = 0.15 if name in ("rdp", "moments") else 2e-3
        assert truth.epsilon(1e-5) * (1 - 1e-6) <= found <= truth.epsilon(1e-5) * (1 + slack), name


@given(
    st.lists(st.tuples(st.floats(0, 6), st.floats(0, 1)), min_size=1, max_size=12),
    st.floats(0, 7),
)
def test_a_hull_is_the_largest_convex_curve_below_its_points(points, epsilon):
    """Against the definition: the least value of any chord between proved points."""
    points = [(round(e, 3), d) for e, d in points]
    profile = ConvexProfile.through(points)
    known = [(0.0, 1.0), *points]
    chords = [d for e, d in known if e <= epsilon]
    x = math.exp(epsilon)
    for (a, p), (b, q) in product(known, repeat=2):
        if a <= epsilon < b:
            share = (x - math.exp(a)) / (math.exp(b) - math.exp(a))
            chords.append(p + share * (q - p))
    assert profile.delta(epsilon) == pytest.approx(min(chords), abs=1e-9)


def test_a_hull_inverts_itself_and_bounds_attacks_like_its_curve():
    mu = 0.8
    curve = gaussian(plan(ap.FullBatch(), Independent(), 1, 1 / mu)).profile
    hull = ConvexProfile.through([(e, curve.delta(e)) for e in np.linspace(0, 8, 400)])
    for delta in (0.2, 1e-2, 1e-4):
        assert hull.delta(hull.epsilon(delta)) <= delta * (1 + 1e-9)
        assert hull.epsilon(delta) == pytest.approx(curve.epsilon(delta), rel=1e-2)
    for rate in (1e-3, 1e-2, 0.3):
        assert hull.true_positive(rate) == pytest.approx(curve.true_positive(rate), rel=1e-2)
        assert hull.true_positive(rate) >= curve.true_positive(rate) * (1 - 1e-9)
    assert hull.epsilon(1e-30) == math.inf
