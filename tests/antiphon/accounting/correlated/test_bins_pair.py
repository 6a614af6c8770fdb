"""Balls in bins, against the mixture itself, the Gaussian, and one step of Poisson sampling's limit."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from antiphon.accounting.correlated.bins_pair import BinsPair, bin_energies, bin_factor, bin_means
from antiphon.accounting.independent.gaussian import gaussian_delta
from antiphon.errors import PlanError
from antiphon.mechanisms import BLT, Honaker, Independent, LambdaCGD, NuFTRL, Tree
from antiphon.plans import GaussianRelease, PureRelease

Z = 4.9  # standard errors that a right normal statistic passes once in a million tests


def pair(mechanism, T, bins, noise, extra=()):
    return BinsPair(bin_factor(mechanism, T, bins), noise, extra)


def two_bins(noise, epsilon, mechanism=None, points=1201):
    """H(P‖Q) and H(Q‖P) of two steps in two bins, by quadrature over the plane."""
    C = (mechanism or LambdaCGD(0.6)).encoder(2)
    axis = np.linspace(-8 * noise, 8 * noise + 2, points)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    density = [multivariate_normal(C[:, j], noise**2).pdf(x) for j in range(2)]
    p, q = np.mean(density, axis=0), multivariate_normal(np.zeros(2), noise**2).pdf(x)
    cell, factor = (axis[1] - axis[0]) ** 2, math.exp(epsilon)
    return np.maximum(p - factor * q, 0).sum() * cell, np.maximum(q - factor * p, 0).sum() * cell


@pytest.mark.parametrize(
    "mechanism", [LambdaCGD(0.7), NuFTRL(0.1), Honaker(), Tree(), BLT((0.9,), (0.3,))]
)
def test_means_are_columns_of_the_encoder_summed_over_a_bin(mechanism, T=11, bins=4):
    C = np.abs(mechanism.encoder(T))
    expected = np.stack([C[:, j::bins].sum(axis=1) for j in range(bins)], axis=1)
    np.testing.assert_allclose(bin_means(mechanism, T, bins), expected, atol=1e-12)
    energies = (expected**2).sum(axis=0)
    np.testing.assert_allclose(bin_energies(mechanism, T, bins), energies, atol=1e-12)
    longer = (np.abs(mechanism.encoder(T)) ** 2).sum(axis=0)
    np.testing.assert_allclose(bin_energies(mechanism, T, T + 3), longer, atol=1e-12)
    R = bin_factor(mechanism, T, bins)
    np.testing.assert_allclose(R.T @ R, expected.T @ expected, atol=1e-12)


def test_the_ratio_is_that_of_the_mixture(T=9, bins=3, noise=1.3):
    mechanism = NuFTRL(0.2)
    M = bin_means(mechanism, T, bins)
    x = np.random.default_rng(0).normal(0.3, 2.0, (20, T))
    q = norm.logpdf(x, 0, noise).sum(axis=1)
    p = [norm.logpdf(x, M[:, j], noise).sum(axis=1) for j in range(bins)]
    expected = np.logaddexp.reduce(p) - math.log(bins) - q
    u = (x @ M / noise**2).T
    found = pair(mechanism, T, bins, noise)
    up, down = (found.log_ratio(u, way) for way in ("up", "down"))
    assert (down < expected).all() and (expected < up).all()
    np.testing.assert_allclose(up, expected, atol=1e-9)


@pytest.mark.parametrize(("noise", "epsilon"), [(0.8, 0.3), (1.5, 0.2), (0.5, 1.0)])
def test_two_bins_equal_quadrature(noise, epsilon):
    exact = two_bins(noise, epsilon)
    found = pair(LambdaCGD(0.6), 2, 2, noise)
    estimate = found.estimate(epsilon, seed=1, paths=20_000)
    assert abs(estimate.delta - max(exact)) < Z * estimate.standard_error < 0.2 * max(exact)
    limit = found.certified_delta(epsilon, seed=1, paths=100_000)
    assert exact[0] <= limit.remove < 1.1 * exact[0] + 1e-3
    assert exact[1] <= limit.add < 1.1 * exact[1] + 1e-3
    assert found.lower_bound(epsilon, seed=1) < max(exact)


def test_five_per_cent_too_little_noise_is_seen():
    """False alarm 1e-6 on either side."""
    exact = max(two_bins(0.8, 0.3))
    wrong = pair(LambdaCGD(0.6), 2, 2, 0.95 * 0.8).estimate(0.3, seed=1, paths=20_000)
    assert wrong.delta - exact > Z * wrong.standard_error


def test_one_bin_is_the_gaussian(T=6):
    mechanism = NuFTRL(0.1)
    energy = np.linalg.norm(mechanism.encoder(T).sum(axis=1))
    exact = float(gaussian_delta(1.3, 0.8))
    found = pair(mechanism, T, 1, energy / 1.3)
    estimate = found.estimate(0.8, seed=2, paths=8000)
    assert abs(estimate.delta - exact) < Z * estimate.standard_error < 0.1 * exact
    limit = found.certified_delta(0.8, seed=2, paths=50_000)
    assert exact < limit.remove < 1.1 * exact and exact < limit.add < 1.1 * exact


def test_more_bins_lower_delta_and_more_epochs_raise_it():
    few, many, twice = (
        pair(LambdaCGD(0.5), T, bins, 1.5).estimate(0.5, seed=3, paths=20_000).delta
        for T, bins in ((4, 4), (16, 16), (32, 16))
    )
    assert many < 0.8 * few
    assert twice > 1.2 * many


@pytest.mark.parametrize(
    "extra",
    [(GaussianRelease(0.6),), (PureRelease(0.4),), (GaussianRelease(0.3), PureRelease(0.2))],
)
def test_releases_beside_training_compose_as_product_pairs(extra, epsilon=0.8):
    """At one bin everything is Gaussian, so the composition has an oracle: a sum over the pure losses."""
    mu = math.sqrt(1.0 + sum(getattr(event, "mu", 0.0) ** 2 for event in extra))
    pure = sum(getattr(event, "epsilon", 0.0) for event in extra)
    truth = 1 / (1 + math.exp(-pure))
    # A threshold may be negative: H_γ at γ < 1 is 1 − γ + γ H_{1/γ}.
    exact = sum(w * hockey(mu, epsilon - s) for w, s in ((truth, pure), (1 - truth, -pure)))
    found = pair(Independent(), 1, 1, 1.0, extra)
    estimate = found.estimate(epsilon, seed=4, paths=40_000)
    assert abs(estimate.delta - exact) < Z * estimate.standard_error < 0.1 * exact
    assert exact < found.certified_delta(epsilon, seed=4, paths=50_000).delta < 1.1 * exact


def hockey(mu, epsilon):
    if epsilon >= 0:
        return float(gaussian_delta(mu, epsilon))
    gamma = math.exp(epsilon)
    return 1 - gamma + gamma * float(gaussian_delta(mu, -epsilon))


def test_the_band_holds_at_every_epsilon():
    epsilons = np.array([0.0, 0.3, 1.0])
    found = pair(LambdaCGD(0.6), 2, 2, 0.8)
    band = found.band(epsilons, seed=5, paths=50_000, failure=1e-6, progress=lambda *_: None)
    for epsilon, limit in zip(epsilons, band, strict=True):
        exact = max(two_bins(0.8, epsilon))
        assert exact < limit < 1.1 * exact + 2e-3


def test_bad_input_is_refused():
    with pytest.raises(PlanError, match="bins"):
        bin_factor(Independent(), 3, 4)
    for noise in (0.0, math.nan, math.inf):
        with pytest.raises(PlanError, match="noise multiplier"):
            pair(Independent(), 3, 3, noise).estimate(1.0, seed=0)
    for epsilon in (0.0, math.nan):
        with pytest.raises(PlanError, match="ε"):
            pair(Independent(), 3, 3, 1.0).certified_delta(epsilon, seed=0, paths=10)
