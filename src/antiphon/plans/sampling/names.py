"""The one reader of a sampling's name, for Python and the command line."""

import math

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import Relation
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, check_rate
from antiphon.plans.sampling.balls_in_bins import BallsInBins
from antiphon.plans.sampling.cyclic_poisson import CyclicPoisson
from antiphon.plans.sampling.fixed_size import FixedSize
from antiphon.plans.sampling.full_batch import FullBatch
from antiphon.plans.sampling.one_pass import OnePass
from antiphon.plans.sampling.poisson import Poisson
from antiphon.plans.sampling.shuffled_epochs import ShuffledEpochs

__all__ = ["SAMPLINGS", "relation_of", "sampling_of"]

SAMPLINGS = (
    "poisson",
    "cyclic-poisson",
    "fixed-size",
    "shuffled",
    "reshuffled",
    "one-pass",
    "balls-in-bins",
    "full-batch",
)
"""All names. "shuffled" keeps one order, "reshuffled" draws a new one in every epoch."""

_ROUNDING = 1e-12  # relative: what a rate loses as a float must not cost a bin or a group


def sampling_of(
    kind: AbstractSampling | str,
    n: int,
    batch_size: int | None = None,
    *,
    rate: float | None = None,
    cycle: int | None = None,
) -> AbstractSampling:
    """The sampling of this name for batches of about ``batch_size`` out of n units.

    Args:
        kind: One of `SAMPLINGS`; a sampling is returned as it is.
        n: Units.
        batch_size: Expected units in a batch. Unused by full batches.
        rate: In place of ``batch_size``: their share of all.
        cycle: Groups of "cyclic-poisson".

    Guarantee:
        No batch is expected to be larger than asked for: balls fall into n / ``batch_size`` bins, rounded
        up. Only a ``rate`` is rounded to the nearest whole batch, where batches have one size.

    Example:
        >>> sampling_of("poisson", 1000, 300), sampling_of("balls-in-bins", 1000, 300)
        (Poisson(rate=0.3), BallsInBins(bins=4))
    """
    if isinstance(kind, AbstractSampling):
        return kind
    if not (isinstance(kind, str) and kind in SAMPLINGS):
        raise PlanError(
            f"sampling is {', '.join(map(repr, SAMPLINGS))}, or one of antiphon.plans (such as Recorded); "
            f"got {kind!r}."
        )
    if cycle is not None and kind != "cyclic-poisson":
        raise PlanError(
            f"cycle={cycle} belongs to sampling='cyclic-poisson'; got {kind!r}. Leave it out."
        )
    if kind == "full-batch":
        return FullBatch()
    share, size = _shares(kind, n, batch_size, rate)
    match kind:
        case "poisson":
            return Poisson(share)
        case "cyclic-poisson":
            return _cyclic(n, share, cycle)
        case "fixed-size":
            return FixedSize(size)
        case "one-pass":
            return OnePass(size)
        case "balls-in-bins":
            bins = math.ceil((1 - _ROUNDING) / share) if rate is not None else -(-n // size)
            return BallsInBins(bins)
        case _:
            return ShuffledEpochs(size, reshuffle=kind == "reshuffled")


def _shares(kind: str, n: int, batch_size: int | None, rate: float | None) -> tuple[float, int]:
    """A batch as a share of all units, and in whole ones."""
    if rate is not None:
        if batch_size is not None:
            raise PlanError(
                f"give batch_size or rate; got batch_size={batch_size} and rate={rate}."
            )
        check_rate(rate)
        return rate, max(1, round(rate * n))
    if batch_size is None:
        raise PlanError(f"sampling={kind!r} needs batch_size.")
    size = whole("batch_size", batch_size)
    if size > n:
        raise PlanError(f"batch_size={size} is larger than the {n} units of the data.")
    return size / n, size


def _cyclic(n: int, share: float, cycle: int | None) -> CyclicPoisson:
    """Each group is sampled at a rate that gives batches of this share of all."""
    if cycle is None:
        raise PlanError(
            "sampling='cyclic-poisson' needs its number of groups: give CyclicPoisson(rate, cycle) in "
            "place of the name."
        )
    within = share * whole("cycle", cycle)
    if within > 1 + _ROUNDING:
        raise PlanError(
            f"batches of {share * n:g} cannot be drawn from groups of {n / cycle:g}, which is what a cycle "
            f"of {cycle} makes of {n} units. Take smaller batches, or a cycle of at most {int(1 / share)}."
        )
    return CyclicPoisson(min(1.0, within), cycle)


def relation_of(
    relation: Relation | str | None,
    sampling: AbstractSampling,
    by_row: Relation = Relation.ZERO_OUT,
) -> Relation:
    """The relation that is asked for; unless given, add-remove, and ``by_row`` for batches given by row."""
    if relation is not None:
        return Relation.of(relation)
    return Relation.ADD_REMOVE if sampling.own_coin else by_row
