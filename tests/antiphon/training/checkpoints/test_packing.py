"""States of optimizers and schedulers as tensors and JSON, there and back."""

import json
import math
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import OPTIMIZERS, assert_same_bits, network

from antiphon.errors import StateError
from antiphon.training.checkpoints.packing import pack, unpack

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
KEYS = st.integers() | st.text(max_size=5) | st.tuples(st.integers(), st.text(max_size=3))
VALUES = st.recursive(
    LEAVES | st.integers(0, 5).map(lambda n: torch.arange(float(n))),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$tensor", "$pairs", "$tuple"]), inner)
    ),
    max_leaves=10,
)


def there_and_back(value):
    tensors = {}
    text = json.dumps(pack(value, "state", tensors))
    return unpack(json.loads(text), tensors)


@given(VALUES)
def test_what_is_packed_comes_back(value):
    actual = there_and_back(value)
    assert type(actual) is type(value)
    assert_same_bits(actual, value)


@given(st.lists(VALUES, max_size=4))
def test_every_tensor_has_a_name_of_its_own(values):
    tensors = {}
    packed = json.dumps(pack(values, "state", tensors))
    assert packed.count('"$tensor": "') == len(tensors)


def test_numbers_that_are_not_finite_come_back():
    assert there_and_back([math.inf, -math.inf]) == [math.inf, -math.inf]
    assert math.isnan(there_and_back(math.nan))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_an_optimizer_comes_back(name):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert_same_bits(there_and_back(optimizer.state_dict()), optimizer.state_dict())


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1, 3]),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=9),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: 0.9**t),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [
                torch.optim.lr_scheduler.LinearLR(o, total_iters=2),
                torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
            ],
            [2],
        ),
    ],
)
def test_schedulers_resume_from_their_packed_state(make):
    def rates(scheduler, count):
        found = []
        for _ in range(count):
            scheduler.optimizer.step()
            arguments = (1.0,) if "Plateau" in type(scheduler).__name__ else ()
            scheduler.step(*arguments)
            found.append(scheduler.optimizer.param_groups[0]["lr"])
        return found

    def fresh():
        return make(torch.optim.SGD(network().parameters(), lr=0.1))

    expected = rates(fresh(), 6)
    half, other = fresh(), fresh()
    rates(half, 3)
    other.optimizer.load_state_dict(there_and_back(half.optimizer.state_dict()))
    other.load_state_dict(there_and_back(half.state_dict()))
    assert rates(other, 3) == expected[3:]


def test_ordered_dictionaries_become_plain_ones():
    assert there_and_back(OrderedDict(b=1, a=2)) == {"b": 1, "a": 2}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", torch.float32, 1j])
def test_what_only_pickle_could_keep_is_refused(value):
    with pytest.raises(StateError, match=r"state\.0 holds"):
        pack([value], "state", {})
