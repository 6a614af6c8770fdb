"""Means over repetitions with their standard errors."""

import math
from collections.abc import Sequence

from antiphon_papers.common.experiment import Row

__all__ = ["averages", "grouped"]


def grouped(rows: Sequence[Row], by: Sequence[str]) -> dict[tuple[object, ...], list[Row]]:
    """The rows with equal values of these columns together, in the order in which they come."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return groups


def averages(rows: Sequence[Row], by: Sequence[str], of: Sequence[str]) -> list[Row]:
    """One row for each group: the mean of every column of ``of`` and, as ``_se``, its standard error.

    The standard error of a single value is not known, and is given as None.

    Example:
        >>> averages([{"x": 1, "y": 2.0}, {"x": 1, "y": 4.0}], by=["x"], of=["y"])
        [{'x': 1, 'runs': 2, 'y': 3.0, 'y_se': 1.0}]
    """
    found = []
    for key, group in grouped(rows, by).items():
        row: Row = {**dict(zip(by, key, strict=True)), "runs": len(group)}
        for name in of:
            row[name], row[f"{name}_se"] = _mean([float(member[name]) for member in group])
        found.append(row)
    return found


def _mean(values: list[float]) -> tuple[float, float | None]:
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    spread = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(spread / len(values))
