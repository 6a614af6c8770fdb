"""From an estimator's parameters to a plan and its certificate, before a value is looked at."""

import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from antiphon.accounting import calibrate
from antiphon.certificates import Certificate, certify
from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.participation import Relation
from antiphon.plans import (
    Event,
    GaussianRelease,
    Plan,
    delta_of,
    mechanism_of,
    relation_of,
    sampling_of,
)
from antiphon.releases import mu_of_share
from antiphon.tables.data import Schema
from antiphon.tables.estimators.inputs import AbstractTableEstimator
from antiphon.tables.estimators.settings import StepSize, batch_for, learning_rate_for

__all__ = ["WHAT", "AbstractPlannedEstimator"]

WHAT = "bounds of the columns"
_LARGE_DELTA = 0.01


# A dataclass makes the __init__ that scikit-learn wants: it keeps each parameter as it was given, and
# subclasses add parameters or change defaults without repeating the others.
@dataclass(repr=False, eq=False)
class AbstractPlannedEstimator(AbstractTableEstimator):
    """The parameters that all estimators have, and the plan that follows from them."""

    epsilon: float = 1.0
    delta: float | None = None
    _: KW_ONLY
    bounds: Any = "private"
    categories: Any = None
    relation: str | None = None
    mechanism: Any = "auto"
    sampling: Any = "poisson"
    steps: int | None = None
    batch_size: int | None = None
    clip_norm: float | None = None
    learning_rate: float | None = None
    radius: float | None = None
    missing: str = "raise"
    bounds_share: float = 0.1
    random_state: Any = None

    _step_size: ClassVar[StepSize]

    @abstractmethod
    def _target_column(self) -> bool:
        """Whether the target's bounds are to be found privately beside the columns'."""

    def _needed(self, schema: Schema) -> list[str]:
        """What has no declared bounds."""
        return [*schema.unbounded, *["the target"] * self._target_column()]

    def _check_users(self, schema: Schema, is_users: bool) -> None:
        needed = self._needed(schema)
        if needed and is_users:
            raise PlanError(
                "private bounds protect single records, but users are to be protected. Declare bounds for "
                f"{needed}."
            )

    def _certificate(
        self, n: int, schema: Schema, is_users: bool, extra: tuple[Event, ...]
    ) -> Certificate:
        """Of the plan, proved before any value of the table is looked at."""
        delta = self._delta(n)
        usual = self._size(schema).steps
        batch = self.batch_size
        if batch is None:
            batch = batch_for(n, len(schema.columns), usual)
        drawn = sampling_of(self.sampling, n, batch)
        relation = relation_of(self.relation, drawn)
        plan = Plan(
            n=n,
            sampling=drawn,
            steps=usual if self.steps is None else whole("steps", self.steps),
            clip_norm=self._bound(schema),
            mechanism="auto",
            relation=relation,
            unit="user" if is_users else "example",
            extra=self._with_bounds(extra, schema, delta, relation),
        )
        plan = replace(plan, mechanism=mechanism_of(self.mechanism, plan))
        plan = calibrate(plan, self.epsilon, delta)
        return certify(plan, delta, epsilon=self.epsilon)

    def _with_bounds(
        self, extra: tuple[Event, ...], schema: Schema, delta: float, relation: Relation
    ) -> tuple[Event, ...]:
        """The releases beside training, with that of the bounds, if any are needed."""
        if not self._needed(schema):
            return extra
        mu = mu_of_share(self.epsilon, delta, self.bounds_share)
        return (GaussianRelease(mu, WHAT, relation), *extra)

    def _delta(self, n: int) -> float:
        delta = delta_of(self.delta, n)
        if self.delta is None and delta > _LARGE_DELTA:
            warnings.warn(
                f"δ = {delta:.2g} of {n} units is large: with that probability anything may be "
                "revealed about one of them. Learn from more, or give delta.",
                UserWarning,
                stacklevel=4,
            )
        return delta

    def _size(self, schema: Schema) -> StepSize:
        """Settings of a model of such tables."""
        return self._step_size

    def _bound(self, schema: Schema) -> float:
        if self.clip_norm is None:
            return self._size(schema).clip_norm
        return positive("clip_norm", self.clip_norm)

    def _rate(self, plan: Plan, schema: Schema) -> float:
        if self.learning_rate is None:
            return learning_rate_for(plan, self._size(schema))
        return positive("learning_rate", self.learning_rate)

    def _seed(self) -> int | None:
        if self.random_state is None:
            return None
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))
