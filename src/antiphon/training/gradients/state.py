"""Python state of model and loss is what it was before every evaluation.

The loss is evaluated for one example, or under ``torch.func.vmap`` for all rows of a batch. Nothing that
an evaluation leaves behind may reach the next one. `State` walks over the objects that can be reached from
model and loss (`state_walk`) and keeps what each of them refers to. Later it compares by identity
(`state_watch`, `state_kinds`), and tensors by version or bit by bit (`state_tensors`). What differs is put
back, or refused by name.

Watched are attributes, slots, containers, classes, functions (code, defaults, closures, and globals that
they name), tensors, arrays, sources of random numbers, iterators, generators, files and context variables;
of other objects of C, what Python's garbage collector finds in them. Not watched are numbers that other
objects of C keep to themselves (memory of ctypes, locks and events, numba's lists), what operations of
others keep, modules that are reached by a name that is computed, globals and classes of Python itself and
of a few libraries, settings of torch, global sources of random numbers, the environment, and files on disk.
"""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import nn

from antiphon.errors import RunError, UnsupportedError
from antiphon.training.gradients.state_tensors import Tensors
from antiphon.training.gradients.state_walk import Walk

__all__ = ["State"]

_hidden = torch._C.DisableTorchFunction  # from modes; under its name, losses may not use it
_GLOBAL_HOOKS = [name for name in vars(nn.modules.module) if name.startswith("_global_")]


@final
class State:
    """The mutable state that can be reached from a model, a loss and further objects.

    Guarantee:
        After ``after()`` every watched object refers to what it referred to at the last ``before()``, by
        identity, and every watched tensor has its version or its values back; or `UnsupportedError` is
        raised. Writes that move no version, such as those through ``Tensor.data``, are seen with
        ``exact=True`` only. Caches of ``functools`` are empty before every evaluation.
    """

    def __init__(
        self, model: nn.Module, loss: Callable[..., Any], *more: Any, data: Any = None
    ) -> None:
        self._data = data
        self._roots = [(model, "model"), (loss, "loss")]
        self._roots += [(thing, f"object {i}") for i, thing in enumerate(more)]
        hooks = (vars(nn.modules.module)[name] for name in _GLOBAL_HOOKS)
        self._roots += [(thing, "a hook of all modules") for thing in hooks]
        self._walk: Walk | None = None
        self._tensors = Tensors([])

    @property
    def scripts(self) -> list[str]:
        """The names of functions of ``torch.jit.script`` that were reached."""
        return [] if self._walk is None else self._walk.scripts

    @property
    def generators(self) -> list[Any]:
        """Sources of random numbers that were reached."""
        return [] if self._walk is None else self._walk.generators

    def before(self, exact: bool = False, within: bool = False) -> None:
        """Take the present state as the one to be kept.

        Args:
            exact: Whether parameters are cloned too, which ``after(exact=True)`` needs.
            within: Whether the last evaluation was of the same batch, so that nothing may differ.

        Raises:
            UnsupportedError: if it cannot be told whether an object changes, if a batched tensor is
                reached, or if something has changed within a batch.
        """
        with _hidden(), torch.no_grad():
            walk, tensors = self._walk, self._tensors
            if walk is not None:
                walk.clear_caches()
            is_same = tensors.is_same(exact and tensors.is_exact)
            is_known = walk is not None and (is_same or tensors.are_leaves_same())
            is_watch_same = walk is not None and walk.watch.is_same()
            if within and walk is not None and not (is_same and is_watch_same):
                raise UnsupportedError(
                    "the model, the loss or what they refer to was changed between two examples of a "
                    "batch, as another thread or a finaliser does. It could tell the next of an example."
                )
            if walk is None or not is_known or not (is_watch_same or walk.watch.refresh()):
                self._walk = Walk(self._roots, self._data)
                self._tensors = Tensors(self._walk.tensors)
                self._tensors.take(exact)
            elif not (is_same and is_watch_same) or exact > tensors.is_exact:
                tensors.take(exact)

    def after(self, exact: bool = False) -> None:
        """Put back all that differs from the state that ``before`` took.

        Args:
            exact: Whether tensors are compared bit by bit, rather than by their versions.

        Raises:
            UnsupportedError: if something cannot be put back, or a parameter was changed.
        """
        walk = self._walk
        if walk is None or (exact and not self._tensors.is_exact):
            raise RunError(f"the state was not taken; call before(exact={exact}) first.")
        with _hidden(), torch.no_grad():
            refused: list[Any] = [*self._tensors.put_back(exact)]
            walk.clear_caches()
            if not walk.watch.is_same():
                refused += walk.watch.put_back()
        if refused:
            name = walk.names.get(id(refused[0]), "a gradient")
            raise UnsupportedError(_refusal(refused[0], name))


def _refusal(thing: Any, name: str) -> str:
    if isinstance(thing, nn.Parameter):
        return (
            f"the parameter {name.removeprefix('model.')!r} was changed while the loss was computed, "
            "beside the noisy steps. Change no parameter in the model or the loss."
        )
    return (
        f"{name}: an object of type {type(thing).__name__} was changed and cannot be put back. What one "
        "example leaves behind must not reach the next. Make it anew in every call of the loss."
    )
