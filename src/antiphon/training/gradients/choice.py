"""Which of the two ways computes gradients: chosen once, before the first step."""

import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.alone import Alone
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.piece import AbstractPath, Loss
from antiphon.training.gradients.state import State

__all__ = ["choose"]

# What torch says where vmap cannot follow a loss that is well defined for one example.
_CANNOT_FOLLOW = {
    "data-dependent control flow": "its control flow depends on the example's values",
    ".item() on a Tensor": "it calls .item() on a tensor of the example",
    "dynamic shape": "a tensor's shape depends on the example's values",
    "Batching rule not implemented": "an operation in it has no batching rule",
    "must override the setup_context staticmethod": "an autograd function in it has no batching rule",
    "does not have vmap support": "an autograd function in it has no batching rule",
    "does not have a batching rule": "an operation in it has no batching rule",
    "it does not have vmap support": "an autograd function in it has no batching rule",
    "Cannot register a hook": "it registers a hook on a tensor",
    "cannot register a hook": "it registers a hook on a tensor",
    "different inplace randomness on an unbatched tensor": "it draws into a tensor that is no example's",
    "does not require grad and does not have a grad_fn": "it computes gradients by torch.autograd",
    "we do not yet support aten::": "an operation in it has no batching rule",
    "an error of torch was caught": "it catches errors of torch",
    "a __torch_dispatch__ of its own": "a class of tensors in it has operations of its own",
    "hides what it calls": "a function of torch.jit.script in it hides what it calls",
    "shows all examples": "it unwraps a tensor",
    "read in a way that cannot be followed": "it reads parameters in a way that cannot be followed",
    "Can't detach views in-place": "it makes a tensor of a tensor by torch.tensor",
    "SparseCPU": "it makes a sparse tensor of the example",
    "tolist() is not supported": "it calls .tolist() on a tensor of the example",
    "Cannot access data pointer of Tensor that doesn't have storage": "it reads a tensor's memory",
    "Cannot access storage of BatchedTensorImpl": "it reads a tensor's memory",
}
_TOLERANCE = 1e-2  # of a parameter's gradient: a missing path changes more, rounding less
_ROUNDING = 1e-5  # of the whole gradient: what rounding leaves of a gradient that is zero


def choose(
    model: nn.Module,
    loss: Loss,
    parameters: Mapping[str, nn.Parameter],
    key: bytes,
    ids: Tensor,
    examples: Examples,
    data: Any = None,
) -> AbstractPath:
    """The quickest way that computes the loss's gradients, tried on a few examples.

    Args:
        model: The model, the first argument of the loss.
        loss: From the model and one example, as a batch of one, to a number.
        parameters: Those that are trained, by name.
        key: Secret, from which random draws within the loss come.
        ids: Of the examples.
        examples: A few to try.
        data: The records of the run, if they are a list: what reaches them is not watched, since a loss
            reads its own example only.

    A loss that vmap cannot follow is evaluated for one example after another, which is announced with its
    reason. Anything else that fails is an error. Gradients under vmap are compared with those of plain
    autograd, since a read of a parameter that no tap sees would give an incomplete gradient.
    """
    state = State(model, loss, data=data)
    alone = Alone(model, loss, parameters, key, state)
    try:
        found = [alone.gradients(0, int(ids[i]), examples, i) for i in range(len(ids))]
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UnsupportedError(
            "the loss normalises over the examples of a batch, of which it is given one: "
            f"{_first_line(error)}. Use group or layer normalisation, or statistics that are fixed."
        ) from error
    batched = Batched(model, loss, parameters, key, state)
    try:
        _, factors = batched.evaluate(0, ids, examples)
    except (RuntimeError, NotImplementedError, UnsupportedError) as error:
        reason = _reason(error)
        if reason is None and isinstance(error, UnsupportedError):
            raise
        if reason is None:
            raise UnsupportedError(
                "the loss can be computed for one example, but not under torch.func.vmap, where each of "
                f"a batch's examples is computed by itself: {_first_line(error)} Most often a "
                "tensor is changed in place by values of an example: make it by x.new_zeros(...) of a "
                "tensor x of the example instead of torch.zeros, or compute a new one."
            ) from error
    else:
        dense = {p: factor.dense() for p, factor in factors.items()}
        rows = [
            [dense[p][i] if p in dense else None for p in parameters.values()]
            for i in range(len(ids))
        ]
        if not all(map(_are_close, found, rows)):
            reason = "its gradients under torch.func.vmap are not those of single examples"
        elif batched.shares_draws:
            reason = "it draws random numbers of NumPy or Python, under vmap one for all examples"
        else:
            return batched
    warnings.warn(
        f"the loss is evaluated for one example after another, since {reason}. That costs about as many "
        "plain forward and backward passes as a batch has examples.",
        UserWarning,
        stacklevel=5,  # the caller of make_private
    )
    return alone


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _reason(error: BaseException) -> str | None:
    """Why vmap cannot follow, if that is all that is wrong."""
    text = str(error)
    return next((reason for mark, reason in _CANNOT_FOLLOW.items() if mark in text), None)


def _are_close(one: list[Tensor], other: list[Tensor | None]) -> bool:
    """Whether two gradients of an example are the same up to rounding; a missing one is zero."""
    size = sum(float(g.double().norm()) for g in one)
    for g, h in zip(one, other, strict=True):
        if bool(g.isfinite().all()):
            difference = g.double() if h is None else g.double() - h.double().view(g.shape)
            allowed = _TOLERANCE * float(g.double().norm()) + _ROUNDING * size + 1e-6
            if float(difference.norm()) > allowed:
                return False
    return True
