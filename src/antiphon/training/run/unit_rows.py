"""Which rows belong to which unit: one row each, or all rows of a user."""

from hashlib import blake2b
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.errors import PlanError
from antiphon.training.gradients import Units

__all__ = ["Rows"]


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
