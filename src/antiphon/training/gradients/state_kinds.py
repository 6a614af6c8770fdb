"""How an object of each kind is read, and how it is put back.

A reading is a tuple of what an object refers to, or of descriptions: int, range, str or bytes. Two
readings are the same if their parts are identical, or equal descriptions.
"""

import array
import gc
import io
import itertools
import pickle
import random
import threading
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "CLASS", "GLOBALS", "GRADIENT", "ITERATOR", "KINDS", "REFERENTS", "TENSOR", "Kind", "Reading",
    "Scope", "Stream", "attributes", "is_leaf", "is_same", "is_subclass", "mro", "namespace",
]  # fmt: skip

Reading = tuple[Any, ...]
Write = Callable[[Any, Reading], None]
Stream = Callable[[list[Any]], Iterable[Any]]
Scope = tuple[
    dict[str, Any], dict[str, None]
]  # globals of a module, and the names that are watched

_MISSING = object()
# These pass by what a metaclass may override.
mro: Any = type.__dict__["__mro__"].__get__
namespace: Any = type.__dict__["__dict__"].__get__
is_subclass: Any = type.__subclasscheck__  # the base comes first


def _refuse(thing: Any, kept: Reading) -> None:
    raise ValueError("this object cannot be put back.")


class Kind(NamedTuple):
    """A kind of objects.

    Attributes:
        read: What an object refers to; raises TypeError if that cannot be told.
        write: Lets an object refer to what it did; raises if that is impossible.
        streams: What all objects of a list refer to: a change shows in one of these.
    """

    read: Callable[[Any], Reading]
    write: Write = _refuse
    streams: tuple[Stream, ...] = ()


_LEAVES = set(map(id, [  # by identity: a metaclass may override how classes compare
    type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented),
    type(_MISSING), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
    types.CodeType, types.FrameType, types.TracebackType, types.ModuleType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, np.dtype,
    *(kind for kind in np.sctypeDict.values() if issubclass(kind, np.number | np.bool)),
]))  # fmt: skip


def is_leaf(thing: Any) -> bool:
    """Whether an object neither changes nor leads to others."""
    return id(type(thing)) in _LEAVES


def is_same(first: Reading, second: Reading) -> bool:
    """Whether two readings of an object are the same."""
    return len(first) == len(second) and all(
        a is b or (type(a) is type(b) and type(a) in (int, str, bytes, range) and a == b)
        for a, b in zip(first, second, strict=True)
    )


def _referents(things: list[Any]) -> Iterable[Any]:
    """What Python's garbage collector finds in objects, with a separator after each object."""
    return gc.get_referents(*chain.from_iterable(zip(things, itertools.repeat((_MISSING,)))))


def _keys(things: list[Any]) -> Iterable[Any]:
    return chain.from_iterable(map(dict.__iter__, things))


def _dict(base: Any, *streams: Stream) -> Kind:
    def read(thing: Any) -> Reading:
        keys = tuple(base.__iter__(thing))
        return *keys, *(dict.__getitem__(thing, key) for key in keys)

    def write(thing: Any, kept: Reading) -> None:
        keys, values = kept[: len(kept) // 2], kept[len(kept) // 2 :]
        if not is_same(keys, tuple(base.__iter__(thing))):
            base.clear(thing)
        for key, value in zip(keys, values, strict=True):
            base.__setitem__(thing, key, value)

    return Kind(read, write, streams)


def _items(base: Any, fill: Callable[[Any, Reading], None]) -> Kind:
    def write(thing: Any, kept: Reading) -> None:
        base.clear(thing)
        fill(thing, kept)

    return Kind(lambda thing: tuple(base.__iter__(thing)), write, (_referents,))


def attributes(descriptors: Iterable[Any], stream: Stream = _referents) -> Kind:
    """Objects of one class, read by descriptors, which pass by what the class may override."""

    def read_one(thing: Any, descriptor: Any) -> Any:
        try:
            return descriptor.__get__(thing)
        except (AttributeError, TypeError, ValueError):  # empty, or the class is another one now
            return _MISSING

    def write(thing: Any, kept: Reading) -> None:
        for descriptor, value in zip(parts, kept, strict=True):
            if value is _MISSING:
                descriptor.__delete__(thing)
            elif read_one(thing, descriptor) is not value:
                descriptor.__set__(thing, value)

    parts = tuple(descriptors)
    return Kind(lambda thing: tuple(read_one(thing, part) for part in parts), write, (stream,))


def _tensor_part(name: str) -> Kind:
    """An attribute of tensors: what C++ refers to is not found by the garbage collector."""
    part = next(namespace(base)[name] for base in mro(Tensor) if name in namespace(base))
    return attributes([part], partial(map, attrgetter(name)))


def _read_class(thing: type) -> Reading:
    """Names and values in order of the names: a class cannot be given back another order."""
    space = namespace(thing)
    return tuple(part for name in sorted(space) for part in (name, space[name]))


def _write_class(thing: type, kept: Reading) -> None:
    before, now = dict(zip(kept[::2], kept[1::2], strict=True)), dict(namespace(thing))
    for name in now.keys() - before.keys():
        type.__delattr__(thing, name)
    for name, value in before.items():
        if now.get(name, _MISSING) is not value:
            type.__setattr__(thing, name, value)


def _read_globals(scope: Scope) -> Reading:
    """The named globals; a module that is imported meanwhile may stay."""
    found = (scope[0].get(name, _MISSING) for name in scope[1])
    return tuple(_MISSING if type(value) is types.ModuleType else value for value in found)


def _write_globals(scope: Scope, kept: Reading) -> None:
    for name, value in zip(scope[1], kept, strict=True):
        if value is not _MISSING:
            scope[0][name] = value
        elif type(scope[0].get(name)) is not types.ModuleType:
            scope[0].pop(name, None)


def _described(read: Callable[[Any], Any], write: Callable[[Any, Any], Any] | None = None) -> Kind:
    """Objects with a description, which is pickled, and from which some can be put back."""

    def describe(thing: Any) -> Reading:
        try:
            return (pickle.dumps(read(thing)),)
        except (NotImplementedError, OSError, ValueError):  # the system's random numbers; pipes
            return ()

    if write is None:
        return Kind(describe)
    return Kind(describe, lambda thing, kept: write(thing, pickle.loads(kept[0])))


def _read_array(thing: Any) -> Reading:
    plain = np.ndarray.view(thing, np.ndarray)
    if plain.dtype == object:
        return str(plain.shape), *plain.ravel()
    if plain.dtype.hasobject:
        raise TypeError("records with objects cannot be compared.")
    return f"{plain.dtype} {plain.shape}", plain.tobytes()


def _write_array(thing: Any, kept: Reading) -> None:
    plain = np.ndarray.view(thing, np.ndarray)
    plain[...] = np.frombuffer(kept[1], plain.dtype).reshape(plain.shape)


def _read_file(thing: Any) -> Any:
    return thing.tell(), isinstance(thing, io.StringIO | io.BytesIO) and thing.getvalue()


def _read_generator(thing: Any) -> Reading:
    """Where a generator stands, its variables, and what lies on the stack of its frame."""
    if thing.gi_frame is None:
        return ()
    parts = (part for part in gc.get_referents(thing) if type(part) is not types.FrameType)
    return thing.gi_frame.f_lasti, *parts


def _read_iterator(thing: Any) -> Reading:
    """Where a built-in iterator stands: the parts from which it would be copied."""
    return (repr(thing),) if type(thing) is itertools.count else tuple(_parts(thing))


def _parts(thing: Any) -> Iterator[Any]:
    if type(thing) in (tuple, list):
        yield from chain([len(thing)], *map(_parts, thing))
    elif hasattr(type(thing), "__next__") and type(thing).__module__ in ("builtins", "itertools"):
        yield from _parts(thing.__reduce__())
    elif hasattr(type(thing), "__next__"):
        raise TypeError("an iterator of C does not say where it stands.")
    else:
        yield thing


CLASS = Kind(_read_class, _write_class)
GLOBALS = Kind(_read_globals, _write_globals)
GRADIENT = _tensor_part("grad")
ITERATOR = Kind(_read_iterator)
REFERENTS = Kind(lambda thing: tuple(gc.get_referents(thing)), streams=(_referents,))
TENSOR = (_tensor_part("__dict__"), _tensor_part("_backward_hooks"))
_TABLE: dict[type, Kind] = {
    dict: _dict(dict, _referents, _keys),
    OrderedDict: _dict(OrderedDict),  # the garbage collector does not see its order
    list: _items(list, list.extend),
    set: _items(set, set.update),
    deque: _items(deque, deque.extend),
    np.ndarray: Kind(_read_array, _write_array),
    array.array: _described(array.array.tobytes),
    bytearray: _described(bytes, lambda x, kept: x.__setitem__(slice(None), kept)),
    io.IOBase.__mro__[-2]: _described(_read_file),
    types.GeneratorType: Kind(_read_generator),
    threading.local: Kind(lambda thing: (vars(thing),)),  # those of the present thread
    ContextVar: Kind(lambda thing: (thing.get(_MISSING),)),
    random.Random: _described(random.Random.getstate, random.Random.setstate),
    np.random.RandomState: _described(lambda x: x.get_state(), lambda x, kept: x.set_state(kept)),
    np.random.BitGenerator: _described(
        lambda x: (x.state, getattr(x.seed_seq, "state", None)),  # the latter cannot be put back
        lambda x, kept: setattr(x, "state", kept[0]),
    ),
    np.random.SeedSequence: _described(lambda x: x.state),
    torch.Generator: _described(
        lambda x: x.get_state().numpy(), lambda x, kept: x.set_state(torch.from_numpy(kept))
    ),
}
KINDS = {id(base): kind for base, kind in _TABLE.items()}
