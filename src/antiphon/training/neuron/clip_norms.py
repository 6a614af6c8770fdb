"""Where the clip norm of a step comes from, and what it costs.

A step releases the sum of directions, each clipped to the step's clip norm s_t and divided by it, plus
noise that does not depend on s_t; multiplying by s_t afterwards is post-processing if s_t is public or was
released before. So any rule that looks at nothing else keeps the plan's certificate.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import Plan, random_subset
from antiphon.releases import private_threshold, public_threshold

__all__ = [
    "AbstractClipNorms",
    "BlockThreshold",
    "Constant",
    "PublicThreshold",
    "Seen",
    "residuals",
]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


class Seen(NamedTuple):
    """What a rule may look at before a step.

    Attributes:
        X: Private features.
        y: Private targets.
        rows: Of this step's batch.
        weights: The iterate, released.
        step: Number of the step, from 0 on.
        generator: Secret source of noise.
    """

    X: Array
    y: Array
    rows: Rows
    weights: Array
    step: int
    generator: Generator


class AbstractClipNorms(ABC):
    """A rule for the clip norm of every step. Subclasses are frozen values."""

    @property
    @abstractmethod
    def every(self) -> int:
        """Steps for which one answer holds; 0 for all of them."""

    def check(self, plan: Plan) -> None:  # noqa: B027 (most rules cost nothing)
        """Raise unless the plan pays for what the rule releases."""

    @abstractmethod
    def find(self, seen: Seen) -> tuple[float, Rows]:
        """The clip norm from this step on, and the rows of the batch whose directions count."""


@final
@dataclass(frozen=True)
class Constant(AbstractClipNorms):
    """One clip norm, known before."""

    norm: float

    def __post_init__(self) -> None:
        positive("the clip norm", self.norm)

    @property
    def every(self) -> int:
        """0: it never changes."""
        return 0

    def find(self, seen: Seen) -> tuple[float, Rows]:
        """The same for all."""
        return self.norm, seen.rows


@final
@dataclass(frozen=True, eq=False)
class PublicThreshold(AbstractClipNorms):
    """A factor times the first doubling above all residuals of public records [ReLURegression25, Alg. 1].

    Attributes:
        X: Public features.
        y: Public targets.
        factor: What a residual is multiplied by: a public bound on the norm of a record's features.
        smallest: The first threshold.
        largest: The cap. Without one the noise, proportional to the clip norm, feeds itself.
        every: Steps between two looks.
    """

    X: Array
    y: Array
    factor: float
    smallest: float
    largest: float
    every: int = 1

    def __post_init__(self) -> None:
        positive("factor", self.factor)
        whole("every", self.every)
        if np.ndim(self.X) != 2 or np.shape(self.y) != np.shape(self.X)[:1] or not len(self.y):
            raise PlanError(
                "public data are a table and one target for each of its rows, at least one; got shapes "
                f"{np.shape(self.X)} and {np.shape(self.y)}."
            )
        public_threshold(np.zeros(1), self.smallest, self.largest)

    def find(self, seen: Seen) -> tuple[float, Rows]:
        """From the public residuals at the released iterate: it costs nothing."""
        if self.X.shape[1] != len(seen.weights):
            raise PlanError(
                f"public records have {self.X.shape[1]} features, private ones {len(seen.weights)}."
            )
        found = public_threshold(
            residuals(self.X, self.y, seen.weights), self.smallest, self.largest
        )
        return self.factor * found, seen.rows


@final
@dataclass(frozen=True)
class BlockThreshold(AbstractClipNorms):
    """A factor times DP-Threshold on ``size`` records of a batch, whose directions do not count.

    Who votes is drawn again for each batch: by row numbers, a table that is sorted by a value would let the
    values of a record decide, and the thresholds would be those of the smallest.

    Attributes:
        size: m, the records of a batch that vote.
        factor: What a threshold is multiplied by.
        smallest: Δ, the first threshold.
        largest: Υ, the cap.
        mu: Privacy of one threshold.
        slack: Λ; unless given the sensible one.

    Guarantee:
        Each threshold is ``mu``-GDP under every relation. A record votes in one step or is clipped in one,
        never both, if batches are disjoint: so a pass costs the larger of ``mu`` and the plan's own μ
        [ReLURegression25, Thm. 3]. `antiphon.plans.Plan.apart` is where a plan says so.
    """

    size: int
    factor: float
    smallest: float
    largest: float
    mu: float
    slack: float | None = None

    def __post_init__(self) -> None:
        whole("size", self.size)
        positive("factor", self.factor)
        positive("mu", self.mu)

    @property
    def every(self) -> int:
        """1: each batch has voters of its own."""
        return 1

    def check(self, plan: Plan) -> None:
        """Raise unless the plan has such a release apart from its steps, which makes them one pass."""
        if not any(self.mu <= event.mu for event in plan.apart):
            raise PlanError(
                f"thresholds of {self.mu:.4g}-GDP are released from records of their own, but the plan "
                f"pays for {', '.join(map(str, plan.apart)) or 'none'}. Put a GaussianRelease into apart."
            )

    def find(self, seen: Seen) -> tuple[float, Rows]:
        """From the batch's own voters."""
        if len(seen.rows) <= self.size:
            raise PlanError(
                f"a batch of {len(seen.rows)} records leaves none to learn from beside {self.size} that "
                "vote on its clip norm. Use larger batches, or fewer steps."
            )
        secret = seen.generator.spawn("voters")
        votes = np.zeros(len(seen.rows), dtype=bool)
        votes[random_subset(secret, seen.step, len(votes), self.size)] = True
        voters, others = seen.rows[votes], seen.rows[~votes]
        found, _ = private_threshold(
            residuals(seen.X[voters], seen.y[voters], seen.weights),
            self.smallest,
            self.largest,
            mu=self.mu,
            slack=self.slack,
            generator=seen.generator.spawn(f"threshold {seen.step}"),
        )
        return self.factor * found, others


def residuals(X: Any, y: Any, weights: Array) -> Array:
    """|ReLU(x·w) - y| of every record."""
    with np.errstate(all="ignore"):  # what is not finite is not told
        return np.asarray(np.abs(np.maximum(X @ weights, 0.0) - y))
