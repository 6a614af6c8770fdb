"""Mixture pairs of plans: which plan gets which pair, and that larger encoders dominate."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon as ap
from antiphon.accounting.correlated import mixture
from antiphon.accounting.correlated.lambda_pair import LambdaPair
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import BLT, Banded, Honaker, Independent, LambdaCGD, NuFTRL

MEANS = st.lists(st.floats(0, 2), min_size=4, max_size=4)


def plan(sampling, mechanism, relation="add-remove", steps=20):
    return ap.Plan(n=1000, sampling=sampling, steps=steps, mechanism=mechanism, relation=relation)


def divergences(means, rate, epsilon, points=161):
    """H(P‖Q), H(Q‖P) of a mixture of four means in the plane, unit noise, by quadrature."""
    axis = np.linspace(-7, 9, points)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    weights = [
        rate ** sum(bits) * (1 - rate) ** (2 - sum(bits)) for bits in product((0, 1), repeat=2)
    ]
    logs = [a * x + b * y - (a * a + b * b) / 2 for a, b in means]
    L = sum(w * np.exp(log) for w, log in zip(weights, logs, strict=True))
    q = np.exp(-(x**2 + y**2) / 2) / (2 * math.pi) * (axis[1] - axis[0]) ** 2
    factor = math.exp(epsilon)
    return np.sum(q * np.maximum(L - factor, 0)), np.sum(q * np.maximum(1 - factor * L, 0))


@given(MEANS, MEANS, MEANS, MEANS, st.floats(0.1, 0.9), st.floats(0.01, 1.5))
def test_larger_means_dominate_in_both_directions(a, b, more_a, more_b, rate, epsilon):
    small = list(zip(a, b, strict=True))
    large = [(p + s, q + t) for (p, q), s, t in zip(small, more_a, more_b, strict=True)]
    for low, high in zip(
        divergences(small, rate, epsilon), divergences(large, rate, epsilon), strict=True
    ):
        assert low <= high + 1e-5  # error of the quadrature


@pytest.mark.parametrize(
    "mechanism",
    [
        Banded((1.0, 0.5)),
        Banded((1.0, 0.7, 0.1)),
        BLT((0.8,), (0.3,)),
        Honaker(),
        Banded((2.0, -1.0)),
    ],
)
def test_the_envelope_lies_above_the_encoder(mechanism, T=12):
    scale, lam = mixture.envelope(mixture.diagonals(mechanism, T))
    above = scale * LambdaCGD(lam).encoder(T)
    assert (np.abs(mechanism.encoder(T)) <= above * (1 + 1e-12)).all()


def test_poisson_plans_get_the_chain_of_their_own_or_a_larger_one():
    own = mixture.route(plan(ap.Poisson(0.1), LambdaCGD(0.5)))
    assert own.at(3.0) == LambdaPair(0.5, 0.1, 20, 3.0)
    larger = mixture.route(plan(ap.Poisson(0.1), Banded((2.0, 1.0)))).at(3.0)
    assert larger.lam == pytest.approx(0.5)
    assert larger.noise_multiplier == pytest.approx(1.5)
    assert "above this one" in mixture.route(plan(ap.Poisson(0.1), Banded((2.0, 1.0)))).theorem


def test_the_envelope_costs_nothing_for_lambda_cgd_itself():
    scale, lam = mixture.envelope(LambdaCGD(0.8).column(50))
    assert (scale, lam) == (pytest.approx(1.0), pytest.approx(0.8))


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (plan(ap.Poisson(0.1), LambdaCGD(0.5), "replace-one"), "replace-one"),
        (plan(ap.Poisson(0.1), Independent()), "exact"),
        (plan(ap.Poisson(1.0), LambdaCGD(0.5)), "exact"),
        (plan(ap.Poisson(0.1), LambdaCGD(0.995)), "too long"),
        (plan(ap.FixedSize(10), LambdaCGD(0.5), "zero-out"), "FixedSize"),
        (plan(ap.Poisson(0.1), Honaker(), steps=8192), "Toeplitz"),
    ],
)
def test_refusals_name_the_part(question, reason):
    with pytest.raises(UnsupportedError, match=reason):
        mixture.route(question)


def test_bins_take_any_mechanism():
    for mechanism in (NuFTRL(0.1), Honaker(), Independent()):
        found = mixture.route(plan(ap.BallsInBins(5), mechanism)).at(2.0)
        assert 0 < found.estimate(1.0, seed=0).delta < 1
