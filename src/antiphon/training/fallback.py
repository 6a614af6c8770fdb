"""Gradients of single examples for any module, by running it again for each of them.

Needed for parameters that a module uses by itself, outside the layers of `antiphon.training.rules`. The
module is differentiated with respect to its own parameters only; ``torch.func`` runs all examples at once,
and where it cannot, they run one by one.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from antiphon.errors import UnsupportedError
from antiphon.training.factors import Dense
from antiphon.training.rules import Factors

__all__ = ["by_running_again"]

_announced: set[str] = set()


def by_running_again(
    name: str,
    module: nn.Module,
    inputs: tuple[tuple[Any, ...], dict[str, Any]],
    outputs: Sequence[Tensor],
    places: Sequence[int],
    gradients: Sequence[Tensor | None],
) -> Factors:
    """Factors of the module's own parameters.

    Args:
        name: The module's, for messages.
        module: Run again on one example at a time.
        inputs: Its positional and named arguments. Tensors with as many rows as the outputs are taken to
            hold one example per row; all others are the same for every example. Where that does not give
            back the first run's outputs, some of them may have as many rows by coincidence only (a mask
            of time by time), so the ways to take them as the same for every example are tried.
        outputs: What came out, the tensors that have a gradient, to be compared with the second run.
        places: Their positions among all that came out.
        gradients: Of the outputs.
    """
    own = dict(module.named_parameters(recurse=False))
    first_name = {parameter: key for key, parameter in reversed(own.items())}
    aliases = {
        key: first_name[parameter]
        for key, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
    }
    leaves, form = tree_flatten(inputs)
    grads = [
        torch.zeros_like(o) if g is None else g for o, g in zip(outputs, gradients, strict=True)
    ]

    def attempt(batched: tuple[int, ...]) -> dict[str, Tensor] | None:
        def run(parameters: dict[str, Tensor], *examples: Tensor) -> tuple[Tensor, ...]:
            filled = list(leaves)
            for place, example in zip(batched, examples, strict=True):
                filled[place] = example[None]
            args, kwargs = tree_unflatten(filled, form)
            used = {key: parameters[first] for key, first in aliases.items()}
            # What a child does with a shared parameter is noted where the child runs.
            out = functional_call(module, used, args, kwargs, tie_weights=False)
            flat = tree_flatten(out)[0]
            return tuple(flat[place] for place in places)

        def one(
            examples: list[Tensor], pulled: list[Tensor]
        ) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
            out, pull = vjp(lambda parameters: run(parameters, *examples), own)[:2]
            return pull(tuple(g[None] for g in pulled))[0], out

        found, again = _for_all(name, module, one, [leaves[i] for i in batched], grads)
        return found if _are_same(outputs, again) else None

    for batched in _choices(leaves, len(outputs[0])):
        try:
            found = attempt(batched)
        except RuntimeError as error:
            raise _random(name, module) from error
        if found is not None:
            return {key: Dense(gradient.detach()) for key, gradient in found.items()}
    raise _random(name, module)


def _choices(leaves: Sequence[Any], rows: int) -> list[tuple[int, ...]]:
    """Which arguments may hold one example per row: all that could, then without some of them."""
    able = tuple(i for i, leaf in enumerate(leaves) if _has_rows(leaf, rows))
    fewer = [
        tuple(i for i in able if i not in left_out)
        for count in range(1, min(len(able), 3))
        for left_out in combinations(able[1:], count)
    ]
    return [able, *fewer]


def _for_all(
    name: str,
    module: nn.Module,
    one: Callable[..., tuple[dict[str, Tensor], tuple[Tensor, ...]]],
    examples: list[Tensor],
    grads: list[Tensor],
) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
    """All examples at once, or one by one where that is not possible."""
    kind = type(module).__name__
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            result = vmap(one)(examples, grads)
        _announce(name, f"{kind} {name!r} has no rule of its own: torch.func forms its gradients.")
        return result
    except RuntimeError as error:
        if "randomness" in str(error):
            raise _random(name, module) from error
        _announce(
            name,
            f"{kind} {name!r} cannot be run for all examples at once ({_first_line(error)}); it runs once "
            "per example, which is slow.",
        )
    rows = [one([x[i] for x in examples], [g[i] for g in grads]) for i in range(len(grads[0]))]
    found = {key: torch.stack([row[0][key] for row in rows]) for key in rows[0][0]}
    return found, tuple(torch.stack(parts) for parts in zip(*(row[1] for row in rows), strict=True))


def _are_same(outputs: Sequence[Tensor], again: Sequence[Tensor]) -> bool:
    """Whether the second run is the first: else its gradients would be those of another function."""
    for first, second in zip(outputs, again, strict=True):
        if second.numel() != first.numel():
            return False
        tol = 1e-2 if first.dtype in (torch.float16, torch.bfloat16) else 1e-4
        flat = second.reshape(first.shape).to(first.dtype)
        if not torch.allclose(first, flat, rtol=tol, atol=tol, equal_nan=True):
            return False
    return True


def _random(name: str, module: nn.Module) -> UnsupportedError:
    return UnsupportedError(
        f"{type(module).__name__} {name!r} has parameters of its own and computes something else when it "
        "is run on one example again: is there randomness (dropout) or a mixture of examples in it, or an "
        "output whose first axis is not the batch? Move its parameters into a module of their own, without "
        "these."
    )


def _has_rows(leaf: Any, rows: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == rows


def _announce(name: str, text: str) -> None:
    if text not in _announced:
        _announced.add(text)
        warnings.warn(text, UserWarning, stacklevel=2)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:120]
