"""What classifiers and regressions of tables share, whatever their network."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets

from antiphon.errors import PlanError
from antiphon.tables.estimators.abstract_estimator import AbstractPrivateEstimator
from antiphon.tables.estimators.targets import AbstractTarget, Classes, Interval

__all__ = ["AbstractPrivateClassifier", "AbstractPrivateRegressor"]


@dataclass(repr=False, eq=False, kw_only=True)
class AbstractPrivateClassifier(ClassifierMixin, AbstractPrivateEstimator):  # type: ignore[misc]
    """Predicts one of a public list of labels, from one logit for two of them, else from one for each."""

    classes: Sequence[Any] | None = None

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted."""
        return self.target_.labels

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Logits: of the second class, shape (rows,), or of every class if there are more."""
        out = self._outputs(X)
        return out[:, 0] if self.target_.outputs == 1 else out

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of every class, shape (rows, classes)."""
        out = self.decision_function(X)
        if out.ndim == 1:
            return np.stack([expit(-out), expit(out)], axis=1)
        return softmax(out, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each record."""
        out = self.decision_function(X)
        return self.classes_[(out > 0).astype(int) if out.ndim == 1 else out.argmax(1)]

    def _checked_y(self, y: Any) -> NDArray[Any]:
        check_classification_targets(y)
        return np.asarray(y)

    def _target_column(self) -> bool:
        return False

    def _target(self, y: NDArray[Any], found: tuple[float, float] | None) -> AbstractTarget:
        return Classes.of(y, self.classes)

    def __sklearn_tags__(self) -> Any:
        """See the base class."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


@dataclass(repr=False, eq=False, kw_only=True)
class AbstractPrivateRegressor(RegressorMixin, AbstractPrivateEstimator):  # type: ignore[misc]
    """Predicts a number between public or private bounds."""

    target_bounds: Any = "private"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The predicted target of each record, within the target's bounds."""
        out = self._outputs(X)[:, 0]
        return self.target_.decode(out)

    def _checked_y(self, y: Any) -> NDArray[Any]:
        try:
            numbers = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise PlanError(
                "y must hold numbers; got texts or objects. For labels use a classifier."
            ) from error
        assert_all_finite(numbers, input_name="y")
        return numbers

    def _target_column(self) -> bool:
        if isinstance(self.target_bounds, str) and self.target_bounds != "private":
            raise PlanError(
                f"target_bounds is a pair (low, high) or 'private'; got {self.target_bounds!r}."
            )
        return isinstance(self.target_bounds, str)

    def _target(self, y: NDArray[Any], found: tuple[float, float] | None) -> AbstractTarget:
        try:
            low, high = (float(bound) for bound in found or self.target_bounds)
        except (TypeError, ValueError) as error:
            raise PlanError(
                f"target_bounds is a pair (low, high) or 'private'; got {self.target_bounds!r}."
            ) from error
        return Interval(low, high)

    def __sklearn_tags__(self) -> Any:
        """See the base class."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags
