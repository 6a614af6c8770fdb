"""Where configurations run: in this process, in several of this machine, or on a Dask cluster.

Workers send rows back and write nothing: they may share no disk with the caller.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from antiphon.checks import whole
from antiphon.errors import RunError

__all__ = ["mapped"]

_PATIENCE = 10.0  # seconds for a cluster to answer

Call = tuple[Any, ...]


def mapped(
    function: Callable[..., Any],
    calls: Sequence[Call],
    *,
    jobs: int = 1,
    cluster: str | None = None,
) -> Iterator[tuple[int, Any]]:
    """Places of the calls with their results, as they are done.

    Args:
        function: Of a module that workers can import.
        calls: Its arguments, which can be pickled, as its results.
        jobs: Processes of this machine.
        cluster: Address of a Dask scheduler, such as "tcp://host:8786"; then ``jobs`` is not used.

    Raises:
        RunError: If there is no cluster at the address, or a worker died.
    """
    jobs = whole("jobs", jobs)
    if not calls:
        return
    if cluster is not None:
        yield from _on_cluster(function, calls, cluster)
        return
    from joblib import Parallel, delayed

    workers = Parallel(n_jobs=jobs, return_as="generator_unordered")
    yield from workers(delayed(_placed)(function, place, call) for place, call in enumerate(calls))


def _placed(function: Callable[..., Any], place: int, call: Call) -> tuple[int, Any]:
    return place, function(*call)


def _on_cluster(
    function: Callable[..., Any], calls: Sequence[Call], address: str
) -> Iterator[tuple[int, Any]]:
    try:
        import distributed
        from distributed.client import FutureCancelledError
    except ImportError as error:
        raise RunError('a cluster needs an extra: pip install "antiphon[cluster]".') from error
    connect: Any = distributed.Client
    completed: Any = distributed.as_completed
    try:
        client: Any = connect(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise RunError(
            f"no Dask scheduler answers at {address!r} within {_PATIENCE:g} s: {error}. Start one with "
            "`dask scheduler` and workers with `dask worker ADDRESS`, or leave the cluster out."
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise RunError(f"the cluster at {address} has no workers: `dask worker {address}`.")
        futures = [
            client.submit(_placed, function, place, call, pure=False)
            for place, call in enumerate(calls)
        ]
        try:
            for _, result in completed(futures, loop=client.loop, with_results=True):
                yield result
        except (distributed.KilledWorker, FutureCancelledError) as error:
            reason = str(error).split(". ")[0]
            raise RunError(
                f"the cluster at {address} lost its workers: {reason}. What is done is kept: run it again."
            ) from error
        finally:
            client.cancel(futures)
