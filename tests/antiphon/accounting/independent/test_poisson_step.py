"""One Poisson step as a pair of profiles."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from mpmath import mp, mpf

from antiphon.accounting.independent import poisson_step as poisson


def exact(rate, sigma, epsilon, forth):
    """The divergence by quadrature with 30 digits."""
    mp.dps = 30

    def gaussian(x, mean):
        return mp.npdf(x, mean, sigma)

    def excess(x):
        mixture = (1 - mpf(rate)) * gaussian(x, 0) + mpf(rate) * gaussian(x, 1)
        pair = (mixture, gaussian(x, 0)) if forth else (gaussian(x, 0), mixture)
        return max(mpf(0), pair[0] - mp.exp(epsilon) * pair[1])

    inside = (math.exp(epsilon if forth else -epsilon) - 1 + rate) / rate
    points = [-20 * sigma, 20 * sigma + 1]
    if inside > 0:
        points.insert(1, sigma**2 * math.log(inside) + 0.5)
    return float(mp.quad(excess, sorted(points)))


@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 1.0), (0.7, 2.0), (0.01, 0.8)])
@pytest.mark.parametrize("epsilon", [-1.0, -0.005, 0.0, 0.005, 0.5, 2.0])
def test_both_directions_are_exact(rate, sigma, epsilon):
    found = poisson.profiles(rate, sigma, np.array([epsilon]))
    assert found.forth[0] == pytest.approx(exact(rate, sigma, epsilon, True), rel=1e-9, abs=1e-16)
    assert found.back[0] == pytest.approx(exact(rate, sigma, epsilon, False), rel=1e-9, abs=1e-16)


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 0.9), (0.5, 0.4), (0.999, 5.0), (1e-3, 3.0)])
def test_the_two_directions_are_each_others_reflection_and_fall(rate, sigma):
    low, high = poisson.reach(rate, sigma)
    assert poisson.profiles(rate, sigma, np.array([high])).forth[0] < 1e-20
    epsilons = np.linspace(low, min(high, 5.0), 999)
    forth, _ = poisson.profiles(rate, sigma, epsilons)
    _, back = poisson.profiles(rate, sigma, -epsilons)
    assert forth == pytest.approx(1 - np.exp(epsilons) + np.exp(epsilons) * back, abs=1e-11)
    assert (np.diff(forth) <= 1e-15).all()
    assert (np.diff(back) >= -1e-15).all()
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=1e-3
    )
    assert float(theirs.get_delta_for_epsilon(0.0)) == pytest.approx(
        float(poisson.profiles(rate, sigma, np.zeros(1)).forth[0]), rel=1e-4
    )
