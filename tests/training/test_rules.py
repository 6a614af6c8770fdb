"""Which layers have a rule; that the rules are right is in ``tests/contracts/test_layer.py``."""

from types import MethodType

import pytest
import torch
from oracles.clipped import naive_gradients, naive_sum, row_losses, scales_of
from oracles.quick import quick_sum
from torch import nn

from antiphon.training.rules import rule_for


class SameForward(nn.Linear):
    """Differs in nothing that matters."""


class OtherForward(nn.Linear):
    def forward(self, x):
        return super().forward(x) ** 2


class OtherWeights(nn.Conv2d):
    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, weight - weight.mean(), bias)


class MoreParameters(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.extra = nn.Parameter(torch.ones(1))


def test_a_rule_holds_for_what_its_class_computes():
    for layer in (
        nn.Linear(2, 2),
        SameForward(2, 2),
        nn.Conv1d(1, 1, 1),
        nn.PReLU(),
        nn.RMSNorm(2),
    ):
        assert rule_for(layer) is not None
    assert rule_for(nn.Linear(2, 2)) is rule_for(SameForward(2, 2))
    for layer in (
        OtherForward(2, 2),
        OtherWeights(1, 1, 1),
        MoreParameters(),
        nn.Bilinear(1, 1, 1),
    ):
        assert rule_for(layer) is None


def test_a_layer_with_a_forward_of_its_own_has_no_rule():
    layer = nn.Linear(2, 2)
    layer.forward = MethodType(lambda self, x: x @ self.weight, layer)
    assert rule_for(layer) is None


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.PReLU(), nn.Flatten(2), nn.Linear(16, 6),
        nn.LayerNorm(6), nn.RMSNorm(6), nn.Conv1d(4, 2, 2), nn.Flatten(), nn.Linear(10, 3),
    )  # fmt: skip


def images(rows=5):
    return torch.randn(rows, 1, 4, 4, generator=torch.Generator().manual_seed(1))


def relative(quick, naive):
    difference = sum(float((quick[n].double() - g).square().sum()) for n, g in naive.items())
    return (difference / sum(float(g.square().sum()) for g in naive.values())) ** 0.5


def test_a_network_in_bfloat16_is_right_to_its_own_precision():
    model, x = network().bfloat16(), images().bfloat16()
    truth = naive_gradients(model.double(), (x.double(),), {}, 5)
    quick = quick_sum(network().bfloat16(), (x,), {}, 5)
    assert all(g.dtype is torch.float32 for g in quick.values())
    assert relative(quick, naive_sum(truth)) < 0.05


@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # of torch's RMSNorm
@pytest.mark.parametrize("is_within", [True, False])
def test_a_network_within_autocast_is_right_to_its_own_precision(is_within):
    """Also if the step itself is taken within autocast: norms and sums are not cast."""
    truth = naive_sum(naive_gradients(network().double(), (images().double(),), {}, 5))

    def loss(out, scales):
        return row_losses(out.float(), scales)

    model = network()
    if is_within:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            quick = quick_sum(model, (images(),), {}, 5, loss=loss)
    else:
        plain = model.forward
        model.forward = lambda x: torch.autocast("cpu", dtype=torch.bfloat16)(plain)(x)
        quick = quick_sum(model, (images(),), {}, 5, loss=loss)
    assert relative(quick, truth) < 0.05


def test_one_example_within_autocast_stays_within_the_clip_norm():
    for rows in range(1, 4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            quick = quick_sum(
                nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)),
                (torch.randn(rows, 5, 3),), {}, rows, scales=torch.full((rows,), 100.0), clip_norm=0.7,
            )  # fmt: skip
        norm = sum(float(g.double().square().sum()) for g in quick.values()) ** 0.5
        assert norm <= 0.7 * rows * (1 + 1e-5)
        assert rows > 1 or norm == pytest.approx(0.7, rel=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_example_that_is_not_finite_does_not_touch_the_others(bad):
    x, scales = images(6), scales_of(6)
    x[2] = bad
    x[2, :, 0] = 0
    others = [0, 1, 3, 4, 5]
    quick = quick_sum(network(), (x,), {}, 6, scales=scales)
    without = quick_sum(network(), (x[others],), {}, 5, scales=scales[others])
    for name, gradient in without.items():
        torch.testing.assert_close(quick[name], gradient, rtol=1e-5, atol=1e-6)


def test_a_user_with_an_example_that_is_not_finite_counts_as_nobody():
    x, scales = images(6), scales_of(6)
    x[2] = float("nan")
    users = ["a", "b", "a", "c", "b", "c"]
    quick = quick_sum(network(), (x,), {}, 6, scales=scales, users=users)
    kept = [1, 3, 4, 5]
    without = quick_sum(
        network(), (x[kept],), {}, 4, scales=scales[kept], users=[users[i] for i in kept]
    )
    for name, gradient in without.items():
        torch.testing.assert_close(quick[name], gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("users", [None, ["a", "b", "a", "c", "b"]])
def test_a_batch_of_nothing_finite_adds_nothing(users):
    quick = quick_sum(network(), (images() * float("nan"),), {}, 5, users=users)
    assert all(float(g.abs().sum()) == 0 for g in quick.values())
