"""Gradients of single examples for any module, by running it again for each of them.

Needed for parameters that a module uses by itself, outside the layers of `antiphon.training.rules`. The
module is differentiated with respect to its own parameters only; ``torch.func`` runs all examples at once,
and where it cannot, they run one by one.
"""

import warnings
from collections.abc import Callable, Sequence
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
            hold one example per row; all others are the same for every example.
        outputs: What came out, the tensors that have a gradient, to be compared with the second run.
        places: Their positions among all that came out.
        gradients: Of the outputs.
    """
    own = dict(module.named_parameters(recurse=False))
    rows = len(outputs[0])
    leaves, form = tree_flatten(inputs)
    batched = [i for i, leaf in enumerate(leaves) if _has_rows(leaf, rows)]

    def run(parameters: dict[str, Tensor], *examples: Tensor) -> tuple[Tensor, ...]:
        filled = list(leaves)
        for place, example in zip(batched, examples, strict=True):
            filled[place] = example[None]
        args, kwargs = tree_unflatten(filled, form)
        out = tree_flatten(functional_call(module, parameters, args, kwargs))[0]
        return tuple(out[place] for place in places)

    grads = [
        torch.zeros_like(o) if g is None else g for o, g in zip(outputs, gradients, strict=True)
    ]

    def one(
        examples: list[Tensor], pulled: list[Tensor]
    ) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        out, pull = vjp(lambda parameters: run(parameters, *examples), own)[:2]
        return pull(tuple(g[None] for g in pulled))[0], out

    found, again = _for_all(name, module, one, [leaves[i] for i in batched], grads)
    _check_same(name, module, outputs, again)
    return {parameter: Dense(gradient.detach()) for parameter, gradient in found.items()}


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


def _check_same(
    name: str, module: nn.Module, outputs: Sequence[Tensor], again: Sequence[Tensor]
) -> None:
    """Refuse a module whose second run is not the first: its gradients would be those of another."""
    for first, second in zip(outputs, again, strict=True):
        flat = second.reshape(first.shape) if second.numel() == first.numel() else None
        tol = 1e-2 if first.dtype in (torch.float16, torch.bfloat16) else 1e-4
        if flat is None or not torch.allclose(first, flat, rtol=tol, atol=tol, equal_nan=True):
            raise _random(name, module)


def _random(name: str, module: nn.Module) -> UnsupportedError:
    return UnsupportedError(
        f"{type(module).__name__} {name!r} has parameters of its own and computes something else when it "
        "is run on one example again: is there randomness (dropout) or a mixture of examples in it? Move "
        "its parameters into a module of their own, without either."
    )


def _has_rows(leaf: Any, rows: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == rows


def _announce(name: str, text: str) -> None:
    if text not in _announced:
        _announced.add(text)
        warnings.warn(text, UserWarning, stacklevel=2)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:120]
