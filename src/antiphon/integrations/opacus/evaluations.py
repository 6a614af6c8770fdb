"""What evaluations of model and criterion have in common: what surrounds them, and what they may return."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from antiphon.errors import AntiphonError, UnsupportedError
from antiphon.training.gradients import Caught, Dense, Together

__all__ = ["CONSTANTS", "TENSOR", "NotShown", "Setting", "as_call", "constant", "followed"]

CONSTANTS = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)
TENSOR = object()  # the place of one among results


@final
@dataclass(eq=False)
class Setting:
    """What the batches of a run have in common.

    Attributes:
        together: What surrounds every evaluation.
        is_mean: Whether a loss is shown as the mean over the examples, rather than as their sum.
        key: Secret, from which random draws come.
        constants: What was given beside tensors, by function, call and place.
    """

    together: Together
    is_mean: bool
    key: bytes
    constants: dict[tuple[str, int, int], str] = field(default_factory=dict)


@contextmanager
def followed(what: str) -> Iterator[None]:
    """A line on why vmap cannot follow a call, in place of an error."""
    try:
        yield
    except AntiphonError:
        raise
    except (RuntimeError, NotImplementedError, ValueError, IndexError, TypeError) as error:
        raise UnsupportedError(
            f"{what} failed for an example by itself, as a batch of one, under torch.func.vmap: "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__} What vmap cannot "
            "follow, ap.make_private evaluates for one example after another."
        ) from error


@final
@dataclass(frozen=True)
class NotShown:
    """Stands where the model returned an object that may hold tensors, such as a cache.

    Attributes:
        kind: Of what.
    """

    kind: str


def constant(thing: Any) -> Any:
    """A result that is equal for all examples, or `TENSOR` in place of a tensor."""
    if isinstance(thing, Tensor):
        return TENSOR
    return thing if isinstance(thing, CONSTANTS) else NotShown(type(thing).__name__)


def as_call(parameter: nn.Parameter, leaf: Tensor) -> Caught:
    """A parameter tap in the form of an output tap, since several calls have one each."""
    return Caught(leaf, (), lambda g: {parameter: Dense(g)}, "a parameter")
