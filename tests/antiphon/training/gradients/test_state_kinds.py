"""What an evaluation leaves behind in objects of each kind is put back, or refused by name."""

import array
import contextvars
import functools
import gc
import io
import itertools
import os
import random
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from oracles.keeping_net import ROWS, Holder, Net, evaluate, loss
from torch import nn

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.state import State

listed: list = []
rebound = None
constant = SimpleNamespace(value=0)
setting = contextvars.ContextVar("setting", default=0)


settings = ModuleType("settings_of_the_user")
settings.last = None
package = ModuleType("package_of_the_user")
package.inner = ModuleType("package_of_the_user.inner")
package.inner.rows = []


# Each case makes a model, a loss, and a function that looks at what the evaluation leaves behind.

CASES = {}


def case(function):
    CASES[function.__name__.replace("_", " ")] = function
    return function


def keeping(keep, look):
    return Net(keep), loss, look


@case
def an_attribute_set():
    net = Net()
    net.last = None
    net.keep = functools.partial(setattr, net, "last")
    return net, loss, lambda: net.last


@case
def an_attribute_added():
    net = Net()
    net.keep = functools.partial(setattr, net, "last")
    return net, loss, lambda: vars(net).get("last")


@case
def an_attribute_removed():
    net = Net()
    net.last = 3
    net.keep = lambda h: vars(net).pop("last", None)
    return net, loss, lambda: vars(net).get("last")


@case
def an_attribute_equal_but_not_the_same():
    net = Net()
    net.cache = []
    net.keep = lambda h: setattr(net, "cache", [])
    return net, loss, lambda: id(net.cache)


@case
def a_whole_dictionary_of_attributes():
    holder = Holder()
    return keeping(lambda h: setattr(holder, "__dict__", {"x": h}), lambda: holder.x)


@case
def the_class_of_an_object():
    class First:
        pass

    class Second:
        pass

    thing = First()
    return keeping(lambda h: setattr(thing, "__class__", Second), lambda: type(thing))


@case
def a_slot():
    class Slotted:
        __slots__ = ("filled", "void")

    thing = Slotted()
    thing.filled = 1

    def keep(h):
        thing.filled, thing.void = h, h

    return keeping(keep, lambda: (thing.filled, getattr(thing, "void", None)))


@case
def a_dictionary_that_is_its_own_attributes():
    class Own(dict):
        def __init__(self):
            self.__dict__ = self

    own = Own()
    own.last = None
    return keeping(lambda h: setattr(own, "last", h), lambda: own["last"])


@case
def attributes_replaced_by_those_of_another():
    class Own(dict):
        def __init__(self):
            self.__dict__ = self

    own = Own()
    return keeping(lambda h: setattr(own, "__dict__", {"last": h}), lambda: vars(own).get("last"))


@case
def an_attribute_of_a_metaclass():
    class Meta(type):
        last = None

    class Own(metaclass=Meta):
        pass

    own = Own()
    return keeping(lambda h: setattr(type(type(own)), "last", h), lambda: Meta.last)


@case
def an_attribute_of_a_number():
    class Number(float):
        pass

    number = Number(3)
    return keeping(lambda h: setattr(number, "last", h), lambda: vars(number).get("last"))


@case
def a_list():
    kept = []
    return keeping(kept.append, lambda: tuple(kept))


@case
def a_list_rotated():
    kept = [1, 2, 3]
    return keeping(lambda h: kept.append(kept.pop(0)), lambda: tuple(kept))


@case
def a_list_that_calls_itself_equal():
    class Sly(list):
        __hash__ = None

        def __eq__(self, other):
            return True

        def __bool__(self):
            return False

        def __iter__(self):
            return iter(())

        def __len__(self):
            return 0

    kept = Sly()
    return keeping(lambda h: list.append(kept, h), lambda: tuple(list.__iter__(kept)))


@case
def a_dict():
    kept = {"a": 1}
    return keeping(lambda h: kept.update(b=h), lambda: tuple(kept.items()))


@case
def a_dict_behind_a_view():
    items = {"a": 1}.items()

    def keep(h):
        (kept,) = gc.get_referents(items)
        kept["b"] = h

    return keeping(keep, lambda: len(items))


@case
def the_order_of_a_dict():
    kept = {"a": 1, "b": 1}
    return keeping(lambda h: kept.update(a=kept.pop("a")), lambda: tuple(kept))


@case
def a_key_renamed():
    kept = {"a": None}
    return keeping(lambda h: kept.update(b=kept.popitem()[1]), lambda: tuple(kept.items()))


@case
def an_entry_moved_to_the_next_dict():
    pair = [{"a": None, "b": None}, {"c": None}]

    def keep(h):
        pair[0].clear(), pair[1].clear()
        pair[0].update(a=None)
        pair[1].update(b=None, c=None)

    return keeping(lambda h, pair=pair: keep(h), lambda: tuple(map(tuple, pair)))


@case
def a_set():
    kept = {1, 2}
    return keeping(lambda h: kept.add(3), lambda: sorted(kept))


@case
def a_deque():
    kept = deque([1, 2, 3], maxlen=3)
    return keeping(kept.append, lambda: tuple(kept))


@case
def an_ordered_dict():
    kept = OrderedDict(a=1, b=2)
    return keeping(lambda h: kept.move_to_end("a"), lambda: tuple(kept))


@case
def a_counter():
    kept = Counter(calls=0)
    return keeping(lambda h: kept.update(calls=1), lambda: kept["calls"])


@case
def a_default_factory():
    kept = defaultdict(int)
    return keeping(lambda h: setattr(kept, "default_factory", list), lambda: kept.default_factory)


@case
def a_defaultdict_that_fills_itself():
    kept = defaultdict(list)
    return keeping(lambda h: kept["rows"].append(h), lambda: tuple(kept))


@case
def a_bytearray():
    kept = bytearray(b"ab")
    return keeping(lambda h: kept.append(99), lambda: bytes(kept))


@case
def a_numpy_array():
    kept = np.zeros(3)
    return keeping(lambda h: kept.__setitem__(1, -0.0), lambda: kept.tobytes())


@case
def arguments_of_a_partial():
    keep = functools.partial(
        lambda rows, h, store: (rows.append(h), store.update(h=h)), [], store={}
    )
    return keeping(keep, lambda: (len(keep.args[0]), len(keep.keywords["store"])))


@case
def a_bound_object():
    class Loss:
        seen = 0

        def __call__(self, model, x):
            self.seen += 1
            return loss(model, x)

    bound = Loss()
    return Net(), bound.__call__, lambda: bound.seen


@case
def a_bound_builtin():
    kept = []
    append = kept.append
    return keeping(append, lambda: len(kept))


@case
def a_closure_cell():
    last = None

    def keep(h):
        nonlocal last
        last = h

    return keeping(keep, lambda: last)


@case
def an_empty_closure_cell():
    def keep(h):
        nonlocal last
        last = h

    def look():
        try:
            return last
        except NameError:
            return None

    if False:
        last = 0
    return keeping(keep, look)


@case
def a_default_argument():
    def keep(h, rows=[]):  # noqa: B006
        rows.append(h)

    return keeping(keep, lambda: len(keep.__defaults__[0]))


@case
def replaced_defaults():
    def keep(h, *, last=None):
        keep.__kwdefaults__ = {"last": h}

    return keeping(keep, lambda: keep.__kwdefaults__["last"])


@case
def an_attribute_of_a_function():
    def keep(h):
        keep.last = h

    return keeping(keep, lambda: vars(keep).get("last"))


@case
def the_code_of_a_function():
    def keep(h):
        replace(keep)

    def other(h):
        return replace, keep

    def replace(function):
        function.__code__ = other.__code__

    return keeping(keep, lambda: keep.__code__)


@case
def a_class_attribute():
    def keep(h):
        Net.last = h

    return keeping(keep, lambda: vars(Net).get("last"))


@case
def a_container_of_a_class():
    return keeping(lambda h: Net.shared.append(h), lambda: len(Net.shared))


@case
def an_attribute_of_a_base_class():
    class Base(nn.Module):
        count = 0

    class Derived(Base):
        def forward(self, x):
            Base.count += 1
            return x

    return Derived(), loss, lambda: Base.count


@case
def a_global_list():
    return keeping(lambda h: listed.append(h), lambda: len(listed))


@case
def a_global_rebound():
    def keep(h):
        global rebound
        rebound = h

    return keeping(keep, lambda: rebound)


@case
def a_global_that_did_not_exist():
    def keep(h):
        global appeared
        appeared = h

    return keeping(keep, lambda: globals().get("appeared"))


@case
def a_global_named_in_a_nested_function():
    def keep(h):
        def inner():
            constant.value += 1

        inner()

    return keeping(keep, lambda: constant.value)


@case
def a_global_named_by_a_called_function():
    return keeping(lambda h: called(h), lambda: len(listed))


def called(h):
    listed.append(h)


@case
def an_entry_of_the_globals():
    return keeping(lambda h: globals().update(appeared=h), lambda: globals().get("appeared"))


@case
def an_attribute_of_a_module():
    def keep(h):
        settings.last = h

    return keeping(keep, lambda: settings.last)


@case
def a_list_of_a_module_within_a_module():
    return keeping(lambda h: package.inner.rows.append(h), lambda: len(package.inner.rows))


@case
def a_forward_hook():
    rows = []
    net = Net()
    net.layer.register_forward_hook(lambda module, inputs, output: rows.append(output))
    return net, loss, lambda: len(rows)


@case
def a_hook_registered_by_the_model():
    net = Net()
    net.keep = lambda h: net.layer.register_forward_hook(lambda *_: None)
    return net, loss, lambda: len(net.layer._forward_hooks)


@case
def a_submodule_replaced():
    net = Net()
    net.keep = lambda h: setattr(net, "layer", nn.Identity())
    return net, loss, lambda: net.layer


@case
def a_parameter_replaced():
    net = Net()
    net.keep = lambda h: setattr(net.layer, "bias", nn.Parameter(torch.ones(2)))
    return net, loss, lambda: net.layer.bias


@case
def the_mode_of_a_module():
    net = Net()
    net.keep = lambda h: net.eval()
    return net, loss, lambda: net.training


@case
def a_buffer_rebound():
    net = Net()
    net.register_buffer("last", None)
    net.keep = lambda h: setattr(net, "last", h)
    return net, loss, lambda: net.last


@case
def a_buffer_written():
    net = Net()
    net.register_buffer("calls", torch.zeros(()))
    net.keep = lambda h: net.calls.add_(1)
    return net, loss, lambda: float(net.calls)


@case
def a_plain_tensor_put_elsewhere():
    kept = torch.zeros(2)
    return keeping(lambda h: setattr(kept, "data", torch.ones(2)), lambda: kept.tolist())


@case
def a_tensor_that_spreads_one_number():
    kept = torch.zeros(()).expand(3)
    base = kept._base

    def keep(h):
        base.add_(1)

    return keeping(keep, lambda: kept.tolist())


@case
def a_tensor_joined_to_a_graph():
    net = Net()
    kept = torch.zeros(2)
    net.keep = lambda h: kept.add_(net.layer.bias)
    return net, loss, lambda: (kept.requires_grad, kept.grad_fn is None, kept.tolist())


@case
def a_request_for_gradients():
    kept = torch.zeros(2)
    return keeping(lambda h: setattr(kept, "requires_grad", True), lambda: kept.requires_grad)


@case
def a_gradient():
    net = Net()
    net.keep = lambda h: setattr(net.layer.bias, "grad", torch.ones(2))
    return net, loss, lambda: net.layer.bias.grad


@case
def an_attribute_of_a_tensor():
    kept = torch.zeros(2)
    return keeping(lambda h: setattr(kept, "last", h), lambda: vars(kept).get("last"))


@case
def a_hook_on_a_parameter():
    net = Net()
    net.keep = lambda h: net.layer.bias.register_hook(lambda gradient: None)
    return net, loss, lambda: len(net.layer.bias._backward_hooks or ())


@case
def random_numbers_of_python():
    source = random.Random(0)
    return keeping(lambda h: source.random(), source.getstate)


@case
def random_numbers_of_numpy():
    source = np.random.default_rng(0)
    return keeping(lambda h: source.normal(), lambda: str(source.bit_generator.state))


@case
def random_numbers_of_numpys_past():
    source = np.random.RandomState(0)
    return keeping(lambda h: source.normal(), lambda: str(source.get_state()))


@case
def random_numbers_of_torch():
    source = torch.Generator()
    return keeping(
        lambda h: source.manual_seed(source.initial_seed() + 1), lambda: source.get_state().tolist()
    )


@case
def a_cached_function():
    @functools.lru_cache
    def remember(h):
        return h

    return keeping(remember, lambda: remember.cache_info().currsize)


@case
def a_weak_mapping():
    kept = weakref.WeakKeyDictionary()
    net = Net(lambda h: kept.__setitem__(net, h))
    return net, loss, lambda: len(kept)


@case
def an_object_behind_a_weak_reference():
    holder = Holder()
    reference = weakref.ref(holder)
    return keeping(lambda h: setattr(reference(), "x", h), lambda: holder.x)


@case
def a_cycle():
    ring = []
    ring.append([ring])
    return keeping(lambda h: ring[0][0][0].append(h), lambda: len(ring[0]))


@case
def a_deep_nest():
    innermost = nest = []
    for _ in range(10_000):
        nest = [nest]
    return keeping(lambda h, nest=nest: innermost.append(h), lambda: len(innermost))


@case
def a_cached_property():
    class Holder:
        value = 0

        @functools.cached_property
        def cached(self):
            return object()

    holder = Holder()
    return keeping(lambda h: holder.cached, lambda: vars(holder).get("cached"))


def same(first, second):
    """Equal, with tensors compared by identity."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
        return first is second
    return first == second


def leave_no_trace():
    listed.clear(), Net.shared.clear()
    constant.value = 0
    globals().pop("appeared", None)
    globals()["rebound"] = settings.last = None
    package.inner.rows.clear()
    if "last" in vars(Net):
        del Net.last


@pytest.fixture(autouse=True)
def clean_globals():
    yield
    leave_no_trace()


LONG = "an entry of the globals"  # all that has been imported is walked
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name == LONG)) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_it_stays_without_the_state_and_is_put_back_with_it(name):
    model, loss_of_case, look = CASES[name]()
    torch.manual_seed(0)
    before = look()
    evaluate(model, loss_of_case)
    assert not same(look(), before)
    leave_no_trace()

    model, loss_of_case, look = CASES[name]()
    state = State(model, loss_of_case)
    state.before()
    before = look()
    for _ in range(3):
        evaluate(model, loss_of_case)
        state.after()
        assert same(look(), before)
        state.before()


@pytest.mark.parametrize("name", NAMES)
def test_one_example_after_another_leaves_nothing_either(name):
    model, loss_of_case, look = CASES[name]()
    state = State(model, loss_of_case)
    state.before(exact=True)
    before = look()
    for row in ROWS:
        loss_of_case(model, row[None])
        state.after(exact=True)
        assert same(look(), before)


# What cannot be put back is refused by its name.

REFUSED = {}


def refused(words):
    def register(function):
        REFUSED[function.__name__.replace("_", " ")] = function, words
        return function

    return register


def counting():
    number = 0
    while True:
        yield number
        number += 1


@refused("model.source: an object of type generator")
def a_generator():
    net = Net()
    net.source = counting()
    next(net.source)
    net.keep = lambda h: next(net.source)
    return net, loss


@refused("object of type generator")
def a_generator_that_holds_an_iterator_on_its_stack():
    source = (i for i in range(10))
    next(source)
    return Net(lambda h: next(source)), loss


@refused("object of type count")
def a_count():
    source = itertools.count()
    return Net(lambda h: next(source)), loss


@refused("object of type cycle")
def a_cycle_of_itertools():
    source = itertools.cycle([1, 2, 3])
    return Net(lambda h: next(source)), loss


@refused("object of type cycle")
def a_cycle_in_its_second_round():
    source = itertools.cycle([1, 2, 3])
    for _ in range(4):
        next(source)
    return Net(lambda h: next(source)), loss


@refused("object of type enumerate")
def an_enumeration():
    source = enumerate([1, 2, 3])
    return Net(lambda h: next(source)), loss


@refused("object of type dict_keyiterator")
def an_iterator_of_a_dict():
    source = iter({1: 2, 3: 4})
    return Net(lambda h: next(source)), loss


@refused("list_iterator")
def an_iterator_that_comes_to_its_end():
    source = iter([1])
    return Net(lambda h: list(source)), loss


@refused("the parameter 'layer.bias' was changed")
def a_parameter():
    net = Net()

    def keep(h):
        with torch.no_grad():
            net.layer.bias.add_(1)

    net.keep = keep
    return net, loss


@refused("the parameter 'layer.bias' was changed")
def a_parameter_put_elsewhere():
    net = Net()
    net.keep = lambda h: setattr(net.layer.bias, "data", torch.ones(2))
    return net, loss


@refused("object of type set")
def a_set_whose_order_is_lost():
    kept = set(range(100))
    for number in range(100):
        if number not in (1, 64):
            kept.remove(number)
    return Net(lambda h: kept.update([2])), loss


@refused("object of type array")
def an_array_of_the_standard_library():
    kept = array.array("d", [1.0])
    return Net(lambda h: kept.append(2.0)), loss


@refused("object of type ndarray")
def a_numpy_array_of_objects():
    kept = np.array([None, None])
    return Net(lambda h: kept.__setitem__(0, h)), loss


@refused("object of type list_iterator")
def an_iterator_of_a_list():
    source = iter([1, 2, 3, 4])
    return Net(lambda h: next(source)), loss


@refused("object of type StringIO")
def a_file_in_memory():
    file = io.StringIO("ab")
    return Net(lambda h: file.write("xyz")), loss


@refused("object of type ContextVar")
def a_context_variable():
    setting.set(0)
    return Net(lambda h: setting.set(setting.get() + 1)), loss


@refused("object of type ContextVar")
def a_context_variable_without_a_value():
    empty = contextvars.ContextVar("empty")
    return Net(lambda h: empty.set(1)), loss


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("exact", [False, True])
def test_what_cannot_be_put_back_is_refused_by_name(name, exact):
    make, words = REFUSED[name]
    model, loss_of_case = make()
    state = State(model, loss_of_case)
    state.before(exact)
    state.after(exact)
    evaluate(model, loss_of_case)
    with pytest.raises(UnsupportedError, match=words):
        state.after(exact)


@pytest.mark.parametrize("name", ["a_generator", "a_count", "a_cycle_of_itertools"])
def test_what_moved_between_the_steps_is_taken_as_it_is(name):
    model, _ = REFUSED[name.replace("_", " ")][0]()
    state = State(model, lambda model, x: x.sum())
    state.before()
    model.keep(None)
    state.before()
    state.after()


def test_records_with_objects_are_refused_when_they_are_reached():
    kept = np.zeros(2, dtype=[("x", "f8"), ("y", "O")])
    with pytest.raises(UnsupportedError, match="the variable kept: it cannot be told"):
        State(Net(lambda h: kept), loss).before()


def test_files_that_were_read_or_written_are_refused_and_pipes_are_left_alone(tmp_path):
    (tmp_path / "rows").write_text("first second")
    pipe = [os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True)]
    with (tmp_path / "rows").open() as file, (tmp_path / "log").open("w") as log:
        for use in (lambda h: file.read(5), lambda h: log.write("x")):
            net = Net(use)
            net.pipe = pipe
            state = State(net, loss)
            state.before()
            state.after()
            evaluate(net)
            with pytest.raises(UnsupportedError, match="TextIOWrapper"):
                state.after()
    for end in pipe:
        end.close()
