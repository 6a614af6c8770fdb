"""The most steps and the largest batch: proved, and the next one is not."""

import math
from dataclasses import replace

import pytest

import antiphon as ap
from antiphon.accounting import largest_batch, most_steps
from antiphon.accounting.search.registry import best_account
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent, LambdaCGD


def plan(sampling, steps, noise, mechanism=None, relation="add-remove", n=1000):
    return ap.Plan(
        n=n,
        sampling=sampling,
        steps=steps,
        mechanism=mechanism or Independent(),
        noise_multiplier=noise,
        relation=relation,
    )


def epsilon(question, delta):
    return best_account(question, delta).profile.epsilon(delta)


def test_the_most_steps_of_gradient_descent():
    found = most_steps(plan(ap.FullBatch(), 1000, 10.0), 1.0, 1e-5)
    exact = (10.0 * ap.accounting.gaussian_mu(1.0, 1e-5)) ** 2
    assert found.steps == math.floor(exact)
    assert most_steps(replace(found, steps=3), 1.0, 1e-5).steps == 3


@pytest.mark.parametrize("sampling", [ap.Poisson(0.01), ap.CyclicPoisson(0.02, 2)])
def test_one_step_more_would_not_fit(sampling):
    question = plan(sampling, 2000, 1.0)
    found = most_steps(question, 2.0, 1e-5)
    assert epsilon(found, 1e-5) <= 2.0
    more = replace(found, steps=found.steps + getattr(sampling, "cycle", 1))
    assert epsilon(more, 1e-5) > 2.0


@pytest.mark.parametrize(
    ("sampling", "relation"),
    [
        (ap.Poisson(0.5), "add-remove"),
        (ap.FixedSize(7), "zero-out"),
        (ap.ShuffledEpochs(3), "zero-out"),
        (ap.CyclicPoisson(0.1, 4), "add-remove"),
    ],
)
def test_the_largest_batch_fits_and_one_record_more_does_not(sampling, relation):
    question = plan(sampling, 50, 4.0, relation=relation, n=100)
    found = largest_batch(question, 1.5, 1e-5)
    assert epsilon(found, 1e-5) <= 1.5
    batch = round(found.expected_batch)
    match found.sampling:
        case ap.Poisson():
            more = ap.Poisson((batch + 1) / 100)
        case ap.CyclicPoisson():
            more = ap.CyclicPoisson((batch + 1) * 4 / 100, 4)
        case ap.FixedSize():
            more = ap.FixedSize(batch + 1)
        case _:
            more = ap.ShuffledEpochs(batch + 1)
    assert epsilon(replace(found, sampling=more), 1e-5) > 1.5


def test_monte_carlo_plans_are_proved_at_the_end():
    question = plan(ap.Poisson(0.1), 60, 2.0, LambdaCGD(0.5))
    found = most_steps(question, 1.0, 1e-2)
    assert 1 < found.steps < 60
    assert ap.certify(found, 1e-2).epsilon <= 1.0


def test_what_cannot_fit_is_refused():
    with pytest.raises(PlanError, match="not even one step"):
        most_steps(plan(ap.FullBatch(), 10, 0.1), 0.5, 1e-5)
    with pytest.raises(PlanError, match="not even one record"):
        largest_batch(plan(ap.FixedSize(5), 10, 1.0, relation="zero-out", n=6), 0.2, 1e-5)
    with pytest.raises(UnsupportedError, match="batch size"):
        largest_batch(plan(ap.FullBatch(), 10, 1.0), 1.0, 1e-5)
    with pytest.raises(PlanError, match="noise multiplier"):
        most_steps(plan(ap.FullBatch(), 10, None), 1.0, 1e-5)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(PlanError, match="δ"):
            most_steps(plan(ap.FullBatch(), 10, 1.0), 1.0, bad)
