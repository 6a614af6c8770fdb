"""A batched tensor that outlives its evaluation is found where it is held; nothing else is refused."""

import contextvars
import functools
import gc
import queue
import threading
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import vmap

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.leaks import no_leaks
from antiphon.training.gradients.state import State

ROWS = torch.arange(6.0).reshape(3, 2) + 1
WRAPPED = torch._C._functorch.is_functorch_wrapped_tensor

kept_globally = None
setting = contextvars.ContextVar("setting", default=None)
local = threading.local()
go, threads = threading.Event(), []


class Net(nn.Module):
    def __init__(self, keep=None):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.keep = keep

    def forward(self, x):
        h = self.layer(x)
        if self.keep is not None:
            self.keep(h)
        return h


def evaluate(model):
    return vmap(lambda x: model(x[None]).square().sum(), randomness="different")(ROWS)


def all_wrapped():
    """Every tensor of torch.func that is alive, the slow way."""
    gc.collect()
    return [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor) and WRAPPED(x)]


HOLDERS = {}


def holder(words):
    """Registers a model that keeps a tensor, and the words by which its holder is called."""

    def register(function):
        HOLDERS[function.__name__.replace("_", " ")] = function, words
        return function

    return register


@holder("the attribute 'last' of an object of type Net")
def an_attribute():
    net = Net()
    net.keep = functools.partial(setattr, net, "last")
    return net


@holder("an object of type dict, in the attribute '_buffers' of an object of type Net")
def a_buffer():
    net = Net()
    net.register_buffer("last", torch.zeros(2))
    net.keep = functools.partial(setattr, net, "last")
    return net


@holder("an object of type list, in the attribute 'rows' of an object of type Net")
def a_list():
    net = Net()
    net.rows = []
    net.keep = lambda h: net.rows.append(h)
    return net


@holder("an object of type deque, in the variable 'rows' of a_deque")
def a_deque():
    rows = deque()
    return Net(lambda h: rows.append(h))


@holder("the global 'kept_globally' of .*test_leaks")
def a_global():
    def keep(h):
        global kept_globally
        kept_globally = h

    return Net(keep)


@holder("the variable 'last' of a_closure.<locals>.keep")
def a_closure():
    last = None

    def keep(h):
        nonlocal last
        last = h

    return Net(keep)


@holder("the attribute 'last' of a_class.<locals>.Own")
def a_class():
    class Own(Net):
        def forward(self, x):
            Own.last = super().forward(x)
            return Own.last

    return Own()


@holder("the attribute 'last' of a_function.<locals>.keep")
def a_function():
    def keep(h):
        keep.last = h

    return Net(keep)


@holder("object of type Slotted, in the variable 'thing'")
def a_slot():
    class Slotted:
        __slots__ = ("last",)

    thing = Slotted()

    def keep(h):
        thing.last = h

    return Net(keep)


@holder("the attribute 'last' of Linear")
def a_class_of_torch():
    return Net(lambda h: setattr(nn.Linear, "last", h))


@holder("the suspended a_generator.<locals>.rows")
def a_generator():
    net = Net()

    def rows(h):
        yield
        return h

    def keep(h):
        net.source = rows(h)
        next(net.source)

    net.keep = keep
    return net


@holder("the suspended a_coroutine.<locals>.row")
def a_coroutine():
    net = Net()

    async def row(h):
        await Pause()
        return h

    def keep(h):
        net.source = row(h)
        net.source.send(None)

    net.keep = keep
    return net


class Pause:
    def __await__(self):
        yield


@holder("the call of ")
def a_stored_exception():
    net = Net()

    def fail(h):
        h = h + 1
        raise ValueError

    def keep(h):
        try:
            fail(h)
        except ValueError as error:
            net.error = error

    net.keep = keep
    return net


@holder("does not see")
def an_array_of_objects():
    rows = np.array([None])
    return Net(lambda h: rows.__setitem__(0, h))


@holder("object of type _lru_cache_wrapper")
def a_cached_function():
    @functools.lru_cache
    def remember(h):
        return None

    return Net(remember)


@holder("object of type _lru_cache_wrapper")
def an_unbounded_cache():
    @functools.cache
    def remember(name):
        return net.last.pop()

    net = Net()
    net.last = []

    def keep(h):
        net.last.append(h)
        remember("last")

    net.keep = keep
    return net


@holder("object of type Context")
def a_context_variable():
    return Net(setting.set)


@holder("object of type _local, in the global 'local'")
def a_local_of_the_thread():
    return Net(lambda h: setattr(local, "last", h))


@holder("object of type SimpleQueue")
def a_queue():
    waiting = queue.SimpleQueue()
    return Net(waiting.put)


@holder("object of type partial")
def a_partial():
    net = Net()
    net.keep = lambda h: setattr(net, "later", functools.partial(print, h))
    return net


@holder("the attribute 'last' of an object of type Tensor")
def an_attribute_of_a_tensor():
    net = Net()
    net.other = torch.zeros(2)
    net.keep = lambda h: setattr(net.other, "last", h)
    return net


@holder("does not see")
def a_gradient():
    net = Net()
    net.other = torch.zeros(1, 2)
    net.keep = lambda h: setattr(net.other, "grad", h)
    return net


@holder("does not see")
def a_future_of_torch():
    net = Net()

    def keep(h):
        net.future = torch.futures.Future()
        net.future.set_result(h)

    net.keep = keep
    return net


@holder("does not see")
def a_scripted_module():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(1, 2))

        def forward(self, x):
            return x

    scripted = torch.jit.script(Holder())
    return Net(lambda h: setattr(scripted, "last", h))


@holder("the variable 'h' of a_hook_in_a_graph")
def a_hook_in_a_graph():
    net = Net()
    net.total = net.layer.bias * 2
    net.keep = lambda h: net.total.register_hook(lambda gradient: gradient * h)
    return net


@holder("object of type list, in the attribute 'rows'")
def a_wrapper_of_an_inner_gradient():
    net = Net()
    net.rows = []

    def keep(h):
        torch.func.grad(lambda w: net.rows.append(w * 2) or w.sum())(h)

    net.keep = keep
    return net


@holder("the variable 'h' of a_thread")
def a_thread():
    def keep(h):
        threads.append(threading.Thread(target=lambda: (go.wait(), h)))
        threads[-1].start()

    return Net(keep)


def leave_no_trace():
    global kept_globally
    kept_globally = None
    setting.set(None)
    vars(local).clear()
    go.set()
    while threads:
        threads.pop().join()
    go.clear()
    if "last" in vars(nn.Linear):
        del nn.Linear.last


LIVE_IN_OLD_OBJECTS = {
    "a global",
    "a class of torch",
    "a context variable",
    "a local of the thread",
}


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    leave_no_trace()
    assert gc.isenabled()


@pytest.fixture
def small_heap(name):
    """Objects that are there already are not searched, which takes a second each time."""
    if name not in LIVE_IN_OLD_OBJECTS:
        gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.filterwarnings("ignore:.*jit")
@pytest.mark.parametrize("name", HOLDERS)
def test_a_kept_tensor_stays_without_the_check_and_is_found_with_it(name, small_heap):
    make, words = HOLDERS[name]
    model = make()
    others = len(all_wrapped())
    evaluate(model)
    assert len(all_wrapped()) > others
    model = make()
    leave_no_trace()
    assert len(all_wrapped()) == others
    with pytest.raises(UnsupportedError, match=words), no_leaks():
        evaluate(model)


def test_an_evaluation_that_keeps_nothing_passes():
    model = Net()
    with no_leaks():
        losses = evaluate(model)
        assert not gc.isenabled()
    assert losses.shape == (3,)


def test_what_the_state_puts_back_is_no_leak():
    model = Net()
    model.rows, model.last = [], None
    model.keep = lambda h: (model.rows.append(h), setattr(model, "last", h))
    state = State(model, evaluate)
    for _ in range(3):
        state.before()
        with no_leaks():
            evaluate(model)
            state.after()


def test_garbage_in_a_cycle_is_no_leak():
    def keep(h):
        ring = [h]
        ring.append(ring)

    with no_leaks():
        evaluate(Net(keep))


def test_a_kept_tensor_is_found_after_a_collection():
    rows = []

    def keep(h):
        rows.append(h)
        gc.collect()

    with pytest.raises(UnsupportedError, match="list"), no_leaks():
        evaluate(Net(keep))
    rows.clear()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_as_it_was(is_enabled):
    (gc.enable if is_enabled else gc.disable)()
    rows = []
    try:
        with no_leaks():
            evaluate(Net())
        assert gc.isenabled() == is_enabled
        with pytest.raises(UnsupportedError), no_leaks():
            evaluate(Net(rows.append))
        assert gc.isenabled() == is_enabled
    finally:
        rows.clear()
        gc.enable()


def test_an_exception_passes_through():
    def keep(h):
        raise ValueError("the user's own")

    with pytest.raises(ValueError, match="own"), no_leaks():
        evaluate(Net(keep))


def test_a_large_heap_without_collection_is_searched_once_only():
    gc.disable()
    try:
        heap = [[] for _ in range(20_000)]
        with no_leaks():
            pass
        assert len(gc.get_objects(generation=0)) < len(heap)
        rows = []
        with pytest.raises(UnsupportedError), no_leaks():
            evaluate(Net(rows.append))
        rows.clear()
    finally:
        gc.enable()


def test_a_tensor_swapped_into_an_old_one_is_refused_by_the_state():
    model = Net()
    model.old = torch.zeros(1, 2)
    model.keep = lambda h: torch.utils.swap_tensors(model.old, h * 2)
    state = State(model, evaluate)
    state.before()
    evaluate(model)
    assert WRAPPED(model.old)
    with pytest.raises(UnsupportedError, match=r"model\.old"):
        state.after()


class Sine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


HONEST = {
    "functions with a generated rule": lambda: Net(Sine.apply),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv1d(1, 3, 1), nn.Flatten()),
    "attention": lambda: nn.TransformerEncoderLayer(2, 1, 4, batch_first=True),
    "normalisation": lambda: nn.Sequential(nn.LayerNorm(2), nn.Dropout(0.5), nn.GELU()),
    "inner gradients": lambda: Net(torch.func.grad(lambda h: h.square().sum())),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_models_keep_nothing_while_their_graph_is_alive(name):
    model = HONEST[name]()
    with no_leaks():
        losses = evaluate(model)
    losses.sum().backward()
