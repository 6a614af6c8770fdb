"""Fixed-size batches: Poisson's pair fails, ours holds."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from antiphon.accounting.independent import pld
from antiphon.accounting.independent.fixed_size_step import profiles
from antiphon.mechanisms import Independent
from antiphon.participation import Relation
from antiphon.plans import FixedSize, Plan, Poisson


def divergence(p, q, epsilon):
    """H_{e^ε}(P‖Q) of two mixtures [(weight, mean, σ), ...], by a fine sum."""
    x = np.linspace(-40, 40, 800_001)
    density = [sum(w * norm.pdf(x, m, s) for w, m, s in mixture) for mixture in (p, q)]
    return float(np.maximum(density[0] - math.exp(epsilon) * density[1], 0).sum() * (x[1] - x[0]))


def instance(rate, sigma):
    """All others have gradient -1, the record +1, its ghost 0: seen from a batch without the record."""
    absent = (1 - rate, 0.0, sigma)
    return [absent, (rate, 2.0, sigma)], [absent, (rate, 1.0, sigma)]


def one_step(sampling, relation, sigma, n):
    plan = Plan(
        n=n,
        sampling=sampling,
        steps=1,
        mechanism=Independent(),
        relation=relation,
        noise_multiplier=sigma,
    )
    return pld.account(plan).profile


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
def test_acceptance_kan_correlated_dpsgd_18_the_counter_example_to_theorem_f8(rate, sigma):
    n, batch = 100, round(100 * rate)
    with_record, ghost = instance(rate, sigma)
    ours = one_step(FixedSize(batch), "zero-out", sigma, n)
    poisson = one_step(Poisson(rate), "zero-out", sigma, n)
    for epsilon in (0.2, 1.0, 2.0):
        true = max(divergence(with_record, ghost, epsilon), divergence(ghost, with_record, epsilon))
        if true < 1e-12:
            continue
        assert ours.delta(epsilon) >= true * (1 - 1e-6)
        assert poisson.delta(epsilon) < true


def test_acceptance_kan_correlated_dpsgd_18_the_published_divergences():
    with_record, ghost = instance(0.01, 1.0)
    assert divergence(with_record, ghost, 1.0) == pytest.approx(1.692727e-4, rel=1e-5)
    claimed = divergence([(0.99, 0.0, 1.0), (0.01, 1.0, 1.0)], [(1.0, 0.0, 1.0)], 1.0)
    assert claimed == pytest.approx(2.732009e-9, rel=1e-4)
    with_record, ghost = instance(0.5, 1.0)
    assert divergence(with_record, ghost, 1.0) == pytest.approx(5.869208e-2, rel=1e-6)


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT, Relation.REPLACE_ONE])
def test_profiles_are_decreasing_convex_and_reflections_of_each_other(relation):
    epsilons = np.linspace(-3, 3, 601)
    forth, back = profiles(0.1, 0.7, relation, epsilons)
    x = np.exp(epsilons)
    for deltas in (forth, back):
        assert (np.diff(deltas) <= 1e-15).all()
        slopes = np.diff(deltas) / np.diff(x)
        assert (np.diff(slopes) >= -1e-9).all()
        assert (deltas >= np.maximum(0, 1 - x) - 1e-12).all()
    np.testing.assert_allclose(back[::-1], 1 - 1 / x + forth / x, atol=2e-3)


def test_zero_out_never_costs_more_than_replace_one_and_never_less_than_poisson():
    epsilons = np.linspace(-2, 2, 401)
    zero = profiles(0.05, 1.0, Relation.ZERO_OUT, epsilons)
    replaced = profiles(0.05, 1.0, Relation.REPLACE_ONE, epsilons)
    assert (zero.forth <= replaced.forth + 1e-12).all()
    assert (zero.back <= replaced.back + 1e-12).all()
