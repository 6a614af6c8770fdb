"""The batches of a run, each a function of the key and its step."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans.sampling.abstract_sampling import AbstractSampling
from antiphon.plans.sampling.balls_in_bins import BallsInBins
from antiphon.plans.sampling.cyclic_poisson import CyclicPoisson
from antiphon.plans.sampling.fixed_size import FixedSize
from antiphon.plans.sampling.full_batch import FullBatch
from antiphon.plans.sampling.one_pass import OnePass
from antiphon.plans.sampling.poisson import Poisson
from antiphon.plans.sampling.recorded import Recorded
from antiphon.plans.sampling.shuffled_epochs import ShuffledEpochs
from antiphon.plans.sampling.subsets import Rows, Words, below, bernoulli, order, subset

__all__ = ["Draws", "random_subset"]


@final
@dataclass(frozen=True)
class Draws:
    """The rows of every batch of a sampling, out of n.

    A value without state, so a resumed run needs nothing but its step: what is drawn once (orders, bins,
    groups) is kept for speed and can be drawn again. It holds the generator: keep it as secret as the data.

    Attributes:
        sampling: How batches are drawn.
        n: Number of rows.
        generator: Where the random numbers come from. Batches use its children "batches", by step, and
            "places", for what is drawn once or once in an epoch.

    Guarantee:
        `rows` depends on these three and the step alone: neither on earlier calls nor on the platform.
        Batches have the law that ``sampling`` states, up to what `antiphon.plans.sampling.subsets` says
        of each draw (2**-64 for a number), if the words of the generator are uniform. Where
        ``sampling.own_coin`` holds, adding rows at the end leaves the batches of the others as they were.

    Example:
        >>> draws = Draws(Poisson(rate=0.2), n=20, generator=Generator.seeded(1))
        >>> [draws.rows(step).tolist() for step in (0, 1, 0)]
        [[7, 8, 11, 12, 18], [0, 2, 3, 4, 8, 10, 12, 18, 19], [7, 8, 11, 12, 18]]
    """

    sampling: AbstractSampling
    n: int
    generator: Generator

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole("n", self.n))
        match self.sampling:
            case FixedSize() | ShuffledEpochs() | OnePass():
                self.sampling.check(self.n, 1)
            case Recorded(batches):
                self.sampling.check(self.n, len(batches))

    def rows(self, step: int) -> Tensor:
        """The distinct rows of the batch of this step, as int64 on the CPU; possibly none.

        They ascend, but for `Recorded`, whose batches stay as written. The tensor is the caller's own.
        """
        return torch.from_numpy(self._rows(_natural(step)))

    def block(self, start: int, stop: int) -> tuple[Rows, Rows]:
        """The rows of several steps, one batch after another, and where each batch begins and ends.

        Batch k is ``rows[offsets[k] : offsets[k + 1]]``, the rows of step ``start + k``. One pass in small
        batches is cut out of its order at once, which is a hundred times faster than step by step.
        """
        start, stop = _natural(start), _natural(stop)
        if isinstance(self.sampling, ShuffledEpochs | OnePass):
            size, per_epoch = self.sampling.batch, -(-self.n // self.sampling.batch)
            epoch, place = divmod(start, per_epoch)
            if stop > start and (stop - 1) // per_epoch == epoch:
                last = min((place + stop - start) * size, self.n)
                offsets = np.minimum(np.arange(place, place + stop - start + 1) * size, last)
                return self._cut(epoch, place * size, last), offsets - place * size
        batches = [self._rows(step) for step in range(start, stop)]
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in batches], dtype=np.int64)])
        return np.concatenate([np.empty(0, np.int64), *batches]), offsets

    def _cut(self, epoch: int, first: int, last: int) -> Rows:
        """Places ``first`` to ``last`` of an epoch's order, ascending within each batch."""
        match self.sampling:
            case ShuffledEpochs(batch, reshuffle):
                rows = self._order(epoch if reshuffle else 0)[first:last].copy()
                full = len(rows) // batch * batch
                if batch > 1:
                    rows[:full].reshape(-1, batch).sort(axis=1)
                    rows[full:].sort()
                return rows
            case OnePass() if epoch == 0:
                return np.arange(first, last)
        raise PlanError("one pass has no second epoch; use ShuffledEpochs for more passes.")

    def _rows(self, step: int) -> Rows:
        words = partial(_words, self._batches, step)
        match self.sampling:
            case Poisson(rate):
                return bernoulli(words, self.n, rate)
            case FixedSize(batch):
                return subset(words, self.n, batch)
            case CyclicPoisson(rate, cycle):
                group = self._bin(step % cycle)
                return group[bernoulli(words, len(group), rate)]
            case BallsInBins(bins):
                return self._bin(step % bins).copy()
            case ShuffledEpochs(batch, reshuffle):
                epoch, place = divmod(step, -(-self.n // batch))
                return np.sort(self._order(epoch if reshuffle else 0)[place * batch :][:batch])
            case OnePass(batch):
                self.sampling.check(self.n, step + 1)
                return np.arange(step * batch, min((step + 1) * batch, self.n))
            case FullBatch():
                return np.arange(self.n)
            case Recorded(batches):
                return _recorded(batches, step)
        raise PlanError(f"it is not known how to draw the batches of {self.sampling}.")

    @cached_property
    def _batches(self) -> Generator:
        return self.generator.spawn("batches")

    def _places(self, epoch: int) -> Words:
        return partial(_words, self.generator.spawn("places"), epoch)

    def _order(self, epoch: int) -> Rows:
        """The order of an epoch. The last one is kept: steps mostly follow each other."""
        kept = vars(self).get("_kept")
        if kept is None or kept[0] != epoch:
            kept = epoch, order(self._places(epoch), self.n)
            vars(self)["_kept"] = kept
        return kept[1]

    @cached_property
    def _bins(self) -> tuple[Rows, Rows]:
        """The rows sorted by their bins, which come from one word for each row; and the bins, sorted."""
        sampling: Any = self.sampling
        count = sampling.cycle if isinstance(sampling, CyclicPoisson) else sampling.bins
        bins = below(self._places(0)(self.n), count)
        rows = np.argsort(bins, kind="stable")
        return rows, bins[rows]

    def _bin(self, number: int) -> Rows:
        rows, bins = self._bins
        start, stop = bins.searchsorted([number, number + 1])
        return rows[start:stop]


def random_subset(generator: Generator, step: int, n: int, size: int) -> Rows:
    """A uniform set of ``size`` places out of n, ascending: the same for the same key and step.

    Example:
        >>> random_subset(Generator.seeded(0), 3, n=1000, size=5).tolist()
        [15, 89, 718, 866, 980]
    """
    return subset(partial(_words, generator, step), n, size)


def _words(generator: Generator, step: int, count: int) -> NDArray[np.uint64]:
    return generator.words(count, step).numpy().view(np.uint64)


def _recorded(batches: Any, step: int) -> Rows:
    if step >= len(batches):
        raise PlanError(f"the schedule has {len(batches)} batches; there is none for step {step}.")
    return np.array(batches[step], dtype=np.int64)


def _natural(step: Any) -> int:
    if isinstance(step, bool) or not (isinstance(step, int | np.integer) and step >= 0):
        raise PlanError(f"step must be a whole number of at least 0; got {step!r}.")
    return int(step)
