"""Calls that have a rule give factors, not gradients of single examples."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.convolution import Convolution
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.factors import Dense, Rows
from antiphon.training.gradients.lookups import Lookups
from antiphon.training.gradients.outer import Outer
from antiphon.training.gradients.sum_of_factors import Sum

D, T = 4, 3
X = torch.randn(5, 1, T, D, generator=torch.Generator().manual_seed(0))
WORDS = torch.randint(0, D, (5, 1, T), generator=torch.Generator().manual_seed(0))
IMAGES = X.expand(5, D, T, D)[:, None]


class Model(nn.Module):
    """A square matrix, a vector and a kernel."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w, self.b = nn.Parameter(torch.randn(D, D)), nn.Parameter(torch.randn(D))
        self.k = nn.Parameter(torch.randn(2, D, 2, 2))


def factor_of(call, x=X, name="w"):
    model = Model()
    loss = lambda model, x: call(model, x).square().sum()  # noqa: E731
    path = Batched(model, loss, dict(model.named_parameters()), bytes(32))
    return path.evaluate(0, torch.arange(len(x)), Examples.of((x,)))[1][model.get_parameter(name)]


KINDS = {
    "linear": (lambda m, x: F.linear(x, m.w, m.b), Outer),
    "linear, twice": (lambda m, x: F.linear(F.linear(x, m.w), m.w), Outer),
    "linear of a constant": (lambda m, x: x + F.linear(torch.ones(T, D), m.w), Outer),
    "linear of a parameter": (lambda m, x: x + F.linear(m.b, m.w), Outer),
    "product": (lambda m, x: x @ m.w, Outer),
    "matmul": (lambda m, x: torch.matmul(x, m.w), Outer),
    "mm": (lambda m, x: x[0].mm(m.w), Outer),
    "sum and product": (lambda m, x: torch.addmm(m.b, x[0], m.w), Outer),
    "product with the transposed": (lambda m, x: x @ m.w.T, Outer),
    "linear with the transposed": (lambda m, x: F.linear(x, m.w.t(), m.b), Outer),
    "sum and product with the transposed": (lambda m, x: torch.addmm(m.b, x[0], m.w.mT), Outer),
    "products of all kinds": (lambda m, x: F.linear(x, m.w) @ m.w @ m.w.T, Outer),
    "table": (lambda m, x: F.embedding(x, m.w), Lookups),
    "table of a constant": (lambda m, x: F.embedding(torch.arange(3), m.w) * x[..., None], Lookups),
    "bags": (lambda m, x: F.embedding_bag(x, m.w), Lookups),
    "tied": (lambda m, x: F.linear(F.embedding(x, m.w), m.w), Sum),
    "tied, by the transposed": (lambda m, x: F.embedding(x, m.w) @ m.w.T, Sum),
    "a table that is added too": (lambda m, x: F.embedding(x, m.w) + m.w[0], Dense),
}
INPUTS = {"table": WORDS, "table of a constant": WORDS, "bags": WORDS, "tied": WORDS,
          "tied, by the transposed": WORDS, "a table that is added too": WORDS}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_calls_that_have_a_rule_give_factors(name):
    call, kind = KINDS[name]
    assert type(factor_of(call, INPUTS.get(name, X))) is kind


def test_several_images_of_an_example_are_added_up():
    one = factor_of(lambda m, x: F.conv2d(x[:1], m.k), IMAGES, "k")
    several = factor_of(lambda m, x: F.conv2d(x.expand(2, *x.shape[1:]), m.k), IMAGES, "k")
    assert type(one) is Convolution and type(several) is Dense
    torch.testing.assert_close(several.dense(), 2 * one.dense())


def test_rows_of_a_packed_weight_are_kept_apart():
    layer = nn.MultiheadAttention(D, 2, batch_first=True)
    loss = lambda model, x: model(x, x + 1, x - 1)[0].square().sum()  # noqa: E731
    path = Batched(layer, loss, dict(layer.named_parameters()), bytes(32))
    _, factors = path.evaluate(0, torch.arange(5), Examples.of((X,)))
    for parameter in (layer.in_proj_weight, layer.in_proj_bias):
        factor = factors[parameter]
        assert type(factor) is Rows and set(factor.parts) == {(0, D), (D, 2 * D), (2 * D, 3 * D)}


@pytest.mark.parametrize("function", [F.embedding, F.embedding_bag])
@pytest.mark.parametrize(
    "option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}]
)
def test_options_of_tables_that_look_at_the_data_are_refused(function, option):
    with pytest.raises(UnsupportedError, match="Leave"):
        factor_of(lambda m, x: function(x, m.w, **option), WORDS)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"mode": "median"}, "median"),
        ({"mode": "mean", "per_sample_weights": torch.ones(1, T)}, "per_sample_weights"),
        ({"mode": "sum", "per_sample_weights": torch.ones(T)}, "per_sample_weights"),
        ({"offsets": torch.zeros(1, dtype=torch.long)}, "two axes"),
    ],
)
def test_bags_that_torch_refuses_are_refused(named, message):
    with pytest.raises(ValueError, match=message):
        factor_of(lambda m, x: F.embedding_bag(x, m.w, **named), WORDS)
    with pytest.raises((ValueError, NotImplementedError)):
        F.embedding_bag(WORDS[0], torch.ones(D, D), **named)
