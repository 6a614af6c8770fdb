"""From a drawn batch to tensors: parts that fit into memory, users' rows, blanks for empty batches."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from antiphon.checks import whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.sampling import Draws
from antiphon.training.units import Units

__all__ = ["Batches", "Part", "Rows", "as_dataset"]


@final
@dataclass(frozen=True)
class Part:
    """Rows that are computed together: a batch, or as much of it as fits into memory.

    Attributes:
        step: The private step to which they belong.
        rows: Row numbers of the data set; empty if nobody was drawn.
        units: Whose rows they are, if users are protected.
        is_last: Whether the batch is complete with them.
    """

    step: int
    rows: Tensor
    units: Units | None
    is_last: bool


@final
class Rows:
    """The rows of every unit: one each, or those of a user."""

    def __init__(self, length: int, users: Any) -> None:
        self.length, self.users = length, users is not None
        if users is None:
            self.count, self.most = length, 1
            return
        of_row = _numbered(users, length)
        sizes = np.bincount(of_row)
        self.count, self.most = len(sizes), int(sizes.max())
        self._rows = torch.from_numpy(np.argsort(of_row, kind="stable"))
        self._sizes = torch.from_numpy(sizes)
        self._starts = torch.cumsum(self._sizes, 0) - self._sizes

    def digest(self) -> str:
        """A hash of who has which rows: equal in all processes of a run."""
        if not self.users:
            return ""
        parts = (self._rows.numpy(), self._sizes.numpy())
        return blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).hexdigest()

    def of(self, units: Tensor) -> tuple[Tensor, Units | None]:
        """Rows of these units, unit by unit."""
        if not self.users:
            return units, None
        sizes = self._sizes[units]
        of_row = torch.repeat_interleave(torch.arange(len(units)), sizes)
        within = torch.arange(len(of_row)) - (torch.cumsum(sizes, 0) - sizes)[of_row]
        return self._rows[self._starts[units][of_row] + within], Units(of_row, len(units))

    def sizes(self, units: Tensor) -> Tensor:
        """How many rows each unit has."""
        return self._sizes[units] if self.users else torch.ones_like(units)


def _numbered(users: Any, length: int) -> NDArray[np.int64]:
    """The number of every row's user, in the order in which they first appear."""
    # An array would make one kind of all names, and merge 1 with "1".
    shape = np.shape(users) if hasattr(users, "shape") else (len(users),)
    if shape != (length,):
        raise PlanError(
            f"user names the user of every example: {length} are needed; got shape {shape}."
        )
    names = users.tolist() if hasattr(users, "tolist") else list(users)
    if any(_is_missing(name) for name in names):
        raise PlanError(
            "some examples have no user: None or NaN would make one user of all of them. Name every "
            "example's user, or leave these examples out."
        )
    known: dict[Any, int] = {}
    try:
        return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)
    except TypeError as error:
        raise PlanError(f"users are numbers or texts: {error}.") from error


def _is_missing(name: Any) -> bool:
    try:
        return name is None or bool(name != name)
    except (TypeError, ValueError):  # pandas.NA compares to neither True nor False
        return True


@final
class Batches:
    """The batches of a run, in parts of at most ``max_batch`` rows.

    Args:
        dataset: Map-style data set.
        draws: Which units are in which batch.
        rows: Which rows belong to which unit.
        max_batch: Most rows that are computed together.
        share: This process's number and the number of processes among which a batch is divided.
        loading: Options of the `DataLoader`.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        draws: Draws,
        rows: Rows,
        *,
        max_batch: int | None,
        share: tuple[int, int] = (0, 1),
        loading: dict[str, Any] | None = None,
    ) -> None:
        self.dataset, self._draws, self._rows, self._share = dataset, draws, rows, share
        self._max_batch = None if max_batch is None else whole("max_batch", max_batch)
        self._loading = loading or {}
        if not self._loading.get("in_order", True):
            raise PlanError(
                "in_order=False hands out batches in another order than they are drawn in and accounted "
                "for. Leave it out."
            )
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

    def load(self, first: int, last: int) -> Iterator[tuple[Part, Any]]:
        """The parts of the steps from ``first`` to before ``last``, with their data."""
        if type(self.dataset) is TensorDataset and not set(self._loading) - {"pin_memory"}:
            tensors = self.dataset.tensors
            for step in range(first, last):
                for part in self.parts(step):
                    rows = part.rows
                    yield part, (_chosen(tensors, rows) if len(rows) else self.blank())
            return
        fetched = self._fetched(first, last)
        for step in range(first, last):
            for part in self.parts(step):
                yield part, (next(fetched) if len(part.rows) else self.blank())

    def blank(self) -> Any:
        """One row of zeros, in the form of a batch: what is handed out when nobody was drawn."""
        collate = self._loading.get("collate_fn") or default_collate
        return tree_map(
            lambda leaf: torch.zeros_like(leaf) if isinstance(leaf, Tensor) else leaf,
            collate([self.dataset[0]]),
        )

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

    def _fetched(self, first: int, last: int) -> Iterator[Any]:
        """The data of all parts that have any."""
        # A loader with workers reads ahead, so it draws the batches once more for itself.
        parts = (part for step in range(first, last) for part in self.parts(step))
        # A loader seeds its workers by a number from torch's own generator, which a resumed run must find
        # as the run that was interrupted left it.
        options = {"generator": torch.Generator(), **self._loading}
        if not options.get("num_workers"):
            lists = (part.rows.tolist() for part in parts if len(part.rows))
            return iter(DataLoader(self.dataset, batch_sampler=_Lists(lists), **options))
        lists = ([part.step, *part.rows.tolist()] for part in parts if len(part.rows))
        dataset = _Reseeded(self.dataset, torch.initial_seed())
        return iter(DataLoader(dataset, batch_sampler=_Lists(lists), **options))


def _chosen(tensors: Sequence[Tensor], rows: Tensor) -> list[Tensor]:
    """These rows of every tensor; several times quicker than by square brackets."""
    return [tensor.index_select(0, rows.to(tensor.device)) for tensor in tensors]


@final
class _Lists:
    """A batch sampler over what an iterator returns."""

    def __init__(self, lists: Iterator[list[int]]) -> None:
        self._lists = lists

    def __iter__(self) -> Iterator[list[int]]:
        return self._lists


@final
class _Reseeded(Dataset[Any]):
    """A data set whose random changes of a row, made in a worker, depend on its batch and a seed alone.

    A worker's generators cannot be kept in a checkpoint: a resumed run would augment its data otherwise
    than the run that was interrupted, and be refused because its gradients differ.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self._seed = dataset, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        """What a ``worker_init_fn`` looks for."""
        if name in ("dataset", "_seed"):  # not there yet, while it is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitems__(self, step_and_rows: list[int]) -> list[Any]:
        """Rows of one part of a batch, after the number of its step."""
        text = f"{self._seed} {step_and_rows}".encode()
        seed = int.from_bytes(
            blake2b(text, digest_size=8, person=b"antiphon rows").digest(), "little"
        )
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (the global one is meant)
        _, *rows = step_and_rows
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(rows)
        return [self.dataset[row] for row in rows]


def as_dataset(data: Any) -> Dataset[Any]:
    """A map-style data set of this: one already, or tensors or arrays of equal length."""
    if isinstance(data, tuple | list) and data and all(_is_array(part) for part in data):
        tensors = [torch.as_tensor(part) for part in data]
        if len({len(tensor) for tensor in tensors}) != 1:
            raise PlanError(
                f"the arrays have different lengths: {[len(tensor) for tensor in tensors]}."
            )
        data = TensorDataset(*tensors)
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise UnsupportedError(
            f"batches are drawn by row number, so the data set needs __len__ and __getitem__; "
            f"{type(data).__name__} has not both (an IterableDataset cannot be sampled)."
        )
    if not len(data):
        raise PlanError("the data set is empty.")
    return data


def _is_array(part: Any) -> bool:
    return isinstance(part, Tensor | np.ndarray)
