"""Reads of parameters are seen, or the evaluation is refused; nothing is followed in part in silence."""

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.nn import functional as F

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.examples import Examples

D = 4
hidden = torch._C.DisableTorchFunction  # under its name, a loss may not use it
X = torch.randn(3, 1, D, generator=torch.Generator().manual_seed(0))


def doubled(x):
    """An operation that no mode sees."""
    with hidden():
        return 2 * x


class Tripled(torch.autograd.Function):
    """An autograd function for which torch makes the batching rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 3 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 3 * g


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))


def evaluate(loss, made=None):
    made = made or model()
    path = Batched(made, loss, dict(made.named_parameters()), bytes(32))
    return made, path.evaluate(0, torch.arange(3), Examples.of((X,)))[1]


def unseen_weight(model, x):
    return F.linear(x, doubled(model[0].weight)).sum()


def unseen_weight_before_a_tap(model, x):
    """What goes into the tap is equal for all examples, and was computed from a parameter."""
    return (model[1](doubled(model[0].weight)) * x.sum()).sum()


def unseen_bias(model, x):
    return F.linear(x, model[1].weight, doubled(model[0].bias)).square().sum()


def unseen_transposed(model, x):
    return (x @ doubled(model[0].weight.T)).sum()


def gradient_for_parameters(model, x):
    """The gradient of the model's own parameters, for instance of an inner step."""
    of_weight = grad(lambda w: F.linear(x, w).square().sum())(model[0].weight)
    return of_weight.square().sum()


@pytest.mark.parametrize(
    "loss",
    [
        unseen_weight,
        unseen_weight_before_a_tap,
        unseen_bias,
        unseen_transposed,
        gradient_for_parameters,
    ],
)
def test_a_read_that_no_mode_sees_is_refused(loss):
    with pytest.raises(UnsupportedError, match=r"'[01]\.(weight|bias)': read in a way"):
        evaluate(loss)


def changed_later(model, x):
    x = 1 * x
    out = model[0](x)
    x.mul_(2)
    return out.sum()


def changed_constant(model, x):
    ones = torch.ones(D)
    out = model[0](ones) * x
    ones.mul_(2)
    return out.sum()


@pytest.mark.parametrize("loss", [changed_later, changed_constant])
def test_an_input_that_is_changed_after_its_use_is_refused(loss):
    with pytest.raises(UnsupportedError, match="changed in place"):
        evaluate(loss)


def test_what_comes_out_may_be_changed_in_place():
    made, factors = evaluate(lambda model, x: model[0](x).mul_(3).relu_().sum())
    plain = [torch.autograd.grad(3 * made[0](x).relu().sum(), made[0].weight)[0] for x in X]
    torch.testing.assert_close(factors[made[0].weight].dense(), torch.stack(plain))


def test_autograd_functions_of_parameters_are_followed():
    made, factors = evaluate(lambda model, x: F.linear(x, Tripled.apply(model[0].weight)).sum())
    plain = torch.stack([3 * x.expand(D, D) for x in X])
    torch.testing.assert_close(factors[made[0].weight].dense(), plain)


@pytest.mark.parametrize(
    "read",
    [
        lambda w, x: x @ w.detach(),
        lambda w, x: x @ w.data.T,
        lambda w, x: x * w.shape[0] + w.numel() + len(w) + w.dim() + w.size(1),
        lambda w, x: x.to(w.dtype).to(w.device),
    ],
)
def test_what_reads_nothing_has_no_gradient(read):
    made, factors = evaluate(lambda model, x: model[1](read(model[0].weight, x)).sum())
    assert made[0].weight not in factors and made[1].weight in factors


def test_a_conversion_that_changes_nothing_keeps_the_parameter():
    made, factors = evaluate(lambda model, x: F.linear(x, model[0].weight.float().to(X)).sum())
    plain = torch.stack([x.expand(D, D) for x in X])
    torch.testing.assert_close(factors[made[0].weight].dense(), plain)
