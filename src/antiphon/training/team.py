"""The processes of a run: alone, or those of a ``torch.distributed`` group.

A batch is drawn once, by a key that all share, and divided among them. Their clipped sums are added; the
noise is in the sum of the first process only, so it is added once, and nobody else holds its key.
"""

from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn
from torch import distributed as dist

from antiphon.errors import RunError

__all__ = ["Team"]

Value = TypeVar("Value")


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

    def agree(self, value: Value | None) -> Value:
        """The first process's value, for all."""
        if self.world == 1:
            return value  # type: ignore[return-value]
        box: list[Any] = [value]
        with _told("sharing the plan"):
            dist.broadcast_object_list(box)
        return box[0]

    def same_start(self, model: nn.Module) -> None:
        """Give every process the first one's parameters and buffers."""
        if self.world > 1:
            with _told("sharing the model"):
                for tensor in (*model.parameters(), *model.buffers()):
                    dist.broadcast(tensor.detach(), 0)

    def add_up(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum over all processes."""
        if self.world > 1:
            with _told("adding up gradients"):
                dist.all_reduce(tensor)


class _told:
    """Turns what a lost process causes into an error that says so."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, RuntimeError | torch.distributed.DistBackendError):
            raise RunError(
                f"another process of this run was lost while {self._what}; no update was made in this "
                "step. Start all processes again with resume=True to go on from the last checkpoint."
            ) from error
