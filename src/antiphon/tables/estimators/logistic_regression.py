"""Logistic regression on tables, with scikit-learn's interface and a certificate."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from antiphon.models import TableMLP
from antiphon.tables.data import Schema
from antiphon.tables.estimators.columns import is_number
from antiphon.tables.estimators.mixins import AbstractPrivateClassifier
from antiphon.tables.estimators.settings import LOGISTIC, StepSize

__all__ = ["PrivateLogisticRegression"]


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateLogisticRegression(AbstractPrivateClassifier):
    """A private classifier of tables whose logits are linear in the encoded columns, with an intercept.

    It sees a number scaled to [-1, 1] by its bounds, and one indicator for each category. Several classes
    have one logit each.

    Args:
        epsilon: As in `PrivateKANClassifier`, as is all that is not said here.
        delta: δ; unless given, n to the power of -1.1.
        bounds: Public bounds of the columns, or "private".
        categories: A mapping from columns to the values that they may have.
        classes: All labels that can occur; unless given, those in y are taken to be public.
        relation: How neighbouring tables differ.
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
        coef_: Change of the logits per unit of a feature, shape (1, features) for two classes, else
            (classes, features). A unit is half of a number's bounds, or a category against none;
            `get_feature_names_out` says which feature is which.
        intercept_: The logits where all features are 0.
        model_: The same as a network.
        schema_: Columns with their bounds, declared or found.
        learning_rate_: As it was used.
        n_iter_: Steps.

    Guarantee:
        As `PrivateKANClassifier`.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = PrivateLogisticRegression(epsilon=2.0, random_state=0).fit(X[:400], y[:400])
        >>> model.coef_.shape, model.score(X[400:], y[400:]) > 0.8
        ((1, 30), True)
    """

    _step_size: ClassVar[StepSize] = LOGISTIC

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Change of the logits per unit of a feature."""
        return self._linear()[0].numpy()

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """The logits where all features are 0."""
        return self._linear()[1].numpy()

    def _linear(self) -> Any:
        check_is_fitted(self, "model_")
        model: Any = self.model_
        return model.linear()

    def _network(self, schema: Schema, outputs: int) -> nn.Module:
        return TableMLP(is_number(schema), len(schema.columns), outputs)
