"""Slow certifications, one at a time, each in a process of its own, so that it can really be ended."""

import contextlib
import json
import multiprocessing
import secrets
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, final

from antiphon.accounting import calibrate
from antiphon.certificates import certify
from antiphon.errors import AntiphonError
from antiphon.plans import Plan
from antiphon.progress import heard_by

__all__ = ["Busy", "Job", "Jobs"]

_KEPT = 32  # finished jobs that can still be asked for


@final
class Busy(AntiphonError):
    """A certification is running already.

    Attributes:
        job: The one that is.
    """

    def __init__(self, job: "Job") -> None:
        super().__init__("a certification is running already: cancel it first.")
        self.job = job


@final
@dataclass
class Job:
    """One certification.

    Attributes:
        id: Its name; not to be guessed.
        state: "running", "done", "failed" or "cancelled".
        what: What it is doing.
        done: How much of that.
        all: Out of how much; 0 if that is not known yet.
        result: When done: the noise, the certificate's lines, certificate and plan as JSON.
        error: When failed: why, in one line.
    """

    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    state: str = "running"
    what: str = "starting"
    done: int = 0
    all: int = 0
    result: dict[str, Any] | None = None
    error: str | None = None


@final
class Jobs:
    """All certifications of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._process: BaseProcess | None = None

    def start(self, plan: Plan, epsilon: float, delta: float) -> Job:
        """Find and certify the least noise of a plan, Monte Carlo included.

        Raises:
            Busy: If one is running.
        """
        with self._lock:
            for job in self._jobs.values():
                if job.state == "running":
                    raise Busy(job)
            job = Job()
            ours, theirs = multiprocessing.Pipe(duplex=False)
            self._process = multiprocessing.get_context("spawn").Process(
                target=_work, args=(theirs, plan.to_json(), epsilon, delta), daemon=True
            )
            with _no_interrupts():
                self._process.start()
            theirs.close()
            self._jobs[job.id] = job  # once it runs: what did not start is in nobody's way
            while len(self._jobs) > _KEPT:
                del self._jobs[next(iter(self._jobs))]
            thread = threading.Thread(
                target=self._follow, args=(job, ours, self._process), daemon=True
            )
            thread.start()
        return job

    def get(self, id: str) -> Job | None:
        """The job of this name."""
        return self._jobs.get(id)

    def cancel(self, job: Job) -> None:
        """End the job's process, if it is running."""
        with self._lock:
            if job.state == "running":
                job.state = "cancelled"
                self._end()

    def close(self) -> None:
        """End what is running."""
        for job in list(self._jobs.values()):
            self.cancel(job)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            wait(
                [self._process.sentinel]
            )  # not join: the follower's, and two at once confuse each other

    def _follow(self, job: Job, ours: Connection, process: BaseProcess) -> None:
        """Keep the job up to date with what its process says, until that ends."""
        told: dict[str, Any] = {"state": "failed", "error": "the process ended without a result."}
        with ours, contextlib.suppress(EOFError, OSError):
            while True:
                news = ours.recv()
                if "state" in news:
                    told = news
                else:
                    vars(job).update(news)
        process.join()
        with self._lock:
            if job.state == "running":
                vars(job).update({key: told[key] for key in told if key != "state"})
                job.state = told["state"]  # last: a reader of the state finds the result


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C is for the server: a process that is started here does not hear it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(theirs: Connection, text: str, epsilon: float, delta: float) -> None:
    """What the process does. It ends when no client listens any more."""

    def tell(what: str, done: int, total: int) -> None:
        theirs.send({"what": what, "done": int(done), "all": int(total)})

    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            with heard_by(tell):
                tell("comparing accountants", 0, 0)
                plan = calibrate(Plan.from_json(text), epsilon, delta)
                tell("writing the certificate", 0, 0)
                certificate = certify(plan, delta, epsilon=epsilon)
            result = {
                "noise": plan.known_noise(),
                "epsilon": certificate.epsilon,
                "route": certificate.route,
                "lines": certificate.lines(),
                "plan": json.loads(plan.to_json()),
                "certificate": json.loads(certificate.to_json()),
            }
            theirs.send({"state": "done", "result": result})
        except AntiphonError as error:
            theirs.send({"state": "failed", "error": " ".join(str(error).split())})
