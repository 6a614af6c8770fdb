"""The papers' network against their sums and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

from antiphon.errors import PlanError
from antiphon.models import spline_basis
from antiphon_papers.common.two_layer_kan import TwoLayerKAN


def papers_sum(model, x):
    """f(x) of one example as the papers print it: plain sums over i, j and k."""
    d, m = len(x), model.first.out_features
    w = model.first.coef.detach().reshape(m, d, -1)  # [j, i, k]
    c = model.second.coef.detach().reshape(m, -1)
    total = 0.0
    for j in range(m):
        a = sum(w[j, i] @ spline_basis(x[i], model.first.splines) for i in range(d)) / math.sqrt(d)
        total += c[j] @ spline_basis(getattr(torch, model.activation)(a), model.second.splines)
    return total / math.sqrt(m)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_acceptance_kan_two_layer_network_and_its_gradient(activation):
    torch.manual_seed(3)
    d, m = 4, 6
    model, x = (
        TwoLayerKAN(d, m, activation=activation).double(),
        torch.linspace(-1.2, 1.1, 5 * d).double().reshape(5, d),
    )
    out = model(x)
    assert out.shape == (5,)
    for row, value in zip(x, out, strict=True):
        torch.testing.assert_close(value, papers_sum(model, row))
        a = model.first(row) / math.sqrt(d)
        z = getattr(torch, activation)(a)
        slope = 1 - z**2 if activation == "tanh" else z * (1 - z)
        c = model.second.coef.reshape(m, -1)
        s = slope * (c * spline_basis(z, model.second.splines, 1)).sum(-1)
        (grad,) = torch.autograd.grad(model(row[None]).sum(), model.first.coef)
        phi = model.first.features(row)
        torch.testing.assert_close(grad, torch.outer(s, phi) / math.sqrt(m * d))
        norm = float((s.detach().norm() * phi.norm()) / math.sqrt(m * d))
        assert float(grad.norm()) == pytest.approx(norm, rel=1e-12)


def test_the_second_layer_is_frozen_and_both_start_standard_normal():
    torch.manual_seed(0)
    model = TwoLayerKAN(40, 500)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["first.mix.weight"]
    assert model.first.coef.shape == (500, 40 * 8) and model.second.coef.shape == (1, 500 * 8)
    for draws in (model.first.coef, model.second.coef):
        assert float(draws.detach().std()) == pytest.approx(1.0, abs=0.06)
    model(torch.linspace(-1, 1, 120).reshape(3, 40)).sum().backward()
    assert model.second.coef.grad is None and model.first.coef.grad.abs().sum() > 0


@pytest.mark.parametrize("degree", [1, 2, 4, 5])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_every_degree_gives_the_splines_of_de_boor_and_their_slopes(degree, activation):
    torch.manual_seed(degree)
    d, m = 3, 4
    model = TwoLayerKAN(d, m, intervals=4, degree=degree, activation=activation, train="both")
    model.double()
    x = torch.rand(6, d, dtype=torch.float64) * 2 - 1
    w, c = (
        layer.coef.detach().reshape(m, -1, 4 + degree).numpy()
        for layer in (model.first, model.second)
    )

    def spline(layer, coef):
        return BSpline(layer.splines.knots, coef, degree)

    out = np.zeros(6)
    gradient = np.zeros((m, d, 4 + degree))  # of the sum over examples
    basis = spline(model.first, np.eye(4 + degree))(x.numpy())  # [example, input, function]
    for j in range(m):
        a = sum(spline(model.first, w[j, i])(x[:, i].numpy()) for i in range(d)) / math.sqrt(d)
        u = np.tanh(a) if activation == "tanh" else 1 / (1 + np.exp(-a))
        edge = spline(model.second, c[j, 0])
        out += edge(u) / math.sqrt(m)
        slope = (1 - u**2 if activation == "tanh" else u * (1 - u)) * edge.derivative()(u)
        gradient[j] = np.einsum("n,nik->ik", slope, basis) / math.sqrt(m * d)
    found = model(x)
    np.testing.assert_allclose(found.detach().numpy(), out, atol=1e-12)
    found.sum().backward()
    np.testing.assert_allclose(model.first.coef.grad.numpy(), gradient.reshape(m, -1), atol=1e-11)


@pytest.mark.parametrize(
    ("train", "learns"), [("first", [0]), ("second", [1]), ("both", [0, 1])], ids=str
)
def test_the_layers_that_learn_are_those_asked_for(train, learns):
    model = TwoLayerKAN(3, 4, train=train)
    model(torch.zeros(2, 3)).sum().backward()
    layers = [model.first.coef, model.second.coef]
    assert [i for i, coef in enumerate(layers) if coef.grad is not None] == learns


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_an_antisymmetric_start_answers_zero_and_learns(activation):
    torch.manual_seed(0)
    model = TwoLayerKAN(3, 8, start="antisymmetric", train="both", activation=activation).double()
    x = torch.rand(20, 3).double() * 2 - 1
    assert float(model(x).detach().abs().max()) < 1e-13
    model(x).square().add(model(x)).sum().backward()
    assert model.first.coef.grad.norm() > 0.1 and model.second.coef.grad.norm() > 0.1
    before = model.first.coef.detach().clone()
    model.reset_parameters()
    assert float(model(x).detach().abs().max()) < 1e-13
    assert not torch.equal(before, model.first.coef)


def test_the_scale_of_the_second_layer_scales_the_first_ones_gradient():
    gradients = []
    for scale in (1.0, 0.1):
        torch.manual_seed(1)
        model = TwoLayerKAN(3, 8, scale=scale)
        model(torch.full((1, 3), 0.3)).sum().backward()
        gradients.append(model.first.coef.grad)
    torch.testing.assert_close(gradients[1], 0.1 * gradients[0])


def test_bad_arguments_say_what_is_allowed():
    with pytest.raises(PlanError, match=r"activation must be one of .*'sigmoid'.*; got 'relu'"):
        TwoLayerKAN(3, 2, activation="relu")
    with pytest.raises(PlanError, match="m must be a whole number of at least 1; got 0"):
        TwoLayerKAN(3, 0)
    with pytest.raises(PlanError, match="intervals must be a whole number of at least 1; got 0"):
        TwoLayerKAN(3, 2, intervals=0)
    with pytest.raises(PlanError, match="degree must be at most 5; got 6"):
        TwoLayerKAN(3, 2, degree=6)
    with pytest.raises(PlanError, match=r"m must be even; got 3\. Take m = 4, or start='gaussian'"):
        TwoLayerKAN(3, 3, start="antisymmetric")
    with pytest.raises(PlanError, match=r"start must be one of \['gaussian', .*; got 'zero'"):
        TwoLayerKAN(3, 2, start="zero")
    with pytest.raises(PlanError, match=r"train must be one of \['first', .*; got 'last'"):
        TwoLayerKAN(3, 2, train="last")
    with pytest.raises(PlanError, match="scale must be positive and finite; got 0"):
        TwoLayerKAN(3, 2, scale=0.0)
