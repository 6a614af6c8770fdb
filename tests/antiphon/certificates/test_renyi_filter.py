"""The Rényi filter: exact conversions, and a budget that no adaptive choice passes."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from antiphon.accounting.independent import rdp
from antiphon.accounting.independent.gaussian import gaussian_delta, gaussian_mu
from antiphon.certificates.renyi_filter import RenyiFilter
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.plans import Plan, Poisson


@pytest.mark.parametrize("order", [1.5, 4.0, 33.0])
def test_one_order_is_the_known_conversion(order):
    alone = RenyiFilter((order,), (1.0,))
    for spent, epsilon in ((0.1, 2.0), (0.5, 1.0), (3.0, 7.0)):
        moment = (order - 1) * (spent - epsilon + math.log1p(-1 / order)) - math.log(order)
        wanted = min(1.0, math.exp(moment))
        assert alone.delta(np.array([spent]), epsilon) == pytest.approx(wanted, rel=1e-9)


def test_a_mixture_is_the_worst_case_over_all_losses():
    mixture = RenyiFilter((2.0, 5.0, 20.0), (0.2, 0.3, 0.5))
    for spent in ([0.3, 0.9, 1.0], [0.2, 0.5, 30.0], [1.0, math.inf, math.inf]):
        losses = np.linspace(1.5 + 1e-9, 8, 400_001)
        weights, power = np.array(mixture.weights), np.array(mixture.orders) - 1
        sums = np.exp(np.log(weights) + power * (losses[:, None] - np.array(spent))).sum(1)
        worst = ((1 - np.exp(1.5 - losses)) / sums).max()
        found = mixture.delta(np.array(spent), 1.5)
        assert worst <= found <= worst * (1 + 1e-6)
        single = [
            rdp.delta_of(np.array([r]), 1.5, (o,)) for o, r in zip((2, 5, 20), spent, strict=True)
        ]
        assert found >= min(single) * (1 - 1e-9)
    assert mixture.delta(np.full(3, math.inf), 1.5) == 1.0


def test_epsilon_inverts_delta_and_nothing_spent_is_cheap():
    mixture = RenyiFilter.for_budget(2.0, 1e-5)
    spent = 0.02 * np.array(mixture.orders)
    epsilon = mixture.epsilon(spent, 1e-5)
    assert mixture.delta(spent, epsilon) <= 1e-5
    assert mixture.delta(spent, epsilon * 0.999) > 1e-5


@pytest.mark.parametrize("budget", [(0.5, 1e-6), (2.0, 1e-5), (8.0, 1e-5)])
def test_the_default_orders_admit_most_of_what_fixed_plans_could_have(budget):
    mixture = RenyiFilter.for_budget(*budget)
    orders = np.array(mixture.orders)

    def largest(curve, delta_of, most):
        return brentq(lambda x: delta_of(curve(x), budget[0]) - budget[1], 1e-9, most)

    gaussian = largest(lambda mu: 0.5 * mu**2 * orders, mixture.delta, 50.0)
    assert 0.8 * gaussian_mu(*budget) < gaussian < gaussian_mu(*budget)
    plan = Plan(100, Poisson(0.01), 1, Independent(), noise_multiplier=0.9)
    step, grid = rdp.curve(plan, mixture.orders), rdp.curve(plan)
    steps = largest(lambda n: n * step, mixture.delta, 1e6)
    fixed = largest(lambda n: n * grid, rdp.delta_of, 1e6)
    assert 0.2 * fixed < steps <= fixed * (1 + 1e-3)


def response(epsilon, shift):
    """Randomised response at e^shift."""
    p = 1 / (1 + np.exp(-epsilon))
    x = np.exp(shift)
    return np.maximum(0, p - x * (1 - p)) + np.maximum(0, 1 - p - x * p)


@pytest.mark.parametrize("first", [0.1, 0.2, 0.3])
def test_an_adversary_who_chooses_the_second_run_in_view_of_the_first_stays_within_the_budget(
    first,
):
    """The exact δ of: a Gaussian release, then whichever admitted run is worst for its outcome."""
    epsilon, delta = 2.0, 1e-5
    for mixture in (RenyiFilter.for_budget(epsilon, delta), RenyiFilter((3.0, 30.0), (0.5, 0.5))):
        orders = np.array(mixture.orders)
        spent = 0.5 * first**2 * orders

        def admitted(curve, low=1e-6, high=5.0, mixture=mixture, spent=spent):
            return brentq(
                lambda x: mixture.delta(spent + curve(x), epsilon) - delta, low, high, xtol=1e-10
            )

        def pure(e, orders=orders):
            moment = np.logaddexp(orders * e, (1 - orders) * e) - np.logaddexp(0.0, e)
            return moment / (orders - 1)

        second = admitted(lambda mu, orders=orders: 0.5 * mu**2 * orders)
        e = admitted(pure)
        y = np.linspace(first - 12, first + 12, 200_001)
        shift = epsilon - (first * y - first**2 / 2)
        worst = np.maximum(gaussian_delta(second, shift), response(e, shift))
        total = float((norm.pdf(y, first) * worst).sum() * (y[1] - y[0]))
        assert total <= delta
        assert total >= delta / 1e4  # not for want of trying


def test_what_is_no_filter_is_refused():
    for orders, weights, message in (
        ((), (), "above 1"),
        ((1.0,), (1.0,), "above 1"),
        ((2.0,), (0.5, 0.5), "positive weight"),
        ((2.0, 3.0), (1.0, 0.0), "positive weight"),
        ((2.0, 3.0), (0.9, 0.9), "add up to 1"),
    ):
        with pytest.raises(PlanError, match=message):
            RenyiFilter(orders, weights)
