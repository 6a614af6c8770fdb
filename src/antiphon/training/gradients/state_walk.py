"""Which objects can be reached from model and loss.

What an object refers to is what Python's garbage collector finds in it. Classes and globals are watched
unless they belong to Python or to a known library. Of the globals of a module, those are watched that the
code of a reached function names.
"""

import gc
import sys
import sysconfig
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain
from typing import Any, final

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from antiphon.errors import UnsupportedError
from antiphon.training.gradients import state_kinds as kinds
from antiphon.training.gradients.own_generators import GENERATORS
from antiphon.training.gradients.state_kinds import Kind, is_subclass, mro, namespace
from antiphon.training.gradients.state_watch import Watch

__all__ = ["Walk"]

_EXTENSIONS = {
    "accelerate", "antiphon", "antiphon_papers", "beartype", "einops", "functorch", "huggingface_hub",
    "jaxtyping", "numba", "numpy", "pandas", "peft", "scipy", "sklearn", "timm", "tokenizers", "torch",
    "torchaudio", "torchvision", "tqdm", "transformers", "triton",
}  # fmt: skip
_PYTHON = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_LEFT_ALONE = (  # threads, compilers, output and caches that say nothing; and the run itself
    "_abc", "_thread", "antiphon.integrations", "antiphon.training", "asyncio", "concurrent", "logging",
    "multiprocessing", "numba", "threading", "torch._dynamo", "torch._inductor", "torch._ops", "torch.jit",
    "torch.library", "triton",
)  # fmt: skip
_HEAP_TYPE = 1 << 9  # the flag of classes that code has made
_PARTS = {
    "__code__",
    "__defaults__",
    "__dict__",
    "__kwdefaults__",
    "cell_contents",
    "default_factory",
}
# Of all classes that were met: how objects are watched, and whether they give random numbers.
_plans: dict[int, tuple[type, list[Kind] | None, bool]] = {}
_SPACES = (
    "_buffers",
    "_modules",
    "_parameters",
)  # of a module: what is in these is called an attribute
_CACHED = type(lru_cache(len))
_FIXED = set(map(id, (tuple, frozenset, weakref.ref, weakref.ProxyType, weakref.CallableProxyType)))
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
# These pass by what a metaclass may override.
_title: Any = type.__dict__["__qualname__"].__get__
_flags: Any = type.__dict__["__flags__"].__get__
_module: Any = type.__dict__["__module__"].__get__

Children = Iterator[tuple[Any, str]]  # objects found in another one, with their names


@final
class Walk:
    """The objects that can be reached from some roots.

    Attributes:
        watch: All objects that can change, but for the numbers of tensors.
        tensors: The tensors.
        caches: What ``functools`` keeps for functions.
        names: How objects were reached, by identity.
        scripts: The names of functions of ``torch.jit.script``.
        generators: Sources of random numbers.
    """

    def __init__(self, roots: list[tuple[Any, str]], data: Any = None) -> None:
        # Records that a data set keeps in a list are the examples, of which a loss reads its own only.
        is_list = isinstance(data, list | tuple | dict)
        self.names: dict[int, str] = {id(data): "the data"} if is_list else {}
        self.watch, self.tensors, self.caches = Watch(), list[Tensor](), list[Any]()
        self.scripts: list[str] = []
        self.generators: list[Any] = []
        self._alive: list[Any] = []  # so that no identity is given twice
        self._globals: dict[int, kinds.Scope] = {}
        stack = roots[::-1]
        while stack:
            thing, name = stack.pop()
            if not kinds.is_leaf(thing) and id(thing) not in self.names:
                name = name if len(name) < 200 else f"{name[:190]} …"
                self.names[id(thing)] = name
                self._alive.append(thing)
                stack.extend(
                    self._class(thing)
                    if is_subclass(type, type(thing))
                    else self._visit(thing, name)
                )
        for scope in self._globals.values():
            self.watch.add(scope, kinds.GLOBALS)
        self.watch.settle()

    def clear_caches(self) -> None:
        """Forget what functions of ``functools`` have kept."""
        for kept in self.caches:
            kept.cache_clear()

    def _visit(self, thing: Any, name: str) -> Children:
        """What an object refers to; what has the best name comes last, and is walked first."""
        kind = type(thing)
        if id(kind) not in _plans:
            is_source = any(is_subclass(source, kind) for source in GENERATORS)
            _plans[id(kind)] = (kind, _plan(kind), is_source)
        _, plan, is_source = _plans[id(kind)]
        if is_subclass(torch.jit.ScriptModule, kind):
            raise UnsupportedError(
                f"{name} is a module of torch.jit.script: what it keeps cannot be seen. Use the module "
                "itself."
            )
        if is_subclass(torch.jit.ScriptFunction, kind):
            self.scripts.append(name)
        if is_source:
            self.generators.append(thing)
        if plan is None:
            return
        if is_subclass(Tensor, kind):
            plan = plan + self._tensor(thing, name)
        if kind is _CACHED:
            thing.cache_clear()
            self.caches.append(thing)
        try:
            found = [self.watch.add(thing, part) for part in plan]
        except TypeError as error:
            raise UnsupportedError(
                f"{name}: it cannot be told whether an object of type {kind.__name__} has changed. Make it "
                "anew in every call of the loss."
            ) from error
        referents = gc.get_referents(thing) if kind is not types.FunctionType else []
        yield from ((part, name) for part in chain(referents, *found))
        if kind is types.FunctionType:
            yield from self._function(thing, name)
        elif is_subclass(weakref.ref, kind):
            yield weakref.ref.__call__(thing), name
        elif is_subclass(dict, kind):
            for key, value in list(dict.items(thing)):
                is_plain = type(key) is str and key not in _SPACES
                yield key, name
                yield value, f"{name}.{key}" if is_plain else name

    def _tensor(self, thing: Tensor, name: str) -> list[Kind]:
        if is_functorch_wrapped_tensor(thing):
            raise UnsupportedError(
                f"{name} is a tensor of an earlier evaluation; its rows would be taken for those of the "
                "next batch. Remove it before the run."
            )
        self.tensors.append(thing)
        return [kinds.GRADIENT] if thing.is_leaf else []

    def _class(self, thing: type) -> Children:
        if _flags(thing) & _HEAP_TYPE and _is_own(_module(thing)):
            kept = self.watch.add(thing, kinds.CLASS)
            yield from ((base, _title(base)) for base in (*mro(thing)[1:], type(thing)))
            for key, value in zip(kept[::2], kept[1::2], strict=True):
                yield value, f"{_title(thing)}.{key}"

    def _function(self, thing: types.FunctionType, name: str) -> Children:
        for cell, free in zip(thing.__closure__ or (), thing.__code__.co_freevars, strict=False):
            yield cell, f"{name}: the variable {free}"
        if _is_own(thing.__globals__.get("__name__")):
            for code in _codes(thing.__code__):
                yield from self._scope(code, thing.__globals__)

    def _scope(self, code: types.CodeType, scope: dict[str, Any]) -> Children:
        """Globals that code names, and what it names in modules that it names."""
        if "globals" in code.co_names:
            yield scope, "the globals"
        spaces = [scope]
        for space in spaces:  # modules are added on the way
            _, names = self._globals.setdefault(id(space), (space, {}))
            for name in code.co_names:
                value = space.get(name)
                if type(value) is not types.ModuleType and name not in names:
                    names[name] = None
                    yield value, f"the global {name}"
                module = value if name in space else sys.modules.get(name)
                if type(module) is types.ModuleType and _is_own(module.__name__):
                    spaces += [vars(module)] if all(vars(module) is not s for s in spaces) else []


def _is_own(module: object) -> bool:
    """Whether the globals and classes of a module are watched: not those of Python and known libraries."""
    return not isinstance(module, str) or _is_users(module.partition(".")[0])


@cache
def _is_users(package: str) -> bool:
    if package in _EXTENSIONS:
        return False
    if package not in sys.stdlib_module_names or package == "__main__":
        return True
    file = getattr(
        sys.modules.get(package), "__file__", None
    )  # users give packages such names, too
    return file is not None and not file.startswith(_PYTHON)


def _plan(kind: type) -> list[Kind] | None:
    """How the objects of a class are watched; None if neither they nor what they lead to is."""
    module, bases = str(_module(kind)), mro(kind)
    is_opaque = id(kind) not in kinds.KINDS and any(
        module == name or module.startswith(f"{name}.") for name in _LEFT_ALONE
    )
    if is_subclass(types.ModuleType, kind) or (is_opaque and not is_subclass(nn.Module, kind)):
        return None
    plan = [kinds.KINDS[id(base)] for base in bases if id(base) in kinds.KINDS][:1]
    parts = [] if kind is OrderedDict else [part for base in bases for part in _descriptors(base)]
    if is_subclass(Tensor, kind):
        return [*plan, *kinds.TENSOR]
    if parts:
        return [*plan, kinds.attributes([namespace(object)["__class__"], *parts])]
    if plan or any(id(base) in _FIXED for base in bases):
        return plan
    if any("__next__" in namespace(base) for base in bases):
        return [kinds.ITERATOR]
    return [] if module.partition(".")[0] in _EXTENSIONS else [kinds.REFERENTS]


def _descriptors(base: type) -> Iterator[Any]:
    """Slots of a class, and its other attributes that can be set."""
    for name, part in namespace(base).items():
        is_slot = type(part) is types.MemberDescriptorType and "__slots__" in namespace(base)
        if is_slot or (name in _PARTS and type(part) in _DESCRIPTORS):
            yield part


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and the codes of the functions and classes within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
