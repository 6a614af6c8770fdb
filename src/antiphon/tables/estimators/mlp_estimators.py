"""Perceptrons for tables, with scikit-learn's interface and a certificate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from antiphon.models import TableMLP
from antiphon.tables.data import Schema
from antiphon.tables.estimators.abstract_estimator import AbstractPrivateEstimator
from antiphon.tables.estimators.columns import is_number
from antiphon.tables.estimators.mixins import AbstractPrivateClassifier, AbstractPrivateRegressor
from antiphon.tables.estimators.settings import MLP_CLASSIFIER, MLP_REGRESSOR, StepSize

__all__ = ["PrivateMLPClassifier", "PrivateMLPRegressor"]


@dataclass(repr=False, eq=False, kw_only=True)
class _MLP(AbstractPrivateEstimator):
    """Which network: the same for labels and numbers."""

    hidden: Sequence[int] = (32,)

    def _network(self, schema: Schema, outputs: int) -> nn.Module:
        return TableMLP(is_number(schema), len(schema.columns), outputs, self.hidden)


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateMLPClassifier(_MLP, AbstractPrivateClassifier):
    """A private classifier of tables: a perceptron with hidden layers of tanh.

    Args:
        epsilon: As in `PrivateKANClassifier`, as is all that is not said here.
        delta: δ; unless given, n to the power of -1.1.
        bounds: Public bounds of the columns, or "private".
        categories: A mapping from columns to the values that they may have.
        classes: All labels that can occur; unless given, those in y are taken to be public.
        relation: How neighbouring tables differ.
        hidden: Widths of hidden layers.
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
        classes_: The labels.
        model_: The network, the mean of the later iterates.
        schema_: Columns with their bounds, declared or found.
        learning_rate_: As it was used.
        n_iter_: Steps.

    `plot` draws how the output changes along each column while all others are at their middle; what
    columns do together is not in it.

    Guarantee:
        As `PrivateKANClassifier`.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, (2_000, 2))
        >>> y = X[:, 0] * X[:, 1] > 0  # no sum of functions of single columns is above 3/4
        >>> model = PrivateMLPClassifier(epsilon=4.0, bounds=(-1, 1), random_state=0).fit(X, y)
        >>> model.certificate_.epsilon <= 4.0, model.score(X, y) > 0.8
        (True, True)
    """

    _step_size: ClassVar[StepSize] = MLP_CLASSIFIER


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateMLPRegressor(_MLP, AbstractPrivateRegressor):
    """A private regression on tables: a perceptron with hidden layers of tanh.

    Args:
        epsilon: As in `PrivateKANRegressor`, as is all that is not said here.
        delta: δ; unless given, n to the power of -1.1.
        bounds: Public bounds of the columns, or "private".
        target_bounds: Public bounds (low, high) of the target, or "private".
        categories: A mapping from columns to the values that they may have.
        relation: How neighbouring tables differ.
        hidden: Widths of hidden layers.
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

    `plot` draws how the output changes along each column while all others are at their middle.

    Guarantee:
        As `PrivateKANRegressor`.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, (2_000, 2))
        >>> y = X[:, 0] + X[:, 1]
        >>> model = PrivateMLPRegressor(
        ...     epsilon=4.0, bounds=(-1, 1), target_bounds=(-2, 2), random_state=0
        ... )
        >>> model.fit(X, y).score(X, y) > 0.8
        True
    """

    _step_size: ClassVar[StepSize] = MLP_REGRESSOR
