"""The state of model and loss between evaluations and steps."""

import functools
import itertools
from types import ModuleType

import pytest
import torch
from oracles.keeping_net import Holder, Net, evaluate, loss
from torch import nn

from antiphon.errors import RunError, UnsupportedError
from antiphon.training.gradients.state import State


def test_a_state_that_was_not_taken_is_an_error():
    with pytest.raises(RunError, match="before"):
        State(Net(), loss).after()


def test_changes_between_the_steps_are_kept():
    net = Net()
    net.history, net.steps = [], 0
    net.register_buffer("scale", torch.ones(2))
    state = State(net, loss)
    for step in range(4):
        net.history.append(torch.ones(step))
        net.steps += 1
        net.extra = nn.Linear(1, 1)
        with torch.no_grad():
            net.scale.add_(1), net.layer.bias.add_(1)
        state.before()
        expected = (
            list(net.history),
            net.steps,
            net.extra,
            net.scale.clone(),
            net.layer.bias.clone(),
        )
        net.history.append(3)
        net.history[0] = None
        net.steps, net.extra = -1, None
        net.scale.zero_()
        state.after()
        assert all(a is b for a, b in zip(net.history, expected[0], strict=True))
        assert net.steps == expected[1] and net.extra is expected[2]
        assert torch.equal(net.scale, expected[3]) and torch.equal(net.layer.bias, expected[4])


def test_gradients_are_the_same_with_the_state_between_forward_and_backward():
    net = Net()
    plain = torch.autograd.grad(evaluate(net).sum(), net.parameters())
    net.rows, net.calls = [], 0
    net.keep = lambda h: (net.rows.append(h), setattr(net, "calls", net.calls + 1))
    state = State(net, loss)
    state.before()
    losses = evaluate(net)
    state.after()
    assert len(net.rows) == net.calls == 0
    for got, expected in zip(
        torch.autograd.grad(losses.sum(), net.parameters()), plain, strict=True
    ):
        assert torch.equal(got, expected)


def test_a_module_imported_by_the_loss_stays():
    def imports(model, x):
        global colorsys
        import colorsys

        return model(x).sum()

    state = State(Net(), imports)
    state.before()
    evaluate(Net(), imports)
    state.after()
    assert isinstance(globals().pop("colorsys"), ModuleType)


def test_caches_are_empty_before_every_evaluation():
    @functools.cache
    def remember(name):
        return object()

    state = State(Net(remember), loss)
    for _ in range(2):
        remember("between the steps")
        state.before()
        assert remember.cache_info() == (0, 0, None, 0)
        remember("in a step")
        remember("in a step")
        state.after()
        assert remember.cache_info() == (0, 0, None, 0)


def test_long_names_are_cut():
    net = Net()
    nest = net
    for _ in range(100):
        nest.child = Holder()
        nest = nest.child
    nest.source = itertools.count()
    state = State(net, loss)
    state.before()
    next(nest.source)
    with pytest.raises(UnsupportedError, match=r"^model\.child\.child") as caught:
        state.after()
    assert len(str(caught.value)) < 400


def test_a_state_within_reach_is_left_alone():
    net = Net()
    net.state = State(net, loss)
    net.rows = []
    for _ in range(2):
        net.state.before()
        net.rows.append(1)
        net.state.after()
        assert net.rows == []


def test_an_object_that_came_between_the_steps_is_watched():
    net = Net()
    net.holder = None
    state = State(net, loss)
    state.before()
    net.holder = Holder()
    net.holder.rows = []
    state.before()
    net.holder.rows.append(1)
    state.after()
    assert net.holder.rows == []
