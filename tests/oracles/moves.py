"""How far one record moves the clipped sum, by trying: two data sets, the same parameters, the same ids."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

from antiphon.training.gradients import (
    Adaptive,
    ClippedSum,
    Examples,
    PerLayer,
    Units,
    choose,
    clipping_of,
)

TRIED = 2  # rows on which the run tries a loss
CLIP_NORM = 0.5

Rows = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """Code as a user would write it, and data.

    Attributes:
        make: Makes the model and the loss anew, with all that they keep.
        rows: Columns.
        others: What stands in one row in other data sets, column by column.
        switch: What the user's schedule does to the model after the run was made.
    """

    make: Callable[[], tuple[nn.Module, Callable[..., Any]]]
    rows: Rows
    others: Iterable[Rows] = ()
    switch: Callable[[nn.Module], None] | None = None
    places: tuple[int, ...] = (0, -1)


def alone(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The same loss, which vmap cannot follow."""

    def one(model: nn.Module, *args: Tensor) -> Any:
        args[0].sum().item()
        return loss(model, *args)

    return one


@dataclass
class World:
    """One data set: rows, their ids, their users."""

    rows: Rows
    ids: Tensor
    users: list[int] | None = None


def worlds(case: Case, users: list[int] | None = None) -> list[tuple[World, float]]:
    """Neighbours of the case's data set, with the proved bound in clip norms."""
    n = len(case.rows[0])
    ids, found = torch.arange(n), []
    places = [range(n)[p] for p in case.places]
    for place in places:
        gone = {place} if users is None else {i for i in range(n) if users[i] == users[place]}
        left = torch.tensor([i for i in range(n) if i not in gone], dtype=torch.int64)
        names = None if users is None else [users[i] for i in left]
        found.append((World(tuple(c[left] for c in case.rows), left, names), 1.0))
    for place, other in zip(cycle(places), case.others):
        changed = tuple(c.clone() for c in case.rows)
        for column, value in zip(changed, other, strict=True):
            column[place] = value
        found.append((World(changed, ids, users), 2.0))
    return found


def largest_move(
    case: Case, *, rule: Any = "flat", steps: int = 3, part: int | None = None,
    users: list[int] | None = None, is_alone: bool = False, path: Any = None,
) -> tuple[float, float]:  # fmt: skip
    """The largest move in units of its bound (1 or 2 clip norms), and the largest norm of a sum."""
    base = World(case.rows, torch.arange(len(case.rows[0])), users)
    options = {"rule": rule, "part": part, "is_alone": is_alone, "path": path}
    known: list[list[Tensor]] = []
    sums = _sums(case, base, steps, known, **options)
    moves = [0.0]
    for world, bound in worlds(case, users):
        others = _sums(case, world, steps, known, **options)
        for one, other in zip(sums, others, strict=True):
            moves.append(float((one[:-1] - other[:-1]).norm()) / CLIP_NORM / bound)
            moves.append(abs(float(one[-1] - other[-1])) / 0.5 / bound)
    norm = max(float(s[:-1].norm()) / CLIP_NORM for s in sums)
    return float("nan") if any(m != m for m in moves) else max(moves), norm


def _sums(
    case: Case, world: World, steps: int, known: list[list[Tensor]], *, rule: Any,
    part: int | None, is_alone: bool, path: Any,
) -> list[Tensor]:  # fmt: skip
    """Sums of all steps. The first data set's parameters are kept, and used for all others."""
    model, loss = case.make()
    loss = alone(loss) if is_alone else loss
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    total, clipping = ClippedSum(named, len(case.rows[0])), clipping_of(rule)
    if isinstance(clipping, PerLayer):
        clipping = clipping.for_layers(set(total.layer_of.values()), CLIP_NORM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the loss is evaluated for one example after another
        chosen = (path or choose)(
            model, loss, named, b"key", world.ids[:TRIED],
            examples_of(tuple(c[:TRIED] for c in world.rows)),
        )  # fmt: skip
    if case.switch is not None:
        case.switch(model)
    found = []
    is_first = not known
    for step in range(steps):
        if not is_first:
            with torch.no_grad():
                for parameter, value in zip(named.values(), known[step], strict=True):
                    parameter.copy_(value)
        else:
            known.append([p.detach().clone() for p in named.values()])
        for where, units in _parts(world, part):
            examples = examples_of(tuple(c[where] for c in world.rows))
            for piece in chosen.pieces(step, world.ids[where], examples, units):
                total.add(piece.factors, clipping, CLIP_NORM, piece.units)
        value = total.value().double().clone()
        found.append(
            value if isinstance(clipping, Adaptive) else value.index_fill(0, torch.tensor(-1), 0)
        )
        total.clear()
        if is_first:
            _update(named, value[:-1], step, len(world.ids))
    return found


def _update(named: dict[str, nn.Parameter], sums: Tensor, step: int, count: int) -> None:
    """A noisy step, which wakes layers that begin with zeros."""
    noise = torch.randn(len(sums), generator=torch.Generator().manual_seed(step))
    moved = torch.split(0.3 * sums / count + 0.2 * noise, [p.numel() for p in named.values()])
    with torch.no_grad():
        for parameter, part in zip(named.values(), moved, strict=True):
            parameter.sub_(part.view_as(parameter).to(parameter.dtype))


def _parts(world: World, part: int | None) -> list[tuple[Tensor, Units | None]]:
    """Places of a batch's parts, unit by unit as a run gives them, and their units."""
    n = len(world.ids)
    if world.users is None:
        return [(where, None) for where in torch.split(torch.arange(n), part or max(n, 1))]
    names = sorted(set(world.users))
    found = []
    for some in (
        [names] if part is None else [names[i : i + part] for i in range(0, len(names), part)]
    ):
        places = [(i, k) for k, name in enumerate(some) for i in range(n) if world.users[i] == name]
        where, of_row = (torch.tensor(t) for t in zip(*places, strict=True))
        found.append((where, Units(of_row, len(some))))
    return found


def examples_of(rows: Rows) -> Examples:
    return Examples(tuple(c.unsqueeze(1).clone() for c in rows), {})
