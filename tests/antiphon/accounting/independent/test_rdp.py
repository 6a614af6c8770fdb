"""Rényi divergences: exact where a formula is, above the truth elsewhere, and never below the PLD."""

import math

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from scipy.special import logsumexp
from scipy.stats import norm

from antiphon.accounting.independent import pld, rdp, unamplified
from antiphon.accounting.independent.renyi import fixed_size_rdp, poisson_rdp
from antiphon.accounting.search.calibration import calibrate
from antiphon.accounting.search.registry import best_account
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import Banded, Independent, LambdaCGD
from antiphon.participation import Relation
from antiphon.plans import (
    CyclicPoisson,
    FixedSize,
    FullBatch,
    GaussianRelease,
    OnePass,
    Plan,
    Poisson,
    PureRelease,
)


def plan(sampling, steps, relation="add-remove", noise=1.0, mechanism=None, n=10_000, **rest):
    mechanism = mechanism or Independent()
    values = {"n": n, "sampling": sampling, "steps": steps, "mechanism": mechanism}
    return Plan(**values, relation=relation, noise_multiplier=noise, **rest)


def divergence(order, weights_p, weights_q, sigma):
    """D_α of two mixtures of N(m, σ²), {m: weight}, by quadrature."""
    x = np.linspace(-20 * sigma - 3 * order, 20 * sigma + 3 * order, 20_001)

    def log_density(weights):
        terms = [math.log(w) + norm.logpdf(x, m, sigma) for m, w in weights.items() if w > 0]
        return np.logaddexp.reduce(terms)

    # The trapezoidal rule: its error falls faster than any power for such densities.
    logs = order * log_density(weights_p) + (1 - order) * log_density(weights_q)
    return float(logsumexp(logs) + math.log(x[1] - x[0])) / (order - 1)


@pytest.mark.parametrize("order", [1.25, 1.7, 2.0, 2.75, 5.0, 7.5, 16.0])
@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.2, 2.0), (0.5, 0.8)])
def test_a_poisson_step_is_the_quadrature_of_both_directions(order, rate, sigma):
    found = rdp.curve(plan(Poisson(rate), 1, noise=sigma), orders=(order,))[0]
    mixture, alone = {0.0: 1 - rate, 1.0: rate}, {0.0: 1.0}
    forth, back = (divergence(order, p, q, sigma) for p, q in ((mixture, alone), (alone, mixture)))
    assert found >= max(forth, back) * (1 - 1e-9)
    assert found == pytest.approx(max(forth, back), rel=1e-3 if order % 1 else 1e-6)


def test_curves_add_up_as_those_of_dp_accounting():
    theirs = RdpAccountant(rdp.ORDERS)
    theirs.compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.1)), 500)
    theirs.compose(GaussianDpEvent(1 / 0.3))
    ours = rdp.curve(plan(Poisson(0.01), 500, noise=1.1, extra=(GaussianRelease(0.3),)))
    whole = np.array(rdp.ORDERS) % 1 == 0
    assert ours[whole] == pytest.approx(theirs.rdp[whole], rel=1e-5)
    assert (ours[whole] >= theirs.rdp[whole]).all()
    # At fractional orders their series is a bound that we undercut.
    assert (ours <= theirs.rdp * (1 + 1e-3)).all()
    assert (np.diff(ours) > 0).all()


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_epsilon_is_that_of_dp_accounting(delta):
    theirs = RdpAccountant(rdp.ORDERS).compose(
        PoissonSampledDpEvent(0.05, GaussianDpEvent(1.5)), 200
    )
    ours = rdp.account(plan(Poisson(0.05), 200, noise=1.5)).profile.epsilon(delta)
    assert ours == pytest.approx(theirs.get_epsilon(delta), rel=1e-4)


def test_a_pure_release_is_counted_as_randomised_response():
    epsilon = 0.7
    event = RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2)
    theirs = RdpAccountant(rdp.ORDERS, NeighboringRelation.REPLACE_ONE).compose(event).rdp
    alone = plan(FullBatch(), 1, noise=2.0)
    both = plan(FullBatch(), 1, noise=2.0, extra=(PureRelease(epsilon),))
    assert rdp.curve(both) - rdp.curve(alone) == pytest.approx(theirs, rel=1e-9)


def test_a_pure_release_beside_correlated_noise_has_a_bound_now():
    question = plan(FullBatch(), 8, noise=9.0, mechanism=LambdaCGD(0.5), extra=(PureRelease(0.1),))
    found = best_account(question, 1e-5)
    assert found.route == "rdp"
    alone = unamplified.account(plan(FullBatch(), 8, noise=9.0, mechanism=LambdaCGD(0.5)))
    assert found.profile.epsilon(1e-5) > alone.profile.epsilon(1e-5)


def test_calibration_falls_back_on_rényi_divergences():
    question = plan(FullBatch(), 8, noise=None, mechanism=LambdaCGD(0.5), extra=(PureRelease(0.1),))
    found = calibrate(question, 2.0, 1e-5)
    assert best_account(found, 1e-5).profile.epsilon(1e-5) == pytest.approx(2.0, rel=1e-3)
    assert best_account(found, 1e-5).profile.epsilon(1e-5) <= 2.0
    spent = plan(FullBatch(), 8, noise=None, extra=(PureRelease(5.0),))
    with pytest.raises(UnsupportedError, match="rdp: no noise below"):
        calibrate(spent, 1.0, 1e-5)


def test_without_amplification_the_curve_is_a_line():
    question = plan(OnePass(100), 100, "replace-one", mechanism=LambdaCGD(0.9), noise=7.0)
    mu = unamplified.gaussian_parameter(question)
    assert rdp.curve(question) == pytest.approx(0.5 * mu**2 * np.array(rdp.ORDERS))
    poisson = plan(Poisson(0.1), 10, "replace-one", noise=7.0)
    assert rdp.curve(poisson, (2.0,))[0] == pytest.approx(10 * 4 / 49)


def test_a_banded_encoder_under_cyclic_poisson_is_dp_sgd_of_one_group():
    coef = (1.0, 0.5, 0.25)
    cyclic = plan(CyclicPoisson(0.1, cycle=4), 40, noise=2.0, mechanism=Banded(coef))
    alone = plan(Poisson(0.1), 10, noise=2.0 / np.linalg.norm(coef))
    assert rdp.curve(cyclic) == pytest.approx(rdp.curve(alone))


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("order", [1.25, 2.0, 4.5, 12.0])
@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.2, 2.0)])
def test_fixed_size_batches_are_above_the_worst_instances_known(relation, order, rate, sigma):
    """The others have gradient -1 (or none), the record +1, its neighbour -1 (or none)."""
    found = fixed_size_rdp(rate, sigma, Relation.of(relation), (order,))[0]
    # The record takes the place of another, whose gradient is -1, 0 or 1: the sum, up to a constant.
    changed, truths = (0.0 if relation == "zero-out" else -1.0), []
    for other in (-1.0, 0.0):
        p, q = {0.0: 1 - rate}, {0.0: 1 - rate}
        for pair, own in ((p, 1.0), (q, changed)):
            pair[own - other] = pair.get(own - other, 0.0) + rate
        truths += [divergence(order, p, q, sigma), divergence(order, q, p, sigma)]
    assert found >= max(truths) * (1 - 1e-9)
    if order <= 2 or relation == "replace-one":
        assert found <= max(truths) * 2
    else:
        assert found <= 0.5 * order / sigma**2


def test_fixed_size_bounds_are_finite_and_below_published_ones():
    orders = (2.0, 3.0, 8.0, 32.0)
    for rate, sigma in ((0.01, 2.0), (0.1, 4.0), (0.5, 0.3), (1e-4, 30.0)):
        both = NeighboringRelation.REPLACE_ONE
        event = SampledWithoutReplacementDpEvent(
            10_000, int(1e4 * rate), GaussianDpEvent(sigma / 2)
        )
        theirs = RdpAccountant(orders, both).compose(event).rdp
        ours = fixed_size_rdp(rate, sigma, Relation.REPLACE_ONE, orders)
        zero = fixed_size_rdp(rate, sigma, Relation.ZERO_OUT, orders)
        assert (zero <= ours * (1 + 1e-9)).all()
        assert (ours <= theirs * (1 + 1e-3)).all()
        assert (ours <= 2 * np.array(orders) / sigma**2).all()
        assert (zero > 0).all()


@pytest.mark.parametrize(
    "question",
    [
        plan(Poisson(0.01), 300, noise=0.9),
        plan(Poisson(0.2), 20, noise=3.0, relation="zero-out"),
        plan(Poisson(1.0), 10, noise=8.0),
        plan(Poisson(0.05), 20, noise=1.2, extra=(PureRelease(0.2), GaussianRelease(0.2))),
        plan(FixedSize(100), 100, "replace-one", noise=2.0),
        plan(FixedSize(1000), 30, "zero-out", noise=3.0),
        plan(CyclicPoisson(0.1, 2), 40, noise=2.0, mechanism=Banded((1.0, 0.5))),
    ],
)
def test_privacy_loss_distributions_are_never_looser(question):
    tight, loose = (route.account(question).profile for route in (pld, rdp))
    for delta in (1e-3, 1e-6):
        assert tight.epsilon(delta) <= loose.epsilon(delta) * (1 + 1e-3)
    assert best_account(question, 1e-5).route in ("pld", "conditioned", "gaussian")


def test_epsilon_falls_with_noise_and_grows_with_steps():
    def epsilon(**changes):
        values = {"sampling": Poisson(0.02), "steps": 100, "noise": 1.0, **changes}
        return rdp.account(plan(**values)).profile.epsilon(1e-5)

    assert epsilon(noise=1.1) < epsilon() < epsilon(steps=101)
    assert epsilon(noise=1e4) < 0.01
    assert math.isfinite(epsilon(noise=0.2))


@pytest.mark.parametrize("rate", [1e-7, 1e-3, 0.5, 0.999])
@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 10.0, 1e3, 1e6])
def test_sum_and_integral_agree_and_no_order_is_below_a_smaller_one(rate, sigma):
    orders = (1.5, 2.0, 2.5, 3.0, 8.0, 31.0, 64.0)
    values = np.array(rdp._poisson(rate, sigma, orders))
    assert (values > 0).all()
    assert (np.diff(values) > 0).all()
    integral = poisson_rdp(rate, sigma, orders)
    near = integral < math.inf
    assert np.minimum(integral, 0.5 * np.array(orders) / sigma**2)[near] == pytest.approx(
        values[near], rel=5e-3
    )


def test_tiny_divergences_never_round_to_nothing():
    values = rdp.curve(plan(Poisson(1e-6), 1, noise=100.0, n=10**7))
    assert (values > 0).all()
    assert rdp.account(plan(Poisson(1e-6), 1, noise=100.0, n=10**7)).profile.delta(0.0) > 0


def test_what_has_no_bound_is_refused():
    with pytest.raises(UnsupportedError, match="not a change of one record"):
        rdp.account(plan(FixedSize(10), 10))
    with pytest.raises(UnsupportedError, match="above 1"):
        rdp.curve(plan(FullBatch(), 1), orders=(1.0,))
