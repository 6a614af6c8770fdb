"""Which of the two ways computes gradients: chosen once, before the first step."""

import warnings
from collections.abc import Mapping

import torch
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
    "different inplace randomness on an unbatched tensor": "it draws into a tensor that is no example's",
    "does not require grad and does not have a grad_fn": "it computes gradients by torch.autograd",
    "we do not yet support aten::": "an operation in it has no batching rule",
    "an error of torch was caught": "it catches errors of torch",
    "a __torch_dispatch__ of its own": "a class of tensors in it has operations of its own",
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
) -> AbstractPath:
    """The quickest way that computes the loss's gradients, tried on a few examples.

    A loss that vmap cannot follow is evaluated for one example after another, which is announced with its
    reason. Anything else that fails is an error. Gradients under vmap are compared with those of plain
    autograd, since a read of a parameter that no tap sees would give an incomplete gradient.
    """
    state = State(model, loss)
    alone = Alone(model, loss, parameters, key, state)
    found = [alone.gradients(0, int(ids[i]), examples, i) for i in range(len(ids))]
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
                f"a batch's examples is computed by itself: {error}. Most often a tensor is changed in "
                "place by an example's values: make a new one instead."
            ) from error
        warnings.warn(
            f"the loss is evaluated for one example after another, since {reason}. That costs about as "
            "many plain forward and backward passes as a batch has examples.",
            UserWarning,
            stacklevel=5,  # the caller of make_private
        )
        return alone
    dense = {p: factor.dense() for p, factor in factors.items()}
    for place, row in enumerate(found):
        size = sum(float(one.double().norm()) for one in row)
        for (name, parameter), one in zip(parameters.items(), row, strict=True):
            other = dense[parameter][place] if parameter in dense else torch.zeros_like(one)
            _check_close(name, one.double(), other.double().view(one.shape), size)
    return batched


def _reason(error: BaseException) -> str | None:
    """Why vmap cannot follow, if that is all that is wrong."""
    text = str(error)
    return next((reason for mark, reason in _CANNOT_FOLLOW.items() if mark in text), None)


def _check_close(name: str, one: Tensor, other: Tensor, size: float) -> None:
    if not bool(one.isfinite().all()):
        return
    if float((one - other).norm()) > _TOLERANCE * float(one.norm()) + _ROUNDING * size + 1e-6:
        raise UnsupportedError(
            f"the gradient of {name!r} under torch.func.vmap is not that of a single example: it is read "
            "in a way that cannot be followed. Read it by plain torch operations, or leave it out of the "
            "optimizer."
        )
