"""The processes of a run: alone, or those of a ``torch.distributed`` group.

A batch is drawn once, by a key that all share, and divided among them. The first process adds up their
clipped sums and adds the noise, whose key no other process holds; it rounds once and sends the result to
all. What one process refuses, all refuse: no process is left waiting for another.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn
from torch import distributed as dist

from antiphon import errors
from antiphon.errors import AntiphonError, PlanError, RunError

__all__ = ["Team"]

Value = TypeVar("Value")
_Failure = tuple[str, str]  # class and text of an exception


@final
@dataclass(frozen=True)
class Team:
    """This process's place among those of a run.

    Attributes:
        rank: Its number; 0 draws the noise and writes the checkpoints.
        world: How many there are.
    """

    rank: int = 0
    world: int = 1

    @classmethod
    def of_this_process(cls) -> "Team":
        """The default group, or this process alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def is_first(self) -> bool:
        """Whether this process draws the noise."""
        return self.rank == 0

    def first(self, work: Callable[[], Value]) -> Value:
        """Call ``work`` in the first process; what it returns or raises there, all return or raise."""
        if self.world == 1:
            return work()
        box: list[Any] = [None, None]
        error: Exception | None = None
        if self.is_first:
            try:
                box[0] = work()
            except Exception as raised:
                error, box[1] = raised, _described(raised)
        with _told("waiting for the first one"):
            dist.broadcast_object_list(box)
        if error is not None:
            raise error
        if box[1] is not None:
            raise _retold(0, box[1])
        return box[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """If what stands within fails in one process, all fail. Nothing within may wait for others."""
        try:
            yield
        except Exception as error:  # an interrupt ends its process, which the others notice
            if self.world > 1:
                with suppress(RunError):
                    self._gathered(_described(error))
            raise
        if self.world > 1:
            for rank, failure in enumerate(self._gathered(None)):
                if failure is not None:
                    raise _retold(rank, failure)

    def check_same(self, facts: Mapping[str, Any]) -> None:
        """Raise in all processes if a fact of one differs from the first one's."""
        if self.world == 1:
            return
        for rank, other in enumerate(seen := self._gathered(dict(facts))):
            for name, value in other.items():
                if value != seen[0][name]:
                    raise PlanError(
                        f"the processes of a run must be given the same: {name} is {seen[0][name]} in "
                        f"process 0 and {value} in process {rank}."
                    )

    def same_start(self, model: nn.Module) -> None:
        """Give every process the first one's parameters and buffers."""
        if self.world == 1:
            return
        with _told("sharing the model"), torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                whole = tensor.detach().contiguous()
                dist.broadcast(whole, 0)
                if whole.data_ptr() != tensor.data_ptr():
                    tensor.copy_(whole)

    def add_up(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum over all processes."""
        if self.world > 1:
            with _told("adding up gradients"):
                dist.all_reduce(tensor)

    def to_first(self, tensor: Tensor) -> Tensor:
        """The sum over all processes in float64, of which the first one alone may make use."""
        if self.world == 1:
            return tensor
        total = tensor.to(torch.float64, copy=True)
        with _told("adding up gradients"):
            dist.reduce(total, 0)
        return total

    def from_first(self, tensor: Tensor) -> None:
        """Overwrite the tensor with that of the first process."""
        if self.world > 1:
            with _told("handing out the noisy sum"):
                dist.broadcast(tensor, 0)

    def _gathered(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world
        with _told("comparing notes"):
            dist.all_gather_object(values, value)
        return values


def _described(error: Exception) -> _Failure:
    return type(error).__name__, str(error)


def _retold(rank: int, failure: _Failure) -> AntiphonError:
    """An error of process ``rank`` for the others."""
    name, text = failure
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, AntiphonError):
        return kind(f"process {rank}: {text}")
    return RunError(f"process {rank} of this run stopped: {name}: {text}")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what a lost process causes into an error that says so."""
    try:
        yield
    except RuntimeError as error:  # also torch's DistBackendError
        raise RunError(
            f"another process of this run was lost while {what}; no update was made in this step. Start "
            "all processes again, with resume=True if the run has a checkpoint."
        ) from error
