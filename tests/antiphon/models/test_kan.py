"""Kolmogorov-Arnold networks against sums over edges."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline
from torch import nn

from antiphon.errors import PlanError
from antiphon.models import KAN, KANLayer
from antiphon_papers.common.two_layer_kan import TwoLayerKAN


def inputs(*shape, dtype=torch.float64):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 2.4 - 1.2).to(dtype)


def edge_by_edge(layer, x):
    """One spline of SciPy per edge, added up in a loop."""
    grid = layer.splines
    coef = layer.coef.detach().reshape(layer.out_features, layer.in_features, -1).numpy()
    out = torch.zeros(len(x), layer.out_features, dtype=x.dtype)
    for o in range(layer.out_features):
        for i in range(layer.in_features):
            edge = BSpline(grid.knots, coef[o, i], grid.degree)
            out[:, o] += torch.from_numpy(edge(x[:, i].clamp(grid.low, grid.high).numpy()))
            if layer.base is not None:
                out[:, o] += layer.base_mix.weight[o, i].detach() * layer.base(x[:, i])
        out[:, o] += 0 if layer.mix.bias is None else layer.mix.bias[o].detach()
    return out


@pytest.mark.parametrize(
    "options",
    [{}, {"base": nn.SiLU(), "bias": True}, {"intervals": 2, "degree": 1, "low": 0.0, "high": 0.5}],
    ids=str,
)
def test_a_layer_adds_up_its_edges(options):
    layer = KANLayer(3, 4, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = inputs(9, 3)
    torch.testing.assert_close(layer(x), edge_by_edge(layer, x), atol=1e-12, rtol=0)


def test_an_examples_gradient_is_an_outer_product():
    layer = KANLayer(3, 2, base=nn.SiLU()).double()
    x = inputs(1, 3)
    out = layer(x)
    grad_out = torch.tensor([[0.3, -2.0]]).double()
    out.backward(grad_out)
    torch.testing.assert_close(layer.coef.grad, torch.outer(grad_out[0], layer.features(x)[0]))
    torch.testing.assert_close(
        layer.base_mix.weight.grad, torch.outer(grad_out[0], layer.base(x)[0])
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 3), (5, 3), (2, 7, 3), (3,)])
def test_sequences_and_empty_batches_pass(shape, dtype):
    model = KAN([3, 6, 2], base=nn.SiLU(), bias=True).to(dtype)
    x = inputs(*shape, dtype=dtype)
    out = model(x)
    assert out.shape == (*shape[:-1], 2) and out.dtype == dtype
    torch.testing.assert_close(out.reshape(-1, 2), model(x.reshape(-1, 3)))
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_network_is_its_layers_with_tanh_between():
    model = KAN([3, 5, 4, 2], intervals=4, low=0.0, high=2.0).double()
    layers = [part for part in model if isinstance(part, KANLayer)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(3, 5), (5, 4), (4, 2)]
    assert [(layer.splines.low, layer.splines.high) for layer in layers] == [
        (0, 2),
        (-1, 1),
        (-1, 1),
    ]
    x = inputs(6, 3)
    hidden = torch.tanh(layers[1](torch.tanh(layers[0](x))))
    torch.testing.assert_close(model(x), layers[2](hidden))


def test_gradients_of_a_network_are_right():
    model = KAN([2, 3, 1], base=nn.SiLU()).double()
    x = inputs(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(model, x)


def test_per_example_gradients_by_torch_func():
    model, x = KAN([3, 4, 1]).double(), inputs(5, 3)
    parameters = dict(model.named_parameters())

    def output(parameters, row):
        return torch.func.functional_call(model, parameters, (row[None],)).sum()

    found = torch.func.vmap(torch.func.grad(output), (None, 0))(parameters, x)
    for row in range(5):
        expected = torch.autograd.grad(model(x[row : row + 1]).sum(), list(parameters.values()))
        for name, grad in zip(parameters, expected, strict=True):
            torch.testing.assert_close(found[name][row], grad)


def test_layers_do_not_share_a_base_with_parameters():
    bases = [part.base for part in KAN([3, 3, 3], base=nn.PReLU()) if isinstance(part, KANLayer)]
    assert bases[0] is not bases[1]


@pytest.mark.parametrize("width", [3, 400])
def test_outputs_start_with_the_stated_deviation(width):
    """20,000 draws: their deviation is found to 0.5 %, so that 3 % is six of its own deviations."""
    torch.manual_seed(0)
    x = torch.rand(1, width) * 2 - 1
    layer = KANLayer(width, 20_000)
    with torch.no_grad():
        deviation = float(layer(x).std())
    assert deviation == pytest.approx(float(layer.features(x).norm()) / math.sqrt(width), rel=0.03)
    assert 0.678 * 0.97 < deviation < 0.708 * 1.03


def test_models_have_no_buffers_and_survive_copies():
    for model in (KAN([3, 4, 2]), TwoLayerKAN(3, 4)):
        x = inputs(5, 3, dtype=torch.float32)
        assert list(model.buffers()) == []
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(twin(x), model(x), rtol=0, atol=0)


def test_a_network_can_be_compiled_as_one_graph():
    model, x = KAN([3, 4, 2]).double(), inputs(5, 3)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))


def test_a_network_learns_a_product():
    """From a mean square of 1/9 to below 1e-3 within 200 steps."""
    torch.manual_seed(0)
    model, x = KAN([2, 8, 1]), torch.rand(256, 2) * 2 - 1
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(200):
        optimizer.zero_grad()
        loss = (model(x)[:, 0] - x[:, 0] * x[:, 1]).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < 1e-3


def test_bad_arguments_say_what_is_allowed():
    with pytest.raises(PlanError, match="in_features must be a whole number of at least 1; got 0"):
        KANLayer(0, 2)
    with pytest.raises(
        PlanError, match="out_features must be a whole number of at least 1; got -2"
    ):
        KANLayer(2, -2)
    with pytest.raises(PlanError, match=r"low < high; got \(1.0, -1.0\)"):
        KANLayer(2, 1, low=1.0, high=-1.0)
    with pytest.raises(PlanError, match=r"widths must name .* got \[3\]"):
        KAN([3])
    with pytest.raises(PlanError, match=r"shape \(..., 3\); got \(4, 2\)"):
        KANLayer(3, 1)(torch.zeros(4, 2))
    with pytest.raises(PlanError, match=r"shape \(..., 3\); got \(\)"):
        KANLayer(3, 1)(torch.zeros(()))
    assert np.isfinite(KANLayer(3, 1)(torch.full((1, 3), 1e30)).detach().numpy()).all()
