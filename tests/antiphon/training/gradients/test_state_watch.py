"""Nested structures, changed at random, are what they were: by identity, and to every depth."""

import functools
from collections import OrderedDict, defaultdict, deque
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from oracles.keeping_net import Net

from antiphon.training.gradients.state import State

SCALARS = st.sampled_from([0, 1, True, 1.0, -0.0, "a", None, 10**20])


def nests(children):
    keys = st.sampled_from(["a", "b", 1, 2.0])
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(deque),
        st.lists(children, max_size=3).map(tuple),
        st.sets(SCALARS, max_size=3),
        st.dictionaries(keys, children, max_size=3),
        st.dictionaries(keys, children, max_size=3).map(OrderedDict),
        st.dictionaries(keys, children, max_size=3).map(lambda found: defaultdict(list, found)),
        st.dictionaries(st.sampled_from("abc"), children, max_size=3).map(
            lambda x: SimpleNamespace(**x)
        ),
        st.lists(children, max_size=2).map(lambda found: functools.partial(print, *found)),
        st.lists(children, min_size=1, max_size=1).map(lambda found: lambda: found[0]),
        st.binary(max_size=3).map(bytearray),
    )


NESTS = st.recursive(SCALARS, nests, max_leaves=12)


def picture(thing, seen):
    """All that can be reached, as identities, written without a look at how the state is kept."""
    if id(thing) in seen:
        return id(thing)
    kind = type(thing)
    if kind in (int, bool, float, str, type(None)):
        return id(thing)
    seen.add(id(thing))
    if kind is bytearray:
        return id(thing), bytes(thing)
    if kind in (list, tuple, deque, set):
        parts = list(thing)
    elif kind is functools.partial:
        parts = [thing.args, thing.keywords]
    elif kind is SimpleNamespace:
        parts = [vars(thing)]
    elif callable(thing):
        parts = [cell.cell_contents for cell in thing.__closure__]
    else:
        parts = [part for pair in thing.items() for part in pair]
    return id(thing), tuple(picture(part, seen) for part in parts)


def mutable(thing, found):
    """Every object in a structure that can be changed."""
    kind = type(thing)
    if kind in (int, bool, float, str, type(None)) or any(thing is other for other in found):
        return
    found.append(thing)
    if kind in (list, tuple, deque):
        parts = list(thing)
    elif kind is functools.partial:
        parts = thing.args
    elif kind is SimpleNamespace:
        parts = vars(thing).values()
    elif kind in (dict, OrderedDict, defaultdict):
        parts = thing.values()
    elif callable(thing):
        parts = [cell.cell_contents for cell in thing.__closure__]
    else:
        parts = []
    for part in parts:
        mutable(part, found)


def change(thing, new, choice):
    """One change of an object, chosen at random."""
    kind = type(thing)
    if kind in (list, deque):
        if thing and choice:
            thing[choice % len(thing)] = new
        else:
            thing.insert(0, new)
    elif kind is bytearray:
        thing.append(choice)
    elif kind is set:
        if thing and choice:
            thing.pop()
        else:
            thing.add(choice)
    elif kind is SimpleNamespace:
        setattr(thing, "abcd"[choice], new)
    elif kind in (dict, OrderedDict, defaultdict):
        if thing and choice == 0:
            thing.popitem()
        else:
            thing[choice] = new
    elif kind is functools.partial:
        thing.keywords["new"] = new
    elif callable(thing):
        thing.__closure__[0].cell_contents = new


@given(NESTS, st.lists(st.tuples(st.integers(0, 99), NESTS, st.integers(0, 3)), max_size=8))
def test_any_changes_of_any_structure_are_undone(nest, changes):
    holder = SimpleNamespace(nest=nest)
    state = State(Net(), lambda model, x: holder)
    state.before()
    state.after()
    before = picture(holder, set())
    for place, new, choice in changes:
        things = []
        mutable(holder, things)
        change(things[place % len(things)], new, choice)
    state.after()
    assert picture(holder, set()) == before
    state.before()
    state.after()
    assert picture(holder, set()) == before
