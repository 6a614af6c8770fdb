"""What was spent on a data set: an append-only record that survives crashes and refuses overspending.

One line of JSON per entry, each with the SHA-256 of all before it. A run may start when `spend` has
returned: then its line is on the disk. A line that a crash cut short was never granted; it is set aside in
a file of its own and reported. A line that was changed is reported and never skipped: until it is mended,
nothing can be spent.
"""

import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from antiphon.accounting.gaussian import (
    check_delta,
    check_epsilon,
    compose_gaussians,
    gaussian_epsilon,
    gaussian_mu,
)
from antiphon.accounting.profile import GaussianProfile
from antiphon.accounting.routes import ROUTES
from antiphon.errors import LedgerError, UnsupportedError
from antiphon.plan import Plan
from antiphon.relations import Relation

__all__ = ["Entry", "Ledger"]


@final
@dataclass(frozen=True)
class Entry:
    """One run.

    Attributes:
        plan: What ran.
        mu: Its Gaussian parameter.
        note: The user's words.
    """

    plan: Plan
    mu: float
    note: str


@final
@dataclass(frozen=True)
class Ledger:
    """The record of one data set.

    Runs may be chosen in view of earlier results: their Gaussian parameters add in squares, and the filter
    that stops before the sum passes the budget's μ² is as private as one release of that μ
    [KoskelaTobabenHonkela23, Smith and Thakurta 2022]. So only runs whose whole curve is Gaussian (the
    accountant ``gaussian``) can be entered; others are refused, since ε's of different curves do not add.

    Attributes:
        path: The file.
    """

    path: Path

    @classmethod
    def create(
        cls, path: Path, *, epsilon: float, delta: float, relation: str, data: str = ""
    ) -> "Ledger":
        """A new ledger with a fixed budget.

        Args:
            path: The file, which must not exist.
            epsilon: Budget for everything ever released from the data set.
            delta: Its δ.
            relation: The neighbouring relation of all entries: others are refused.
            data: A name for the data set.
        """
        check_epsilon(epsilon)
        check_delta(delta)
        head = {
            "ledger": 1,
            "data": data,
            "epsilon": epsilon,
            "delta": delta,
            "relation": str(Relation.of(relation)),
        }
        try:
            with open(path, "xb") as file:
                _append(file, _line(head, ""))
        except FileExistsError as error:
            raise LedgerError(f"{path} exists already; open it with Ledger(path).") from error
        _sync_folder(path)
        return cls(Path(path))

    @property
    def budget(self) -> tuple[float, float]:
        """ε and δ that all entries together must not pass."""
        head = self._read().head
        return head["epsilon"], head["delta"]

    def entries(self) -> tuple[Entry, ...]:
        """All runs, in order."""
        return self._read().entries

    def spent(self) -> float:
        """ε of all entries together, at the budget's δ."""
        content = self._read()
        return gaussian_epsilon(
            compose_gaussians(e.mu for e in content.entries), content.head["delta"]
        )

    def left(self) -> float:
        """The Gaussian parameter μ that a further run may still have."""
        return _left(self._read())

    def spend(self, plan: Plan, note: str = "") -> Entry:
        """Enter a run before it starts, or refuse it.

        Raises:
            LedgerError: If the budget would be passed, the relation is another one, or the file is damaged.
            UnsupportedError: If the plan's guarantee is not Gaussian as a whole.
        """
        mu = _gaussian_parameter(plan)
        with self._locked() as file:
            content = _parse(file, self.path)
            if str(plan.relation) != content.head["relation"]:
                raise LedgerError(
                    f"this ledger is for {content.head['relation']}, the plan for {plan.relation}; losses "
                    "under different relations do not add."
                )
            left = _left(content)
            if mu > left * (1 + 1e-12):
                raise LedgerError(
                    f"the run needs μ = {mu:.6g}, and {left:.6g} is left of the budget (ε = "
                    f"{content.head['epsilon']:g}, δ = {content.head['delta']:g}). Use more noise, fewer "
                    "steps, or other data."
                )
            self._set_aside(file, content.torn)
            values = {"plan": json.loads(plan.to_json()), "mu": mu, "note": note}
            _append(file, _line(values, content.digest))
        return Entry(plan, mu, note)

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """The file, while no other process can write to it."""
        if not Path(self.path).exists():
            raise LedgerError(f"there is no ledger at {self.path}; Ledger.create makes one.")
        with open(self.path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _read(self) -> "_Content":
        with self._locked() as file:
            return _parse(file, self.path)

    def _set_aside(self, file: IO[bytes], torn: bytes) -> None:
        """Move the beginning of a line that a crash cut short out of the way."""
        if not torn:
            file.seek(0, os.SEEK_END)
            return
        aside = self.path.with_name(self.path.name + ".torn")
        with open(aside, "ab") as other:
            _append(other, torn + b"\n")
        file.seek(-len(torn), os.SEEK_END)
        file.truncate()
        warnings.warn(
            f"the last line of {self.path} was cut short by a crash, before its run was granted; it is "
            f"kept in {aside.name}.",
            stacklevel=3,
        )


@dataclass(frozen=True)
class _Content:
    head: dict[str, Any]
    entries: tuple[Entry, ...]
    digest: str
    torn: bytes


def _parse(file: IO[bytes], path: Path) -> _Content:
    file.seek(0)
    *lines, torn = file.read().split(b"\n")
    if not lines:
        raise LedgerError(f"{path} is not a ledger: it has no complete first line.")
    digest, values = "", []
    for number, line in enumerate(lines, start=1):
        text, _, mark = line.decode("utf-8", "replace").rpartition("\t")
        if hashlib.sha256((digest + text).encode()).hexdigest() != mark:
            raise LedgerError(
                f"line {number} of {path} was changed or damaged. Nothing is spent until it is restored "
                "from a copy: what it recorded may have been spent."
            )
        digest = mark
        values.append(json.loads(text))
    head, *rest = values
    if head.get("ledger") != 1:
        raise LedgerError(f"{path} is not a ledger of this version.")
    entries = tuple(Entry(Plan.from_json(json.dumps(v["plan"])), v["mu"], v["note"]) for v in rest)
    return _Content(head, entries, digest, torn)


def _left(content: _Content) -> float:
    budget = gaussian_mu(content.head["epsilon"], content.head["delta"])
    return max(0.0, budget**2 - compose_gaussians(e.mu for e in content.entries) ** 2) ** 0.5


def _gaussian_parameter(plan: Plan) -> float:
    profile = ROUTES["gaussian"](plan).profile
    if not isinstance(profile, GaussianProfile):
        raise UnsupportedError("a ledger adds Gaussian guarantees only.")
    return profile.mu


def _line(values: dict[str, Any], digest: str) -> bytes:
    text = json.dumps(values, sort_keys=True)
    mark = hashlib.sha256((digest + text).encode()).hexdigest()
    return f"{text}\t{mark}\n".encode()


def _append(file: IO[bytes], data: bytes) -> None:
    """Write and wait until it is on the disk."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    folder = os.open(Path(path).resolve().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
