"""No batched tensor outlives the evaluation that made it.

A tensor under ``torch.func.vmap`` that is kept somewhere holds the rows of one batch. The next evaluation
would take them for rows of its own. So the objects that an evaluation made are looked through at its end.
Automatic garbage collection is off meanwhile, and therefore all of them are in the youngest generation.

Every tensor that Python has seen is found, whatever holds it. Not found are a tensor that only C++ has
seen, a tensor hidden by ``gc.freeze``, and an older tensor that ``torch.utils.swap_tensors`` made a batched
one; ``State`` refuses the last if it watches the tensor.
"""

import gc
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from antiphon.errors import UnsupportedError

__all__ = ["no_leaks"]

_MANY = 1_000  # objects in the youngest generation, above which it is emptied at the beginning
_excused: list["weakref.ref[Tensor]"] = []  # what the frames of exceptions hold
_known: dict[int, tuple[type, bool]] = {}  # classes that were seen, and whether they are tensors
_is_kind: Any = type.__subclasscheck__  # past what a metaclass may override
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # batched, or around a batched one


@contextmanager
def no_leaks() -> Iterator[None]:
    """Refuse batched tensors that are alive at the end; collect no garbage meanwhile.

    An exception passes through, since its frames hold tensors. These are not searched for later.

    Raises:
        UnsupportedError: if a tensor is found; it names what holds the tensor.

    Guarantee:
        After a regular end, no object of Python that was made inside is a batched tensor.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        if gc.get_count()[0] > _MANY:  # collection was off before
            gc.collect(0)
        before = _collections()
        try:
            yield
        except BaseException:
            _excused.extend(_wrapped(0 if _collections() == before else None))
            raise
        _excused[:] = [reference for reference in _excused if reference() is not None]
        excused = {id(reference()) for reference in _excused}
        found = _wrapped(0 if _collections() == before else None)
        if kept := _alive([r for r in found if id(r()) not in excused]):
            raise UnsupportedError(
                f"a tensor of one batch is kept beyond its evaluation, by {_holder(kept)}. Its rows would "
                "reach the next batch. Keep nothing that is computed from an example."
            )
    finally:
        if was_enabled:
            gc.enable()


def _collections() -> list[int]:
    """How often each generation was collected: what survives a collection moves to the next one."""
    return [generation["collections"] for generation in gc.get_stats()]


def _wrapped(generation: int | None) -> list["weakref.ref[Tensor]"]:
    """Tensors of ``torch.func`` in one generation, or in all."""
    things = gc.get_objects(generation=generation)
    kinds = list(map(id, map(type, things)))  # by identity: a metaclass may override hashes
    present = set(kinds)
    if not present <= _known.keys():
        _known.update((id(kind), (kind, _is_kind(Tensor, kind))) for kind in map(type, things))
    wanted = {kind for kind in present if _known[kind][1]}
    tensors = [thing for thing, kind in zip(things, kinds, strict=True) if kind in wanted]
    return [weakref.ref(tensor) for tensor in tensors if _is_wrapped(tensor)]


def _alive(found: list["weakref.ref[Tensor]"]) -> list["weakref.ref[Tensor]"]:
    """The tensors that are no garbage, and so outlive collections."""
    for generation in range(3):
        if all(reference() is None for reference in found):
            return []
        gc.collect(generation)
    return [reference for reference in found if reference() is not None]


def _holder(kept: list["weakref.ref[Tensor]"]) -> str:
    """The first holder that is found, of one of the first few tensors."""
    paths = (_path(reference) for reference in kept[:8])
    found = (", in ".join(path) for path in paths if path)
    return next(found, "something that Python's garbage collector does not see")


def _path(kept: "weakref.ref[Tensor]") -> list[str]:
    """The nearest holder that has a name, after the containers in between."""
    thing: Any = kept()
    path: list[str] = []
    for _ in range(10):
        holder = next((h for h in gc.get_referrers(thing) if not _is_ours(h)), None)
        if holder is None:
            break
        name = _name(holder, thing)
        path.append(name or f"an object of type {type(holder).__name__}")
        if name is not None:
            break
        thing = holder
    return path


def _is_ours(holder: Any) -> bool:
    return type(holder) is types.FrameType and holder.f_globals is globals()


def _name(holder: Any, thing: Any) -> str | None:
    """What a holder is called together with what it holds; None if it is a container without a name."""
    kind = type(holder)
    if kind is types.FrameType:
        return f"the call of {holder.f_code.co_name}"
    if kind in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType):
        return f"the suspended {holder.__qualname__}"
    if kind is types.CellType:
        return _variable(holder)
    if kind is dict:
        owner = next((o for o in gc.get_referrers(holder) if _attributes(o) is holder), None)
        return None if owner is None else _attribute(owner, holder, thing)
    found = _attributes(holder)
    return None if found is None else _attribute(holder, found, thing)


def _attributes(owner: Any) -> dict[str, Any] | None:
    """The dictionary of an object's attributes, as it is."""
    if _is_kind(type, type(owner)):
        return next((part for part in gc.get_referents(owner) if type(part) is dict), None)
    try:
        found = object.__getattribute__(owner, "__dict__")
    except Exception:
        return None
    return found if type(found) is dict else None


def _attribute(owner: Any, attributes: dict[str, Any], thing: Any) -> str | None:
    name = next((key for key, value in attributes.items() if value is thing), None)
    if name is None:
        return None
    if type(owner) is types.ModuleType:
        return f"the global {name!r} of {owner.__name__}"
    if _is_kind(type, type(owner)) or type(owner) is types.FunctionType:
        return f"the attribute {name!r} of {owner.__qualname__}"
    return f"the attribute {name!r} of an object of type {type(owner).__name__}"


def _variable(cell: types.CellType) -> str | None:
    """The name of a closure's variable."""
    closures = (holder for holder in gc.get_referrers(cell) if type(holder) is tuple)
    for function in chain.from_iterable(map(gc.get_referrers, closures)):
        if type(function) is types.FunctionType:
            cells = function.__closure__ or ()
            for name, other in zip(function.__code__.co_freevars, cells, strict=True):
                if other is cell:
                    return f"the variable {name!r} of {function.__qualname__}"
    return None
