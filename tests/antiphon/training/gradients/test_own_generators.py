"""Generators that objects keep: found wherever users keep them, and set for every record anew."""

import functools
import random

import numpy as np
import pytest
import torch

from antiphon.training.gradients.own_generators import OwnGenerators, state_of

KEY = bytes(range(32))
MAKERS = {
    "a generator of NumPy": lambda: np.random.default_rng(0),
    "its bits": lambda: np.random.Philox(0),
    "a random state": lambda: np.random.RandomState(0),
    "Python's": lambda: random.Random(0),
    "torch's": lambda: torch.Generator().manual_seed(0),
}
SOURCE = random.Random(0)


class Holder:
    def __init__(self, part):
        self.part = part


class Slotted:
    __slots__ = ("part",)

    def __init__(self, part):
        self.part = part

    def method(self):
        return self.part


def with_class_attribute(part):
    return type("Shared", (), {"part": part})()


def closure(part):
    return lambda row: part


def default(part):
    def read(row, part=part):
        return part

    return read


def reads_a_global(row):
    return [SOURCE.random() for _ in row]


PLACES = {
    "itself": lambda part: part,
    "attribute": Holder,
    "attribute of an attribute": lambda part: Holder(Holder(part)),
    "slot": Slotted,
    "class": with_class_attribute,
    "closure": closure,
    "default": default,
    "partial": lambda part: functools.partial(print, part),
    "bound method": lambda part: Slotted(part).method,
    "list in a dict": lambda part: {"steps": [Holder(part)]},
}


def drawn(generator):
    if isinstance(generator, torch.Generator):
        return torch.rand(3, generator=generator).tolist()
    if isinstance(generator, np.random.BitGenerator):
        generator = np.random.Generator(generator)
    return [generator.random() for _ in range(3)]


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_drawn_depends_on_key_step_and_record_alone(name):
    def read(step, record, key=KEY):
        generator = MAKERS[name]()
        drawn(generator)
        own = OwnGenerators((Holder(generator),), key)
        own.seed(step, record)
        return drawn(generator)

    one = read(3, 5)
    assert one == read(3, 5)
    assert not {*one} & {*read(3, 6), *read(4, 5), *read(3, 5, bytes(32))}


@pytest.mark.parametrize("name", PLACES)
def test_a_generator_is_found_where_users_keep_it(name):
    generator = random.Random(0)
    before = state_of(generator)
    OwnGenerators((PLACES[name](generator),), KEY).seed(0, 0)
    assert state_of(generator) != before


def test_a_global_that_a_function_names_is_found():
    OwnGenerators((reads_a_global,), KEY).seed(1, 2)
    first = reads_a_global("abc")
    OwnGenerators((reads_a_global,), KEY).seed(1, 2)
    assert reads_a_global("abc") == first


def test_one_that_is_made_later_is_found_by_the_next_look():
    holder = Holder(None)
    own = OwnGenerators((holder,), KEY)
    holder.part = random.Random(0)
    before = state_of(holder.part)
    own.look(briefly=True)
    own.seed(0, 0)
    assert state_of(holder.part) != before


def test_several_get_numbers_of_their_own():
    both = [random.Random(0), random.Random(0)]
    OwnGenerators((both,), KEY).seed(0, 0)
    assert drawn(both[0]) != drawn(both[1])


def test_records_in_a_long_list_are_not_looked_at():
    records = [random.Random(i) for i in range(1000)]
    before = [state_of(record) for record in records[:3]]
    OwnGenerators((Holder(records),), KEY).seed(0, 0)
    assert [state_of(record) for record in records[:3]] == before
