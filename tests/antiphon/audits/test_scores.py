"""Scores equal log-likelihood ratios that are added up pattern by pattern."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import antiphon as ap
from antiphon.audits.scores import Law, law_of, log_ratio_hidden, log_ratio_known
from antiphon.mechanisms import Independent, LambdaCGD, Tree

T, NOISE = 4, 1.3
LAMBDA = LambdaCGD(0.7).encoder(T)


def likelihood(encoder, white, pattern, amplitude):
    mean = amplitude * encoder @ np.asarray(pattern, dtype=float)
    return multivariate_normal(mean, NOISE**2 * np.eye(len(mean))).logpdf(white)


def whites(count=5):
    return np.random.default_rng(0).normal(size=(T, count)) * 2


def plan(sampling, steps=T, n=12, **options):
    return ap.Plan(n=n, sampling=sampling, steps=steps, mechanism=Independent(), **options)


@pytest.mark.parametrize(("present", "absent"), [(1.0, 0.0), (1.0, -1.0), (2.0, 1.0)])
def test_known_steps_give_the_exact_ratio(present, absent):
    white = whites()
    seen = (np.random.default_rng(1).random(white.shape) < 0.5).astype(float)
    found = log_ratio_known(LAMBDA, white, seen, NOISE, present, absent)
    expected = [
        likelihood(LAMBDA, w, y, present) - likelihood(LAMBDA, w, y, absent)
        for w, y in zip(white.T, seen.T, strict=True)
    ]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    "sampling",
    [ap.Poisson(0.3), ap.FixedSize(3), ap.BallsInBins(2), ap.CyclicPoisson(0.4, 2), ap.FullBatch()],
)
@pytest.mark.parametrize(("present", "absent"), [(1.0, 0.0), (1.0, -1.0), (2.0, 1.0)])
def test_hidden_steps_give_the_ratio_of_mixtures(sampling, present, absent):
    white, law = whites(), law_of(plan(sampling), T)

    def mixture(w, amplitude):
        terms = []
        for rates in law.rates:
            for y in product((0, 1), repeat=T):
                chance = np.prod(np.where(y, rates, 1 - rates)) / len(law.rates)
                if chance:
                    terms.append(np.log(chance) + likelihood(LAMBDA, w, y, amplitude))
        return logsumexp(terms)

    expected = [mixture(w, present) - mixture(w, absent) for w in white.T]
    found = log_ratio_hidden(LAMBDA, white, law, NOISE, present, absent)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_independent_noise_factorises_also_where_patterns_are_too_many():
    steps, rate = 40, 0.2
    white = np.random.default_rng(2).normal(size=(steps, 3))
    law = Law(np.full((1, steps), rate))
    assert law.patterns() is None
    found = log_ratio_hidden(np.eye(steps), white, law, NOISE, 1.0, 0.0)
    terms = np.log(1 - rate + rate * np.exp((white - 0.5) / NOISE**2))
    np.testing.assert_allclose(found, terms.sum(0))


@pytest.mark.parametrize("mechanism", [LambdaCGD(0.9), Tree()])
def test_mean_field_is_below_the_mixture_and_orders_canaries_alike(mechanism):
    from antiphon.audits import scores

    steps, rng = 10, np.random.default_rng(3)
    encoder, law = mechanism.encoder(steps), Law(np.full((1, steps), 0.3))
    seen = (rng.random((steps, 300)) < 0.3) * (rng.random(300) < 0.5)
    white = encoder @ seen + 2 * rng.normal(size=seen.shape)
    exact = log_ratio_hidden(encoder, white, law, 2.0, 1.0, 0.0)
    fields, gram = encoder.T @ white / 4, encoder.T @ encoder / 4
    near = scores._mean_field(law.rates[0], fields, gram)
    assert (near <= exact + 1e-9).all()
    assert np.corrcoef(near, exact)[0, 1] > 0.95


def test_laws_are_those_of_the_draws():
    from antiphon.numerics import Generator
    from antiphon.plans import Draws

    # 4,000 rows: a share is off by more than 0.05 with probability below 1e-9.
    for sampling in (
        ap.Poisson(0.3),
        ap.FixedSize(1000),
        ap.BallsInBins(3),
        ap.CyclicPoisson(0.4, 3),
    ):
        draws = Draws(sampling, 4000, Generator.seeded(1))
        seen = np.zeros((7, 4000))
        for step in range(7):
            seen[step, draws.rows(step).numpy()] = 1
        law = law_of(plan(sampling, steps=7, n=4000), 7)
        np.testing.assert_allclose(seen.mean(1), law.rates.mean(0), atol=0.05)
        both = (law.rates[:, :, None] * law.rates[:, None, :]).mean(0)
        off = ~np.eye(7, dtype=bool)
        np.testing.assert_allclose((seen @ seen.T / 4000)[off], both[off], atol=0.05)
