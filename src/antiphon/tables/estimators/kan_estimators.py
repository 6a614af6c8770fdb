"""Kolmogorov-Arnold networks for tables, with scikit-learn's interface and a certificate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from antiphon.errors import PlanError
from antiphon.models import TableKAN
from antiphon.tables.data import Schema
from antiphon.tables.estimators.abstract_estimator import AbstractPrivateEstimator
from antiphon.tables.estimators.columns import is_number
from antiphon.tables.estimators.mixins import AbstractPrivateClassifier, AbstractPrivateRegressor
from antiphon.tables.estimators.settings import (
    DEEP_KAN_CLASSIFIER,
    KAN_CLASSIFIER,
    KAN_REGRESSOR,
    StepSize,
)

__all__ = ["PrivateKANClassifier", "PrivateKANRegressor"]

_HIDDEN = (16,)


@dataclass(repr=False, eq=False, kw_only=True)
class _KAN(AbstractPrivateEstimator):
    """Which network: the same for labels and numbers."""

    hidden: Sequence[int] | str = "auto"
    intervals: int = 5

    def _network(self, schema: Schema, outputs: int) -> nn.Module:
        kinds, columns = is_number(schema), len(schema.columns)
        return TableKAN(kinds, columns, outputs, self._widths(schema), intervals=self.intervals)

    def _widths(self, schema: Schema) -> Sequence[int]:
        if not isinstance(self.hidden, str) and isinstance(self.hidden, Iterable):
            return tuple(self.hidden)
        if self.hidden != "auto":
            raise PlanError(f'hidden must be "auto" or widths such as (16,); got {self.hidden!r}.')
        # Of categories alone, a sum of functions of single columns is no more than a logistic regression.
        return () if any(is_number(schema)) else _HIDDEN


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateKANClassifier(_KAN, AbstractPrivateClassifier):
    """A private classifier of tables that learns a function of every column.

    Args:
        epsilon: ε of everything that `fit` releases.
        delta: δ; unless given, n to the power of -1.1.
        bounds: Public bounds of the columns: "private" finds them for a share of the budget; a pair (low,
            high) of numbers or arrays; a mapping from columns to pairs (the others are found privately); or
            an `antiphon.tables.data.Schema`.
        categories: A mapping from columns to the values that they may have.
        classes: All labels that can occur; unless given, those in y are taken to be public.
        relation: How neighbouring tables differ; unless given, add-remove (zero-out where batches are of
            fixed size).
        hidden: Widths of hidden layers. (): a sum of functions of single columns, the best of tables with
            numbers. (16,) can learn interactions. "auto" takes (16,) where all columns are
            categories, () else.
        intervals: Of every spline's grid.
        mechanism: "auto" for the one with the smallest certified noise × error; "independent"; or one of
            `antiphon.mechanisms`, such as ``LambdaCGD(0.9)``.
        sampling: "poisson", "fixed-size", "full-batch", as in `make_private`.
        steps: Noisy steps; unless given, 300, or 900 with hidden layers.
        batch_size: Expected; unless given, half of the records or what a core computes in about 30 ms.
        clip_norm: Bound on the gradient of one record; unless given, 0.3, or 1 with hidden layers.
        learning_rate: Unless given, as large as the noise allows.
        radius: If given, parameters are kept in the ball of this radius around their start, as in
            [KANCorrelated26, Alg. 1].
        missing: What a missing number does: "raise", or "middle" of its bounds. A schema says it itself.
        bounds_share: Share of the budget for private bounds, if any are needed.
        random_state: A seed makes all noise reproducible, which the certificate says: not for release.

    Attributes:
        certificate_: What is proved.
        plan_: What ran.
        classes_: The labels.
        model_: The network, the mean of the later iterates.
        schema_: Columns with their bounds, declared or found.
        learning_rate_: As it was used.
        n_iter_: Steps.

    Guarantee:
        ``model_``, ``schema_`` and ``plan_`` together, and predictions for records that are public or the
        recipient's own, are (ε, δ)-DP as ``certificate_`` says. Scores and predictions on the training
        table look at it again and are not covered. Each fit is a release of its own: fits on the same
        records add up (`antiphon.Ledger`), also those of a grid search.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = PrivateKANClassifier(epsilon=2.0, random_state=0).fit(X[:400], y[:400])
        >>> model.certificate_.epsilon <= 2.0, model.score(X[400:], y[400:]) > 0.8
        (True, True)
    """

    _step_size: ClassVar[StepSize] = KAN_CLASSIFIER

    def _size(self, schema: Schema) -> StepSize:
        return DEEP_KAN_CLASSIFIER if self._widths(schema) else self._step_size


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateKANRegressor(_KAN, AbstractPrivateRegressor):
    """A private regression on tables that learns a function of every column.

    Args:
        epsilon: ε of everything that `fit` releases.
        delta: δ; unless given, n to the power of -1.1.
        bounds: As in `PrivateKANClassifier`.
        target_bounds: Public bounds (low, high) of the target, or "private". Targets beyond them count as
            the nearest bound, and predictions stay within them.
        categories: As in `PrivateKANClassifier`, as is all that follows.
        relation: How neighbouring tables differ.
        hidden: Widths of hidden layers.
        intervals: Of every spline's grid.
        mechanism: The correlated noise.
        sampling: How batches are drawn.
        steps: Noisy steps; unless given, 300.
        batch_size: Expected size of a batch.
        clip_norm: Bound on the gradient of one record; unless given, 0.3.
        learning_rate: Of gradient descent.
        radius: Of the ball to project on, if any.
        missing: What a missing number does.
        bounds_share: Share of the budget for private bounds.
        random_state: A seed: not for release.

    Attributes:
        certificate_: What is proved.
        plan_: What ran.
        model_: The network, the mean of the later iterates.
        schema_: Columns with their bounds, declared or found.
        target_: The target's bounds.
        learning_rate_: As it was used.
        n_iter_: Steps.

    Guarantee:
        As `PrivateKANClassifier`; private bounds of the target are part of the same release.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (2_000, 3))
        >>> y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2
        >>> model = PrivateKANRegressor(
        ...     epsilon=2.0, bounds=(-1, 1), target_bounds=(-1, 2), random_state=0
        ... )
        >>> model.fit(X, y).score(X, y) > 0.8
        True
    """

    _step_size: ClassVar[StepSize] = KAN_REGRESSOR
