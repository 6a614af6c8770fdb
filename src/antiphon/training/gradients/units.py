"""Which rows of a batch belong to one unit: one row each, or all rows of a user."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

__all__ = ["Units"]


@final
@dataclass(frozen=True)
class Units:
    """The users of a batch's rows.

    Attributes:
        of_row: For every row, the number of its unit, from 0.
        count: How many units the batch has.
    """

    of_row: Tensor
    count: int

    @property
    def sizes(self) -> Tensor:
        """Rows of every unit."""
        return torch.bincount(self.of_row, minlength=self.count)

    @property
    def slots(self) -> tuple[Tensor, int]:
        """A place for every row when each unit gets as many as the largest needs, and that number."""
        order = torch.argsort(self.of_row, stable=True)
        sizes = self.sizes
        most = int(sizes.max()) if self.count else 0
        starts = torch.cumsum(sizes, 0) - sizes
        within = torch.empty_like(self.of_row)
        within[order] = torch.arange(len(order), device=order.device) - starts[self.of_row[order]]
        return self.of_row * most + within, most

    def shares(self, rows: Tensor) -> Tensor:
        """Rows divided by the number of rows of their unit, so that sums over a unit are means."""
        share = (1.0 / self.sizes.to(rows.dtype))[self.of_row]
        return rows * share.view(-1, *[1] * (rows.ndim - 1))

    def spread(self, rows: Tensor) -> Tensor:
        """Rows beside each other by unit, filled up with zeros: (units, most rows of a unit, ...)."""
        slots, most = self.slots
        room = rows.new_zeros((self.count * most, *rows.shape[1:]))
        room[slots] = rows
        return room.view(self.count, most, *rows.shape[1:])

    def total(self, rows: Tensor) -> Tensor:
        """The sum of every unit's rows."""
        return rows.new_zeros((self.count, *rows.shape[1:])).index_add_(0, self.of_row, rows)
