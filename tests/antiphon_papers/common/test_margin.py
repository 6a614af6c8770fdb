"""Margins against brute force, and the kernel against gradients that autograd finds."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from antiphon.errors import PlanError
from antiphon_papers.common.margin import largest_margin, ntk_margin, tangent_kernel
from antiphon_papers.common.two_layer_kan import TwoLayerKAN


def network(d=3, m=8, seed=0, **options):
    torch.manual_seed(seed)
    return TwoLayerKAN(d, m, **options).double()


def records(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, d))
    return X, np.where(X.sum(1) > 0, 1.0, -1.0)


def gradients(X, y, model):
    """y_i ∇f(x_i), one row per record, by autograd."""
    rows = []
    for x, sign in zip(torch.as_tensor(X), y, strict=True):
        (grad,) = torch.autograd.grad(model(x[None]).sum(), model.first.coef)
        rows.append(sign * grad.flatten().numpy())
    return np.array(rows)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_acceptance_kan_correlated_24_kernel_equals_the_explicit_gram_matrix(activation):
    model, (X, y) = network(activation=activation), records(20)
    rows = gradients(X, y, model)
    np.testing.assert_allclose(tangent_kernel(X, y, model), rows @ rows.T, rtol=0, atol=1e-10)


def test_acceptance_kan_correlated_24_one_record_has_its_gradients_norm():
    model, (X, y) = network(), records(1)
    found = ntk_margin(X, y, model)
    assert found.value == pytest.approx(np.linalg.norm(gradients(X, y, model)), rel=1e-12)
    assert found.gamma == min(1.0, found.value)


@pytest.mark.parametrize(("n", "m"), [(10, 8), (60, 32), (200, 64)])
def test_acceptance_kan_correlated_24_margin_and_its_gap(n, m):
    model, (X, y) = network(m=m), records(n)
    found = ntk_margin(X, y, model)
    rows = gradients(X, y, model)
    u = found.direction.flatten()
    assert found.gap < 1e-6 and found.is_separable
    assert np.linalg.norm(u) == pytest.approx(1.0, abs=1e-12)
    assert (rows @ u).min() >= found.value - 1e-6
    # No direction does better: the weights show a short vector in the convex hull.
    assert found.weights.min() >= 0 and found.weights.sum() == pytest.approx(1.0)
    assert np.linalg.norm(found.weights @ rows) == pytest.approx(found.upper, abs=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 3))
def test_few_records_against_all_weights_of_a_grid(seed, n):
    rows = np.random.default_rng(seed).normal(size=(n, 3)) + 0.7
    found = largest_margin(rows @ rows.T)
    steps = np.linspace(0, 1, 301)
    if n == 2:
        weights = np.stack([steps, 1 - steps], 1)
    else:
        a, b = (grid.flatten() for grid in np.meshgrid(steps, steps))
        weights = np.stack([a, b, 1 - a - b], 1)[a + b <= 1]
    shortest = np.linalg.norm(weights @ rows, axis=1).min()
    assert found.value <= shortest + 1e-9
    assert found.upper >= shortest - 0.02 * np.abs(rows).max()


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(2, 6))
def test_the_margin_is_that_of_a_general_solver(seed, n, dimension):
    rows = np.random.default_rng(seed).normal(size=(n, dimension)) + 1.0
    found = largest_margin(rows @ rows.T)
    slow = minimize(
        lambda q: (q @ rows) @ (q @ rows),
        np.full(n, 1 / n),
        jac=lambda q: 2 * rows @ (q @ rows),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.upper == pytest.approx(math.sqrt(max(0, slow.fun)), abs=2e-5)
    assert found.gap <= 1e-6 or not found.is_separable


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_margin_grows_with_the_features_and_ignores_their_order(seed, scale):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(6, 4)) + 1.5
    once, order = largest_margin(rows @ rows.T), rng.permutation(6)
    scaled = largest_margin(scale**2 * rows @ rows.T)
    shuffled = largest_margin(rows[order] @ rows[order].T)
    assert scaled.value == pytest.approx(scale * once.value, rel=1e-7, abs=1e-9 * scale)
    assert shuffled.value == pytest.approx(once.value, rel=1e-7, abs=1e-9)


@given(st.integers(0, 10**6))
def test_more_records_have_no_larger_margin(seed):
    rows = np.random.default_rng(seed).normal(size=(7, 5)) + 1.0
    margins = [largest_margin(rows[:k] @ rows[:k].T).upper for k in range(1, 8)]
    assert all(b <= a + 1e-7 for a, b in pairwise(margins))


def test_what_cannot_be_separated_has_margin_0():
    X = np.zeros((2, 3))
    found = ntk_margin(X, [1, -1], network())
    assert found.value == 0 and not found.is_separable and found.gap < 1e-7
    opposite = np.array([[1.0, 0.0], [-1.0, 0.2], [-1.0, -0.2]])
    assert largest_margin(opposite @ opposite.T).value == 0
    assert largest_margin(np.zeros((2, 2))).upper == 0


def test_a_solver_that_gives_up_leaves_an_honest_gap(monkeypatch):
    def gives_up(*_, **__):
        raise RuntimeError("Maximum number of iterations reached.")

    rows = np.array([[1.0, 0.0], [0.0, 2.0]])
    best = largest_margin(rows @ rows.T)
    monkeypatch.setattr("antiphon_papers.common.margin.nnls", gives_up)
    found = largest_margin(rows @ rows.T)
    assert 0 < found.value < best.value < found.upper


def test_bad_arguments_say_what_is_allowed():
    model = network()
    with pytest.raises(PlanError, match="-1 or \\+1"):
        ntk_margin(np.zeros((2, 3)), [0, 1], model)
    with pytest.raises(PlanError, match="one label per record; got 1 for 2"):
        tangent_kernel(np.zeros((2, 3)), [1], model)
    with pytest.raises(PlanError, match=r"shape \(n, 3\); got \(2, 4\)"):
        ntk_margin(np.zeros((2, 4)), [1, 1], model)
    with pytest.raises(PlanError, match="finite"):
        largest_margin(np.full((2, 2), np.nan))


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_acceptance_kan_dpgd_24_kernel_of_both_layers(activation):
    """Equal to the Gram matrix of autograd's gradients, positive semidefinite, and a margin from it."""
    model, (X, y) = network(activation=activation, train="both"), records(25)
    rows = []
    for x, sign in zip(torch.as_tensor(X), y, strict=True):
        layers = [model.first.coef, model.second.coef]
        first, second = torch.autograd.grad(model(x[None]).sum(), layers)
        # Unit by unit: its coefficients of the first layer, then those of the second.
        parts = [first.reshape(8, -1), second.reshape(8, -1)]
        rows.append(sign * torch.cat(parts, dim=1).flatten().numpy())
    rows = np.array(rows)
    kernel = tangent_kernel(X, y, model, layers="both")
    np.testing.assert_allclose(kernel, rows @ rows.T, rtol=0, atol=1e-10)
    assert np.linalg.eigvalsh(kernel).min() > -1e-10
    found = ntk_margin(X, y, model, layers="both")
    assert found.is_separable and found.gap < 1e-6
    assert (rows @ found.direction.flatten()).min() >= found.value - 1e-6
    assert found.value >= ntk_margin(X, y, model).value - 1e-9  # more features separate no worse


def test_acceptance_kan_dpgd_24_contradicting_labels_are_infeasible():
    model, (X, y) = network(train="both"), records(15)
    found = ntk_margin(np.concatenate([X, X]), np.concatenate([y, -y]), model, layers="both")
    assert not found.is_separable and found.value == 0 and found.upper < 1e-6
    with pytest.raises(PlanError, match="layers is 'first' or 'both'; got 'second'"):
        tangent_kernel(X, y, model, layers="second")
