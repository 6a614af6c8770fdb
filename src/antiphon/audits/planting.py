"""Canaries among ordinary rows, each in or out by a fair coin: the first half of a black-box audit."""

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.participation import Relation

__all__ = ["Planted", "mislabelled", "plant"]

Arrays = tuple[Tensor | NDArray[Any], ...]


@final
@dataclass(frozen=True, eq=False)
class Planted:
    """A data set to train on, and what only the auditor knows of it. What is printed shows no coin.

    Attributes:
        data: The rows to train on: those given, then the canaries that are in, or their stand-ins.
        canaries: All of them, in the order of the coins.
        coins: True for each canary that is in. Secret until the guesses are made.
        n: What the plan's ``n`` must be: a number of rows that the coins do not change.
        relation: What a coin decides; the certificate must be for this relation.
    """

    data: Arrays = field(repr=False)
    canaries: Arrays = field(repr=False)
    coins: NDArray[np.bool_] = field(repr=False)
    n: int
    relation: Relation


def plant(
    dataset: Any,
    canaries: Any,
    *,
    seed: int | None = None,
    relation: str = Relation.ADD_REMOVE,
    instead: Any = None,
) -> Planted:
    """Throw a fair coin for each canary, and put those that are in at the end of the data.

    What the certificate protects must be what a coin decides:

    - add-remove: a canary that is out is left out. The number of rows then tells how many are in, while
      a plan's n is public, so make the plan with ``n=planted.n``, and give it to `antiphon.make_private`.
    - replace-one: a row of ``instead``, such as an ordinary one, stands in for each that is out.
    - zero-out (the default of samplings by row): the same, but ``instead`` must add nothing to any
      gradient, for instance by a weight of 0 in the loss. Stand-ins that do add something are a
      replacement, of which a certificate for zero-out does not speak.

    Where users are protected, each canary must be a user of its own.

    Args:
        dataset: Tensors or arrays with a row for each example, such as (X, y).
        canaries: The same kinds of them, with a row for each canary.
        seed: Makes the coins reproducible; unless given, they come from the operating system.
        relation: How neighbouring data sets differ.
        instead: The same kinds again, with a row for each canary, or one row for all; not for add-remove.

    Guarantee:
        The coins are fair and independent: of each other, of the data, and of a run's noise and batches
        even if that run has the same seed.

    Example:
        >>> planted = plant((torch.zeros(5, 2),), (torch.ones(4, 2),), seed=0)
        >>> len(planted.data[0]) - int(planted.coins.sum())
        5
        >>> planted
        Planted(n=7, relation=<Relation.ADD_REMOVE: 'add-remove'>)
    """
    kind = Relation.of(relation)
    rows, count = _length("dataset", dataset), _length("canaries", canaries)
    _check_alike("canaries", canaries, dataset)
    generator = Generator.secure() if seed is None else Generator.seeded(seed)
    coins = generator.spawn("canary coins").words(count, step=0).numpy() < 0  # the sign is one bit
    coins.flags.writeable = False
    if kind is Relation.ADD_REMOVE:
        if instead is not None:
            raise PlanError(
                "instead= was given, but under add-remove a canary that is out is left out. Leave it away, "
                "or plant for relation='replace-one'."
            )
        added = tuple(part[_index(coins, part)] for part in canaries)
    else:
        added = _chosen(coins, canaries, _stand_ins(instead, canaries, count, kind))
    data = tuple(_joined(*parts) for parts in zip(dataset, added, strict=True))
    n = rows + (count // 2 if kind is Relation.ADD_REMOVE else count)
    return Planted(data, canaries, coins, n, kind)


def mislabelled(X: Any, y: Any, count: int, classes: int, seed: int = 0) -> Arrays:
    """Canaries for a classifier: rows of a pool, each with a label that is not its own.

    A label that nothing else explains has to be memorised, which the loss shows.

    Args:
        X: The pool's inputs, a tensor or an array. Rows that are not trained on otherwise are best.
        y: Their labels, whole numbers from 0 to classes − 1, of the pool's length.
        count: How many canaries; at most as many as the pool has rows.
        classes: Number of classes, at least 2.
        seed: Of rows and labels. Canaries need not be secret, only coins do.

    Guarantee:
        Rows are different ones of the pool; labels are uniform among the other classes.

    Example:
        >>> X, y = torch.arange(6.0)[:, None], torch.tensor([0, 1, 2, 0, 1, 2])
        >>> inputs, labels = mislabelled(X, y, count=3, classes=3)
        >>> bool((labels != y[inputs[:, 0].long()]).all())
        True
    """
    size = _length("the pool", (X, y))
    if whole("count", count) > size:
        raise PlanError(
            f"the pool has {size} rows; got count={count}. Give a larger pool, or ask for fewer canaries."
        )
    if whole("classes", classes) < 2:
        raise PlanError("with classes=1 there is no other label to give; at least 2 are needed.")
    own = np.asarray(y.tolist())
    if own.ndim != 1 or own.dtype.kind != "i" or own.min() < 0 or own.max() >= classes:
        raise PlanError(
            f"labels must be whole numbers from 0 to {classes - 1} in one dimension; got {y.dtype} of "
            f"shape {tuple(y.shape)}, such as {own.flat[0]} and {own.flat[-1]}. Number the classes so, "
            "and check classes=."
        )
    random = np.random.default_rng(seed)
    rows = random.choice(size, count, replace=False)
    shift = random.integers(1, classes, count)
    labels = (own[rows] + shift) % classes
    if isinstance(y, Tensor):
        return X[_index(rows, X)], torch.from_numpy(labels).to(y)
    return X[_index(rows, X)], labels.astype(y.dtype)


def _length(name: str, parts: Any) -> int:
    """The number of rows that all tensors or arrays have."""
    arrays = isinstance(parts, tuple) and all(isinstance(p, Tensor | np.ndarray) for p in parts)
    if not arrays or not parts or any(part.ndim == 0 for part in parts):
        raise PlanError(
            f"{name} must be tensors or arrays with a row for each example, such as the tuple (X, y); got "
            f"{[type(p).__name__ for p in parts] if isinstance(parts, tuple) else type(parts).__name__}."
        )
    lengths = [len(part) for part in parts]
    if len(set(lengths)) != 1:
        raise PlanError(f"{name} must have as many rows in every part; got {lengths}.")
    if not lengths[0]:
        raise PlanError(f"{name} must have at least one row; got none.")
    return lengths[0]


def _check_alike(name: str, parts: Arrays, model: Arrays) -> None:
    """Raise unless the rows are of the same kind: joining would convert the data set's rows silently."""
    given, wanted = ([_kind(part) for part in both] for both in (parts, model))
    if given != wanted:
        raise PlanError(
            f"{name} must be of the data set's kind, part by part: {wanted}; got {given}. "
            "Convert them first."
        )


def _kind(part: Tensor | NDArray[Any]) -> str:
    where = f" on {part.device}" if isinstance(part, Tensor) else " in NumPy"
    return f"rows of shape {tuple(part.shape[1:])} and {part.dtype}{where}"


def _stand_ins(instead: Any, canaries: Arrays, count: int, relation: Relation) -> Arrays:
    if instead is None:
        what = "an ordinary row" if relation is Relation.REPLACE_ONE else "one that adds nothing"
        raise PlanError(
            f"under {relation} there is a row also where a canary is out: give instead=, with a row for "
            f"each canary or one row for all, such as {what}."
        )
    length = _length("instead", instead)
    if length not in (1, count):
        raise PlanError(
            f"instead must have one row, or one for each of the {count} canaries; got {length}."
        )
    _check_alike("instead", instead, canaries)
    return instead


def _chosen(coins: NDArray[np.bool_], canaries: Arrays, instead: Arrays) -> Arrays:
    """The canary where it is in, else what stands in for it."""
    out, chosen = np.flatnonzero(~coins), []
    for canary, other in zip(canaries, instead, strict=True):
        rows = canary.clone() if isinstance(canary, Tensor) else canary.copy()
        taken = out if len(other) > 1 else np.zeros_like(out)
        rows[_index(out, rows)] = other[_index(taken, other)]
        chosen.append(rows)
    return tuple(chosen)


def _index(rows: NDArray[Any], part: Tensor | NDArray[Any]) -> Any:
    """Row numbers, or which rows, as the part itself is indexed."""
    return torch.from_numpy(rows.copy()).to(part.device) if isinstance(part, Tensor) else rows


def _joined(first: Any, second: Any) -> Any:
    return torch.cat([first, second]) if isinstance(first, Tensor) else np.append(first, second, 0)
