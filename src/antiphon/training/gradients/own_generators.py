"""Generators of random numbers that objects hold, set again for every record.

A data set with a generator of its own draws for one row after another. If one record draws more numbers
than another would, all rows after it are changed. So what a generator gives must depend on key, step and
record alone, as it does for the global generators.
"""

import functools
import pickle
import random
import types
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from antiphon.training.gradients.record_draws import hashed

__all__ = ["GENERATORS", "OwnGenerators", "seed_generators", "state_of"]

GENERATORS = (np.random.BitGenerator, np.random.RandomState, random.Random, torch.Generator)
_MOST = 5_000  # objects that are looked at
_LONG = 100  # a container with more entries holds records, not generators
_FEW = 300  # objects that are looked at again after every row
_LIBRARIES = {
    "abc", "builtins", "collections", "datasets", "numpy", "tokenizers", "torch", "transformers", "typing",
}  # fmt: skip
_LEAVES = (
    str, bytes, int, float, complex, bool, type(None), np.ndarray, Tensor, types.ModuleType,
)  # fmt: skip


def seed_generators(generators: Sequence[Any], key: bytes, step: int, record: int | None) -> None:
    """Set generators from key, step, record and their places."""
    for place, generator in enumerate(generators):
        _seed(generator, hashed(key[:60] + place.to_bytes(4, "little"), step, record, 32))


def state_of(generator: Any) -> bytes:
    """What it will give."""
    if isinstance(generator, np.random.BitGenerator):
        return pickle.dumps(generator.state)
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    is_numpy = isinstance(generator, np.random.RandomState)
    return pickle.dumps(generator.get_state() if is_numpy else generator.getstate())


def _seed(generator: Any, words: bytes) -> None:
    if isinstance(generator, np.random.BitGenerator):
        state = np.random.SeedSequence(int.from_bytes(words, "little"))
        generator.state = type(generator)(state).state
    elif isinstance(generator, np.random.RandomState):
        generator.seed(np.frombuffer(words, np.uint32))
    elif isinstance(generator, random.Random):
        generator.seed(int.from_bytes(words, "little"))
    else:
        generator.manual_seed(int.from_bytes(words[:8], "little") >> 1)


@final
class OwnGenerators:
    """The generators that can be reached from some objects.

    They are looked for in attributes, slots, closures, defaults, globals that a function names, class
    attributes, and containers of at most 100 entries; `look` finds those that were made since.

    Args:
        roots: The objects.
        key: Secret of the run; at most 64 bytes.

    Guarantee:
        After ``seed(step, record)`` the state of every generator that was found is a function of key, step,
        record and its place among them.
    """

    def __init__(self, roots: tuple[Any, ...], key: bytes) -> None:
        self._roots, self._key = roots, key
        self._found: list[Any] = []
        self._has_few = True
        self.look()

    def look(self, *, briefly: bool = False) -> None:
        """Look for generators again; with ``briefly`` only where there is little to look at."""
        if not briefly or self._has_few:
            self._found, count = _generators(self._roots)
            self._has_few = count <= _FEW

    def seed(self, step: int, record: int | None) -> None:
        """Set all generators."""
        seed_generators(self._found, self._key, step, record)


def _generators(roots: tuple[Any, ...]) -> tuple[list[Any], int]:
    """Generators in the order in which they are met, and how many objects were looked at."""
    found, seen, alive = list[Any](), set[int](), list[Any]()
    stack = list(roots)[::-1]
    while stack and len(seen) < _MOST:
        thing = stack.pop()
        if isinstance(thing, _LEAVES) or id(thing) in seen:
            continue
        seen.add(id(thing))
        alive.append(thing)  # so that no identity is given twice
        if isinstance(thing, np.random.Generator):
            thing = thing.bit_generator
        if isinstance(thing, GENERATORS):
            if all(thing is not known for known in found):
                found.append(thing)
        else:
            stack.extend(list(_parts(thing))[::-1])
    return found, len(seen)


def _parts(thing: Any) -> Iterator[Any]:
    """What an object refers to, as far as generators are kept there."""
    if isinstance(thing, dict):
        yield from thing.values() if len(thing) <= _LONG else ()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing if len(thing) <= _LONG else ()
    elif isinstance(thing, types.FunctionType):
        yield from (cell.cell_contents for cell in thing.__closure__ or () if _is_full(cell))
        yield from thing.__defaults__ or ()
        yield from (thing.__kwdefaults__ or {}).values()
        yield from (_named(thing.__code__, thing.__globals__))
    elif isinstance(thing, types.MethodType):
        yield thing.__self__
        yield thing.__func__
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, type):
        yield from _class(thing)
    else:
        yield from _attributes(thing)


def _class(kind: type) -> Iterator[Any]:
    """What a class of the user's keeps for all of its objects, and its methods."""
    if kind.__module__.partition(".")[0] not in _LIBRARIES:
        yield from (part for part in kind.__dict__.values() if not isinstance(part, type))


def _attributes(thing: Any) -> Iterator[Any]:
    yield from getattr(thing, "__dict__", {}).values()
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                yield object.__getattribute__(thing, name)
            except AttributeError:
                continue
        yield from _class(kind)


def _is_full(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _named(code: types.CodeType, scope: dict[str, Any]) -> Iterator[Any]:
    """Globals that a function's code names, the functions within it included."""
    yield from (scope[name] for name in code.co_names if name in scope)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant, scope)
