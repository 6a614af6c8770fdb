"""What both ways to compute gradients of single examples share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.abstract_factor import AbstractFactor
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.state import State
from antiphon.training.gradients.units import Units

__all__ = ["AbstractPath", "Loss", "Piece", "as_scalar", "device_of", "kept"]

Loss = Callable[..., Any]


@final
@dataclass(frozen=True, eq=False)
class Piece:
    """Gradients of the examples of some units.

    Attributes:
        factors: By parameter, one row for every example.
        units: Whose they are, if users are protected.
    """

    factors: Mapping[nn.Parameter, AbstractFactor]
    units: Units | None


class AbstractPath(ABC):
    """A way to compute the gradients of single examples.

    Attributes:
        text: What the certificate says of it.
    """

    text: str

    @abstractmethod
    def pieces(
        self, step: int, ids: Tensor, examples: Examples, units: Units | None = None
    ) -> Iterator[Piece]:
        """The gradients of these examples.

        Args:
            step: Number of the private step, on which random draws depend.
            ids: Number of every example's row in the data set, on which random draws depend.
            examples: What the loss is given.
            units: Whose they are, if users are protected.
        """


def as_scalar(loss: Any) -> Tensor:
    """The loss of one example as a tensor without axes."""
    if not isinstance(loss, Tensor):
        raise UnsupportedError(
            f"the loss of an example must be a tensor with one number; got {type(loss).__name__}."
        )
    if loss.numel() != 1:
        raise UnsupportedError(
            f"the loss of one example has shape {tuple(loss.shape)}. Return one number: the mean or the "
            "sum over its places."
        )
    if not loss.is_floating_point():
        raise UnsupportedError(f"the loss must be a real number; got {loss.dtype}.")
    return loss.reshape(())


@contextmanager
def kept(state: State, *, exact: bool = False, within: bool = False) -> Iterator[None]:
    """One evaluation: what it changes of Python's state is put back after it; see `State`."""
    state.before(exact, within)
    try:
        yield
    except BaseException:
        _put_back(state, exact)
        raise
    state.after(exact)


def _put_back(state: State, exact: bool) -> None:
    """After a failure, which is what is told."""
    with suppress(UnsupportedError):
        state.after(exact)


def device_of(parameters: Iterable[nn.Parameter]) -> torch.device:
    """Where the parameters are."""
    return next(iter(parameters)).device
