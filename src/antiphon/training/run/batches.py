"""The batches of a run: parts that fit into memory, and the examples in them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import tee
from typing import Any, final

import torch
from torch import Tensor

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.plans import Draws
from antiphon.training.gradients import Examples, Units
from antiphon.training.run.dataset import Dataset
from antiphon.training.run.reading import Reader, check_loading, read_ahead
from antiphon.training.run.unit_rows import Rows

__all__ = ["Batches", "Part"]


@final
@dataclass(frozen=True)
class Part:
    """Rows that are computed together: a batch, or as much of it as fits into memory.

    Attributes:
        step: The private step to which they belong.
        rows: Row numbers of the data set; empty if no unit was drawn.
        units: Whose rows they are, if users are protected.
        is_last: Whether the batch is complete with them.
    """

    step: int
    rows: Tensor
    units: Units | None
    is_last: bool


@final
class Batches:
    """The batches of a run, in parts of at most ``max_batch`` rows.

    Args:
        dataset: What is read.
        draws: Which units are in which batch.
        rows: Which rows belong to which unit.
        max_batch: Most rows that are computed together.
        share: This process's number and the number of processes among which a batch is divided.
        loading: Options of the `DataLoader` that reads the rows.
        key: What random changes of rows depend on, beside step and row. As secret as the data.

    Guarantee:
        What `load` returns for a step depends on the arguments and the step alone: neither on where
        loading began nor on workers. Every row is read and collated by itself.
    """

    def __init__(
        self,
        dataset: Dataset,
        draws: Draws,
        rows: Rows,
        *,
        max_batch: int | None,
        share: tuple[int, int] = (0, 1),
        loading: Mapping[str, Any] | None = None,
        key: bytes,
    ) -> None:
        self.dataset, self._draws, self._rows, self._share = dataset, draws, rows, share
        self._max_batch = None if max_batch is None else whole("max_batch", max_batch)
        self._reader, self._loading = Reader(dataset, key), dict(loading or {})
        check_loading(self._loading)
        if self._max_batch is not None and rows.most > self._max_batch:
            raise PlanError(
                f"one user has {rows.most} examples, which do not fit into max_batch={max_batch}: a user "
                "is clipped as a whole. Raise max_batch, or keep fewer examples of each user."
            )

    def parts(self, step: int) -> list[Part]:
        """The parts of the batch of one step that this process computes; at least one."""
        rank, world = self._share
        units = self._draws.rows(step)[rank::world]
        pieces = self._pieces(units)
        return [
            Part(step, *self._rows.of(piece), is_last=place == len(pieces) - 1)
            for place, piece in enumerate(pieces)
        ]

    def read(self, step: int, rows: Tensor) -> Examples:
        """The examples of these rows, as they are in a batch of this step."""
        return self._reader.read(step, rows)

    def load(self, first: int, last: int) -> Iterator[tuple[Part, Examples | None]]:
        """The parts of the steps from ``first`` to before ``last`` with their examples.

        None where no unit was drawn: then no row is read.
        """
        parts: Iterator[Part] = (part for step in range(first, last) for part in self.parts(step))
        if not self._loading:
            for part in parts:
                yield part, self._reader.read(part.step, part.rows) if len(part.rows) else None
            return
        parts, ahead = tee(parts)  # which keeps what workers are ahead by
        requests = ((part.step, part.rows.tolist()) for part in ahead if len(part.rows))
        examples = read_ahead(self._reader, requests, self._loading)
        for part in parts:
            yield part, next(examples) if len(part.rows) else None

    def _pieces(self, units: Tensor) -> list[Tensor]:
        """Units that are computed together."""
        if self._max_batch is None or not len(units):
            return [units]
        if not self._rows.users:
            return list(torch.split(units, self._max_batch))
        pieces, room = [[]], self._max_batch  # type: list[list[int]], int
        for unit, size in zip(units.tolist(), self._rows.sizes(units).tolist(), strict=True):
            if size > room:
                pieces.append([])
                room = self._max_batch
            pieces[-1].append(unit)
            room -= size
        return [torch.tensor(piece, dtype=torch.int64) for piece in pieces]
