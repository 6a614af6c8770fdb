"""Rows read one by one, in this process or ahead of time in workers, with the same result."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from antiphon.errors import AntiphonError, PlanError, RunError
from antiphon.training.gradients import Examples, OwnGenerators, python_seeds
from antiphon.training.run.dataset import Dataset
from antiphon.training.run.stacking import stacked

__all__ = ["Reader", "Request", "check_loading", "read_ahead"]

Request = tuple[int, list[int]]  # a step, and numbers of rows

_OPTIONS = (
    "num_workers", "pin_memory", "pin_memory_device", "timeout", "worker_init_fn",
    "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers", "in_order",
)  # fmt: skip


@final
@dataclass(frozen=True, eq=False, repr=False)
class Reader:
    """Reads the rows of one step.

    Attributes:
        dataset: Where they come from.
        key: What random changes of rows depend on, beside step and row. As secret as the data.

    Guarantee:
        Torch's global generator, NumPy's and Python's are set from key, step and row number before a row
        is read and collated, and put back afterwards. So are generators that data set and ``collate`` keep
        for themselves, which are not put back (`OwnGenerators` says where they are looked for). So what a
        row becomes depends neither on the other rows of its batch nor on the process that reads it, if
        data set and ``collate`` keep nothing else. Rows are read in the order of the request, each once.
    """

    dataset: Dataset
    key: bytes
    _own: list[OwnGenerators] = field(default_factory=list, init=False)  # made where rows are read

    def read(self, step: int, rows: Tensor) -> Examples:
        """The examples of these rows; at least one."""
        columns = self.dataset.plain_columns
        if columns is not None:
            return Examples.of(columns.select(rows))
        if not self._own:
            self._own.append(OwnGenerators((self.dataset.rows, self.dataset.collate), self.key))
        own = self._own[0]
        own.look()

        def one(seed: Callable[[int | None], None], row: int) -> Any:
            seed(row)
            own.seed(step, row)
            try:
                return self.dataset.one(row)
            finally:
                own.look(briefly=True)  # some are made when the first row is read

        with python_seeds(self.key, step, None) as seed:
            return stacked((one(seed, row) for row in rows.tolist()), len(rows))

    def __getitem__(self, request: Request) -> Examples | AntiphonError:
        """What a `DataLoader` asks for. A refusal is handed over, so that its text arrives as it is."""
        step, rows = request
        try:
            return self.read(step, torch.tensor(rows, dtype=torch.int64))
        except AntiphonError as error:
            return error


def check_loading(loading: Mapping[str, Any]) -> None:
    """Raise unless these options say how rows are read, and nothing of which rows and in what order."""
    if "collate_fn" in loading:
        raise PlanError(
            "collate_fn is not an option of loading: give ap.Dataset(rows, collate=...), which is called "
            "with one row at a time."
        )
    unknown = sorted(set(loading) - set(_OPTIONS))
    if unknown:
        raise PlanError(
            f"loading has {', '.join(unknown)}, and batches are drawn by the run itself. It may have "
            f"{', '.join(_OPTIONS)}."
        )
    if not loading.get("in_order", True):
        raise PlanError(
            "in_order=False hands out batches in another order than they are drawn in and accounted "
            "for. Leave it out."
        )
    try:
        _loader([], [], loading)
    except (TypeError, ValueError) as error:
        raise PlanError(f"loading cannot be used: {error}") from error


def read_ahead(
    reader: Reader, requests: Iterable[Request], loading: Mapping[str, Any]
) -> Iterator[Examples]:
    """What the reader returns for every request, by a `DataLoader` with these options."""
    found = _started(reader, requests, loading)
    has_workers = bool(loading.get("num_workers"))
    while True:
        try:
            examples = next(found)
        except StopIteration:
            return
        except Exception as error:
            if not has_workers or isinstance(error, AntiphonError):
                raise
            raise RunError(
                f"a worker that reads rows failed with {type(error).__name__}; its message stands above. "
                "Without num_workers, rows are read in this process, where the cause is easier to find."
            ) from error
        if isinstance(examples, AntiphonError):
            raise examples
        yield examples


def _started(reader: Reader, requests: Iterable[Request], loading: Mapping[str, Any]) -> Any:
    try:
        return iter(_loader(reader, requests, loading))
    except AntiphonError:
        raise
    except Exception as error:
        raise RunError(
            f"the workers that read rows could not be started: {type(error).__name__}; its message stands "
            "above. What is sent to a worker must be pickled unless it is forked: define the data set's "
            "class, collate= and worker_init_fn at the top of a module."
        ) from error


def _loader(
    reader: Any, requests: Iterable[Request], loading: Mapping[str, Any]
) -> DataLoader[Any]:
    # A loader seeds its workers by a number from torch's own generator, which a resumed run must find as
    # the run that was interrupted left it.
    options = {"generator": torch.Generator(), **loading}
    options["worker_init_fn"] = _Begin(loading.get("worker_init_fn"))
    return DataLoader(reader, batch_size=None, sampler=requests, collate_fn=_as_it_is, **options)


def _as_it_is(examples: Any) -> Any:
    return examples


@final
@dataclass(frozen=True)
class _Begin:
    """What a worker does first: its ``get_worker_info().dataset`` is the user's own, as in any loader."""

    also: Callable[[int], Any] | None

    def __call__(self, worker: int) -> None:
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.dataset.rows)  # it is frozen
        if self.also is not None:
            self.also(worker)
