"""Data sets whose gradients are chosen: what an attacker would plant, as real rows.

A row has a place and a sign: its gradient is that sign in that place, whatever the weights
(`antiphon.audits.lookup`).
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.errors import UnsupportedError
from antiphon.participation import Relation
from antiphon.plans import FixedSize, Plan, Recorded

__all__ = ["Instance", "canaries", "worst_case", "worst_row"]

Coins = NDArray[np.bool_]


@final
@dataclass(frozen=True)
class Instance:
    """Rows of a data set, and what the attacker knows of them.

    Attributes:
        place: Place of each row's gradient.
        size: Sign of each row's gradient: +1, -1, or 0 for a ghost that adds nothing.
        places: Number of places: the parameters of the model.
        row_of: Row of each canary; -1 if it was left out. Their places are 0, 1, 2, ...
        present: What a canary that is in adds, in clip norms, beside what the others add.
        absent: The same of one that is out.
        others: What all rows but the canary's add to a full batch's place (fixed-size batches only).
    """

    place: NDArray[np.int64]
    size: NDArray[np.float64]
    places: int
    row_of: NDArray[np.int64]
    present: float = 1.0
    absent: float = 0.0
    others: float = 0.0

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Places and signs of the rows, as a trainer gets them."""
        return torch.from_numpy(self.place), torch.from_numpy(self.size).float()


def canaries(plan: Plan, coins: Coins) -> Instance:
    """One canary for each coin, in directions of its own, in or out as the coins say."""
    relation, count = Relation.of(plan.relation), len(coins)
    place = np.arange(count)
    if relation is Relation.ADD_REMOVE and plan.sampling.own_coin:
        kept = np.flatnonzero(coins)
        row_of = np.full(count, -1)
        row_of[kept] = np.arange(len(kept))
        if not len(kept):  # a trainer needs a row: one that adds nothing
            return Instance(np.zeros(1, np.int64), np.zeros(1), count, row_of)
        return Instance(kept, np.ones(len(kept)), count, row_of)
    absent = -1.0 if relation is Relation.REPLACE_ONE else 0.0
    size = np.where(coins, 1.0, absent)
    ghosts = 0 if plan.sampling.own_coin else plan.n - count
    if ghosts < 0:
        raise UnsupportedError(
            f"{plan.sampling} gives batches by row, so there can be no more canaries than the plan's "
            f"{plan.n} records; got {count}."
        )
    return Instance(
        np.concatenate([place, np.zeros(ghosts, dtype=np.int64)]),
        np.concatenate([size, np.zeros(ghosts)]),
        count,
        place,
        absent=absent,
    )


def worst_row(plan: Plan) -> int:
    """The row to attack: the first, or in a recorded schedule the one with the largest ‖Cy‖."""
    if not isinstance(plan.sampling, Recorded):
        return 0
    seen = np.zeros((plan.steps, plan.n))
    for step, rows in enumerate(plan.sampling.batches[: plan.steps]):
        seen[step, list(rows)] = 1.0
    return int(((plan.known_mechanism().encoder(plan.steps) @ seen) ** 2).sum(0).argmax())


def worst_case(plan: Plan, is_in: bool, row: int = 0) -> Instance:
    """The data set of one world: a record, or what stands in its place, among rows that give it away.

    In batches of fixed size all others have the opposite gradient, so that a batch without the record
    shows: its sum is -b, against 2 - b with the record and 1 - b with its ghost. Elsewhere others add
    nothing.

    Args:
        plan: What runs.
        is_in: Whether the record is there.
        row: Its row, from `worst_row`.
    """
    relation = Relation.of(plan.relation)
    absent = -1.0 if relation is Relation.REPLACE_ONE else 0.0
    if isinstance(plan.sampling, FixedSize):
        others = np.full(plan.n - 1, -1.0)
        size = np.concatenate([[1.0 if is_in else absent], others])
        place = np.zeros(plan.n, dtype=np.int64)
        return Instance(
            place, size, 1, np.zeros(1, np.int64), 2.0, 1.0 + absent, -plan.expected_batch
        )
    rows = 2 if plan.sampling.own_coin else plan.n
    sizes = np.zeros(rows)
    if relation is Relation.ADD_REMOVE and not is_in:
        return Instance(np.zeros(rows - 1, np.int64), sizes[1:], 1, np.full(1, -1))
    sizes[row] = 1.0 if is_in else absent
    return Instance(np.zeros(rows, np.int64), sizes, 1, np.full(1, row), absent=absent)
