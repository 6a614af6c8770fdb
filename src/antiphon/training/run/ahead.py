"""Work done ahead: one call at a time in a thread of its own, whose result is asked for later."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar, final

import torch
from threadpoolctl import threadpool_limits

from antiphon.errors import StateError

__all__ = ["Ahead"]

Value = TypeVar("Value")

_GRAIN = 2**15  # torch computes up to so many numbers in the calling thread


@final
class Ahead(Generic[Value]):
    """A background thread that makes one value at a time.

    The thread starts with the first call. It ends with `close`, when this object is collected, or with the
    interpreter, which waits for the call at work and no longer.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        # The call leaves its list when it is made, so that what it works with is not kept.
        self._begun: tuple[list[Callable[[], Value]], Future[Value]] | None = None
        self._process = os.getpid()
        self._is_closed = False

    @property
    def is_begun(self) -> bool:
        """Whether a call was begun whose result was not taken."""
        return self._begun is not None

    def begin(self, call: Callable[[], Value]) -> None:
        """Let the thread make the call, unless there is no thread to be had."""
        if self._is_closed:
            return
        if self._pool is None or self._process != os.getpid():
            self._pool = ThreadPoolExecutor(1, "antiphon-ahead", _stay_in_one_thread)
            self._process = os.getpid()
        calls = [call]
        try:
            self._begun = calls, self._pool.submit(_made, calls)
        except RuntimeError:  # the interpreter ends, or the system has no more threads
            self._pool, self._is_closed = None, True

    def take(self) -> Value:
        """The result of the call that was begun; what it raised is raised here, now and again."""
        if self._begun is None:
            raise StateError("no call was begun, so there is no result to take.")
        if self._process != os.getpid():
            raise StateError(
                "a result that this process needs is made by a thread of the process that it was forked "
                "from. Start the run in the process that trains."
            )
        calls, future = self._begun
        if future.cancel():  # on a busy machine the thread may not have had its turn
            future = Future()
            self._begun = calls, future
            try:
                future.set_result(_made(calls))
            except BaseException as error:
                future.set_exception(error)
        value = future.result()  # an interrupt of this wait leaves the result where it is
        self._begun = None
        return value

    def drop(self) -> None:
        """Forget the call that was begun, if any, once it is done."""
        begun, self._begun = self._begun, None
        if begun is not None and self._process == os.getpid() and not begun[1].cancel():
            wait([begun[1]])

    def close(self) -> None:
        """End the thread; a result that is there can still be taken. Nothing is begun any more."""
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown()


def _made(calls: list[Callable[[], Value]]) -> Value:
    return calls.pop()()


def _stay_in_one_thread() -> None:
    """Keep torch from sharing this thread's work with others, and leave other threads' settings alone."""
    # Torch sets the number of threads of a new thread at its first operation on many numbers: after that,
    # OpenMP's setting for the calling thread counts. torch.set_num_threads would change that of others.
    torch.zeros(2 * _GRAIN)
    threadpool_limits(1, user_api="openmp")
