"""Tensors are compared by version or bit by bit, and put back."""

import functools

import pytest
import torch
from oracles.keeping_net import ROWS, Net, evaluate, loss
from torch import nn

from antiphon.errors import RunError, UnsupportedError
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.state import State


def test_values_written_past_the_version_are_seen_bit_by_bit_only():
    net = Net()
    net.register_buffer("mean", torch.tensor([1.0, float("nan"), 0.0]))
    state = State(net, loss)
    state.before(exact=True)
    net.mean.data.mul_(-1)
    net.layer.bias.data.zero_()
    bias = net.layer.bias.clone()
    state.after()
    assert net.mean[0] == -1
    with pytest.raises(UnsupportedError, match=r"'layer.bias'"):
        state.after(exact=True)
    assert (
        net.mean.view(torch.int32).tolist()
        == torch.tensor([1.0, float("nan"), 0.0]).view(torch.int32).tolist()
    )
    assert not torch.equal(net.layer.bias, bias)
    state.after(exact=True)


def test_parameters_are_cloned_for_bitwise_comparison_only():
    net = Net()
    state = State(net, loss)
    state.before()
    with torch.no_grad():
        net.layer.bias.fill_(7)
    with pytest.raises(UnsupportedError):
        state.after()
    assert net.layer.bias[0] == 7
    with pytest.raises(RunError, match=r"before\(exact=True\)"):
        state.after(exact=True)


def test_gradients_that_add_up_are_put_back_after_single_examples():
    net = Net()
    loss(net, ROWS).backward()
    before = net.layer.bias.grad.clone()
    gradient = net.layer.bias.grad
    state = State(net, loss)
    state.before(exact=True)
    for row in ROWS:
        loss(net, row[None]).backward()
        state.after(exact=True)
        assert net.layer.bias.grad is gradient
        assert torch.equal(gradient, before)


def test_a_tensor_that_enters_or_leaves_a_graph_between_the_steps_is_followed():
    net = Net()
    net.total = torch.zeros(2)
    state = State(net, loss)
    for _ in range(2):
        state.before()
        net.total.add_(net.layer.bias)
        state.before()
        state.after()
        assert net.total.grad_fn is not None
        net.total.detach_()


def test_a_large_tensor_is_cloned_for_bitwise_comparison_only():
    net = Net()
    net.table = torch.zeros(2**26 + 1, dtype=torch.bool)
    state = State(net, loss)
    state.before()
    net.table.fill_(True)
    with pytest.raises(
        UnsupportedError, match=r"model\.table: an object of type Tensor was changed"
    ):
        state.after()
    state.before(exact=True)
    net.table.fill_(False)
    state.after(exact=True)
    assert net.table.all()


def test_a_batched_tensor_of_an_earlier_evaluation_is_refused():
    net = Net()
    net.keep = functools.partial(setattr, net, "last")
    state = State(net, loss)
    evaluate(net)
    with pytest.raises(UnsupportedError, match=r"model\.last is a tensor of an earlier evaluation"):
        state.before()


def test_running_means_that_move_no_version_are_put_back_bit_by_bit():
    net = nn.BatchNorm1d(2)
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    state = State(net, loss)
    for _ in range(2):
        state.before(exact=True)
        loss(net, ROWS)
        assert not torch.equal(net.running_mean, before["running_mean"])
        state.after(exact=True)
        for name, buffer in net.named_buffers():
            assert torch.equal(buffer, before[name])


def test_under_vmap_writes_through_data_are_seen_by_the_version():
    def evaluate(write):
        net = nn.Linear(2, 1)
        net.register_buffer("calls", torch.zeros(1))

        def loss(model, x):
            write(model)
            return model(x).sum()

        path = Batched(net, loss, dict(net.named_parameters()), bytes(32))
        path.evaluate(0, torch.arange(3), Examples((ROWS,), {}))
        return net.calls.item()

    assert evaluate(lambda model: model.calls.data.add_(1)) == 0
    assert evaluate(lambda model: model.weight.data.sum()) == 0
    with pytest.raises(UnsupportedError, match="the parameter 'weight' was changed"):
        evaluate(lambda model: model.weight.data.zero_())
