"""Tables of which lines were looked up: gradients that are zero in all other lines."""

from typing import final

import torch
from torch import Tensor

from antiphon.training.gradients.abstract_factor import AbstractFactor, Selection
from antiphon.training.gradients.line_sums import add_lines, line_sums
from antiphon.training.gradients.norms import at_least_single, squares
from antiphon.training.gradients.units import Units

__all__ = ["Lookups"]


@final
class Lookups(AbstractFactor):
    """Row i has the gradient right[i, t] in line ``index[i, t]`` of a table, added up over t.

    Attributes:
        index: (rows, T).
        right: (rows, T, width of the table).
        lines: Number of lines of the table.
    """

    def __init__(self, index: Tensor, right: Tensor, lines: int) -> None:
        self.index, self.right, self.lines = index, at_least_single(right), lines
        self.rows = len(index)
        self._summed: tuple[Tensor, Tensor, Tensor] | None = None

    def squared_norms(self) -> Tensor:
        """Sums over equal lines first, since a word that stands twice adds to one line."""
        row, _, sums = self._summed = line_sums(self.index, self.right, self.lines)
        totals = torch.zeros(self.rows, dtype=torch.float64, device=sums.device)
        return totals.index_add_(0, row, squares(sums))

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """Scattered, from the same sums as the norms: their terms may cancel."""
        parts = self._summed or line_sums(self.index, self.right, self.lines)
        add_lines(out, weights, *parts)

    def dense(self) -> Tensor:
        """The whole table for every row."""
        table = self.right.new_zeros(self.rows, self.lines, self.right.shape[2])
        place = self.index[:, :, None].expand_as(self.right)
        return table.scatter_add_(1, place, self.right)

    def keep(self, alive: Selection) -> "Lookups":
        """A selection."""
        return Lookups(self.index[alive], self.right[alive], self.lines)

    def grouped(self, units: Units) -> "Lookups":
        """A user's examples follow each other; what is filled up has gradient zero."""
        index, right = units.spread(self.index), units.spread(units.shares(self.right))
        return Lookups(index.flatten(1, 2), right.flatten(1, 2), self.lines)
