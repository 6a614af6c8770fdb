"""The moments accountant against enumeration, quadrature, dp-accounting and the filter's lower bound."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import comb
from scipy.stats import norm

from antiphon.accounting.correlated import conditional_composition as conditional
from antiphon.accounting.correlated import conditioned, moments
from antiphon.accounting.correlated.lambda_pair import LambdaPair
from antiphon.accounting.correlated.moments import account, least_noise, log_moment
from antiphon.accounting.independent import pld
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Banded, Dense, Honaker, Independent, LambdaCGD, NuFTRL
from antiphon.plans import FixedSize, GaussianRelease, Plan, Poisson, PureRelease


def plan(mechanism, rate=0.3, steps=3, noise=1.5, **other):
    return Plan(
        n=1000,
        sampling=Poisson(rate),
        steps=steps,
        mechanism=mechanism,
        noise_multiplier=noise,
        **other,
    )


def encoder(rng, T):
    C = np.tril(rng.uniform(-1, 1, (T, T)) * rng.uniform(0, 1, (T, T)), -1)
    return C + np.diag(rng.uniform(0.5, 1.5, T))


def log_ratio(C, rate, kappa, x):
    """log dP/dQ at rows of x (in units of κ) by the sum over all 2^T patterns."""
    y = np.array(list(product((0, 1), repeat=len(C))))
    means = y @ np.abs(C).T / kappa
    weights = np.log(np.where(y, rate, 1 - rate)).sum(axis=1)
    return np.logaddexp.reduce(x @ means.T - (means**2).sum(1) / 2 + weights, axis=1)


def grid(T, points, reach):
    """Points and their weights under the standard normal law, for the trapezoidal rule."""
    axis = np.linspace(-8, reach, points)
    x = np.stack(np.meshgrid(*[axis] * T, indexing="ij"), axis=-1).reshape(-1, T)
    q = np.exp(-(x**2).sum(1) / 2) * ((axis[1] - axis[0]) / math.sqrt(2 * math.pi)) ** T
    return x, q


@settings(max_examples=25)
@given(
    T=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    rate=st.floats(0.01, 0.95),
    kappa=st.floats(0.6, 6),
)
def test_certified_is_above_the_truth_in_both_directions(T, seed, rate, kappa):
    C = encoder(np.random.default_rng(seed), T)
    wanted = plan(Dense(C), rate, T, kappa)
    logs = moments._log_moments(wanted, moments._columns(wanted), moments._ORDERS)
    x, q = grid(T, {1: 4001, 2: 500, 3: 70}[T], 8 + 3 / kappa)
    L = np.exp(log_ratio(C, rate, kappa, x))
    for epsilon in (0.01, 0.1, 0.5, 1.5):
        f = math.exp(epsilon)
        true = np.sum(q * np.maximum(L - f, 0)), np.sum(q * np.maximum(1 - f * L, 0))
        both = logs + moments._factor(moments._ORDERS, epsilon)
        assert (np.exp(both.min(axis=1)) >= np.array(true) - 1e-6).all()


@given(T=st.integers(1, 7), seed=st.integers(0, 999), rate=st.floats(0.01, 0.99))
def test_the_likelihood_ratio_is_nearly_a_product_for_every_release(T, seed, rate):
    rng = np.random.default_rng(seed)
    C, kappa = encoder(rng, T), rng.uniform(0.5, 5)
    x = rng.standard_normal((20, T)) + rng.uniform(-2, 5, (20, 1))
    G = np.abs(C).T @ np.abs(C) / kappa**2
    g = x @ np.abs(C) / kappa - np.diag(G) / 2
    log_l = np.logaddexp(math.log1p(-rate), math.log(rate) + g)
    w = rate * np.exp(g - log_l)
    rho = G.sum(axis=1) - np.diag(G)
    exact = log_ratio(C, rate, kappa, x)
    assert (log_l.sum(axis=1) >= exact - 1e-9).all()
    assert ((log_l - rho * w**2 / 2).sum(axis=1) <= exact + 1e-9).all()


@pytest.mark.parametrize("order", [1.3, 4.0, 12.0, -0.5, -3.0, -10.0])
@pytest.mark.parametrize("kappa", [1.5, 4.0])
def test_moments_are_above_those_of_two_steps_and_near(order, kappa, rate=0.1):
    C = np.array([[1.0, 0.0], [0.7, 1.0]])
    x, q = grid(2, 900, 8 + 2.5 * abs(order) / kappa)
    true = np.log(np.sum(q * np.exp(order * log_ratio(C, rate, kappa, x))))
    wanted = plan(Dense(C), rate, 2, kappa)
    row, other = (0, order - 1) if order > 0 else (1, -order)
    found = moments._log_moments(wanted, moments._columns(wanted), np.array([other]))[row, 0]
    assert true <= found
    if 3 <= abs(order) <= kappa:  # for orders near 1 both are nearly 0
        assert found < 2 * true


@given(rate=st.floats(1e-3, 1), mu=st.floats(0.05, 3), order=st.integers(2, 30))
def test_positive_moments_are_those_of_the_binomial_formula(rate, mu, order):
    k = np.arange(order + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.log(comb(order, k)) + k * math.log(rate) + k * (k - 1) * mu**2 / 2
        terms += np.where(k < order, (order - k) * np.log1p(-rate), 0.0)
    exact = np.logaddexp.reduce(terms)
    assert exact <= log_moment(order, rate, mu) <= exact + 1e-8


@given(
    rate=st.floats(1e-3, 0.99),
    mu=st.floats(0.05, 2),
    rho=st.floats(0, 3),
    order=st.floats(0.1, 40),
)
def test_negative_moments_are_those_of_quadrature(rate, mu, rho, order):
    def integrand(x):
        ratio = rate * math.exp(mu * x - mu**2 / 2)
        total = 1 - rate + ratio
        log = -order * (math.log(total) - rho * (ratio / total) ** 2 / 2)
        return math.exp(log - x * x / 2) / math.sqrt(2 * math.pi)

    ends = -12 - order * mu, 12 + order * mu * rho
    exact = quad(integrand, *ends, points=np.linspace(*ends, 60), limit=500, epsabs=0)[0]
    assert log_moment(-order, rate, mu, rho) == pytest.approx(math.log(exact), abs=1e-7)


def test_holder_for_normal_variables_holds_and_is_an_equality_for_exponentials():
    rng = np.random.default_rng(3)
    C = np.abs(encoder(rng, 4))
    G = C.T @ C
    p = G.sum(axis=1) / np.diag(G)
    R = G / np.sqrt(np.outer(np.diag(G), np.diag(G)))
    assert np.linalg.eigvalsh(np.diag(p) - R).min() > -1e-12
    a = np.sqrt(
        np.diag(G)
    )  # f_s = exp(a_s X_s): E Π f_s = exp(aRa/2), and the bound is exp(Σ p_s a_s²/2)
    assert a @ R @ a == pytest.approx(p @ a**2)
    z = rng.standard_normal((200_000, 4)) @ np.linalg.cholesky(R).T
    left = np.maximum(z, 0).prod(axis=1)  # f_s = max(X_s, 0)
    x = np.linspace(0, 12, 100_001)
    right = math.prod(float(np.sum(x**k * norm.pdf(x)) * 1.2e-4) ** (1 / k) for k in p)
    assert left.mean() + 5 * left.std() / math.sqrt(len(left)) < right


@pytest.mark.parametrize("mechanism", [Independent(), LambdaCGD(0.0), Banded((-1.0,))])
def test_independent_noise_gives_the_renyi_accountant(mechanism, rate=0.01, T=500, noise=1.3):
    orders = moments._ORDERS
    found = account(plan(mechanism, rate, T, noise)).profile
    renyi = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(
        rate, noise, tuple(1 + orders)
    )
    log = T * orders * np.array(renyi)
    for epsilon in (0.5, 1.0, 3.0):
        theirs = math.exp(min(log + moments._factor(orders, epsilon)))
        assert found.delta(epsilon) == pytest.approx(min(1, theirs), rel=1e-3)
        assert pld.account(plan(mechanism, rate, T, noise)).profile.delta(epsilon) < theirs + 1e-12


def test_noise_for_a_thousand_steps_is_close_to_the_least_possible():
    wanted = plan(LambdaCGD(0.5), 0.01, 1000, None)
    noise = least_noise(wanted, 1.0, 1e-5)
    assert account(wanted.with_noise(noise)).profile.delta(1.0) <= 1e-5
    assert account(wanted.with_noise(0.999 * noise)).profile.delta(1.0) > 1e-5
    assert noise < 2.87 < 0.2 * conditioned.least_noise(wanted, 1.0, 1e-5)
    # Nothing is private with 15 % less noise: an attack would find more.
    low = LambdaPair(0.5, 0.01, 1000, noise / 1.15).lower_bound(1.0, seed=1, paths=10_000)
    assert low > 1e-5


@pytest.mark.parametrize(
    "mechanism", [LambdaCGD(0.7), Banded.square_root(4), Banded((1.0, -0.3, 0.2))]
)
def test_it_needs_less_noise_than_conditional_composition(mechanism):
    wanted = plan(mechanism, 0.02, 30, 4.0)
    theirs = conditional.account(wanted, failures=(1e-7,)).profile.delta(0.3)
    assert account(wanted).profile.delta(0.3) < theirs


def test_columns_are_rounded_up_and_counted_once():
    mechanism, T = LambdaCGD(0.9), 300
    rows = moments._columns(plan(mechanism, steps=T))
    C = np.array(mechanism.encoder(T))
    G = C.T @ C
    norms, overlaps = np.sqrt(np.diag(G)), G.sum(axis=1) - np.diag(G)
    assert rows[:, 2].sum() == T
    assert len(rows) < 40
    for level in np.quantile(norms, [0.0, 0.01, 0.5]):
        assert rows[rows[:, 0] >= level, 2].sum() >= (norms >= level).sum()
    for level in np.quantile(overlaps, [0.0, 0.01, 0.5]):
        assert rows[rows[:, 1] >= level, 2].sum() >= (overlaps >= level).sum()
    assert rows[:, 1] @ rows[:, 2] < 1.02 * overlaps.sum()


def test_less_noise_or_more_steps_or_a_larger_rate_or_correlation_means_more():
    def delta(lam, rate, steps, noise):
        return account(plan(LambdaCGD(lam), rate, steps, noise)).profile.delta(1.0)

    base = delta(0.5, 0.05, 40, 3.0)
    assert delta(0.5, 0.05, 40, 2.9) > base
    assert delta(0.5, 0.05, 50, 3.0) > base
    assert delta(0.5, 0.06, 40, 3.0) > base
    assert delta(0.6, 0.05, 40, 3.0) > base


def test_signs_of_the_encoder_do_not_matter_and_zero_out_equals_add_remove():
    one = account(plan(Banded((1.0, -0.5)), steps=5)).profile.delta(1.0)
    assert account(plan(Banded((1.0, 0.5)), steps=5)).profile.delta(1.0) == one
    assert account(plan(Banded((1.0, 0.5)), steps=5, relation="zero-out")).profile.delta(1.0) == one


def test_releases_beside_training_are_paid_for():
    nearly_nothing = plan(LambdaCGD(0.5), 1e-6, 2, 100.0)
    gaussian = account(Plan(**{**vars(nearly_nothing), "extra": (GaussianRelease(0.5),)})).profile
    renyi = rdp_privacy_accountant.RdpAccountant(
        tuple(1 + moments._ORDERS), NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    renyi.compose(GaussianDpEvent(2.0))
    assert gaussian.delta(1.0) == pytest.approx(renyi.get_delta(1.0), rel=1e-3)
    pure = account(Plan(**{**vars(nearly_nothing), "extra": (PureRelease(0.5),)})).profile
    assert pure.epsilon(1e-9) < 0.55


def test_the_account_names_its_theorem():
    found = account(plan(LambdaCGD(0.5)))
    assert found.route == "moments"
    assert "ChenDafnisPaouris15" in found.references
    assert not found.is_tight
    assert found.profile.delta(0.0) <= 1


def test_what_cannot_be_bounded_is_refused():
    with pytest.raises(UnsupportedError, match="Poisson"):
        account(Plan(n=10, sampling=FixedSize(2), steps=3, mechanism=LambdaCGD(0.5)))
    with pytest.raises(UnsupportedError, match="replace-one"):
        account(plan(LambdaCGD(0.5), relation="replace-one"))
    for mechanism, steps in ((LambdaCGD(0.5), 60_000), (Honaker(), 9000)):
        with pytest.raises(UnsupportedError, match="steps"):
            account(plan(mechanism, steps=steps))
    with pytest.raises(PlanError):
        least_noise(plan(LambdaCGD(0.5)), 1.0, 2.0)
    with pytest.raises(PlanError, match="noise multiplier"):
        account(plan(LambdaCGD(0.5), noise=None))


@pytest.mark.parametrize("mechanism", [LambdaCGD(0.7), NuFTRL(0.05), Banded((2.0, -1.0, 0.5))])
def test_columns_of_toeplitz_encoders_need_no_matrix(mechanism, T=40):
    C = np.abs(mechanism.encoder(T))
    G = C.T @ C
    exact = np.stack([np.sqrt(np.diagonal(G)), G.sum(axis=0) - np.diagonal(G)], axis=1)
    found = moments._toeplitz(np.abs(mechanism.column(T)))
    assert (found >= exact * (1 - 1e-14)).all()
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-8)
