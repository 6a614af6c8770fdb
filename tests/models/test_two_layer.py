"""The papers' network against their sums and closed forms."""

import math

import pytest
import torch

from antiphon.errors import PlanError
from antiphon.models import TwoLayerKAN, spline_basis


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


def test_bad_arguments_say_what_is_allowed():
    with pytest.raises(PlanError, match=r"activation must be one of .*'sigmoid'.*; got 'relu'"):
        TwoLayerKAN(3, 2, activation="relu")
    with pytest.raises(PlanError, match="m must be a whole number of at least 1; got 0"):
        TwoLayerKAN(3, 0)
    with pytest.raises(PlanError, match="intervals must be a whole number of at least 1; got 0"):
        TwoLayerKAN(3, 2, intervals=0)
