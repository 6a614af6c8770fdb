"""Kolmogorov-Arnold networks for tables, with scikit-learn's face and a certificate."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from torch import nn

from antiphon.data import Schema
from antiphon.errors import PlanError
from antiphon.estimators.base import AbstractPrivateEstimator
from antiphon.estimators.targets import AbstractTarget, Classes, Interval
from antiphon.models import TableKAN

__all__ = ["PrivateKANClassifier", "PrivateKANRegressor"]


class _KAN(AbstractPrivateEstimator):
    """Which network: the same for labels and numbers."""

    hidden: Sequence[int]
    intervals: int

    def _network(self, schema: Schema, outputs: int) -> nn.Module:
        kinds = [column.kind == "number" for column in schema.columns for _ in column.feature_names]
        columns = len(schema.columns)
        return TableKAN(kinds, columns, outputs, self.hidden, intervals=self.intervals)


class PrivateKANClassifier(ClassifierMixin, _KAN):  # type: ignore[misc]
    """A private classifier of tables that learns a function of every column.

    Args:
        epsilon: ε of everything that `fit` releases.
        delta: δ; unless given, n to the power of -1.1.
        bounds: Public bounds of the columns: "private" finds them for a share of the budget; a pair (low,
            high) of numbers or arrays; a mapping from columns to pairs (the others are found privately); or
            an `antiphon.data.Schema`.
        categories: A mapping from columns to the values that they may have.
        classes: All labels that can occur; unless given, those in y are taken to be public.
        relation: How neighbouring tables differ; unless given, add-remove (zero-out where batches are of
            fixed size).
        hidden: Widths of hidden layers. None: a sum of functions of single columns, the best of small or
            noisy tables. (16,) can learn interactions.
        intervals: Of every spline's grid.
        mechanism: "auto" for the one with the smallest certified noise × error; "independent"; or one of
            `antiphon.mechanisms`, such as ``LambdaCGD(0.9)``.
        sampling: "poisson", "fixed-size", "full-batch", as in `make_private`.
        steps: Noisy steps.
        batch_size: Expected; unless given, half of the records or what a core computes in about 30 ms.
        clip_norm: Bound on the gradient of one record.
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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = "private",
        categories: Any = None,
        classes: Sequence[Any] | None = None,
        relation: str | None = None,
        hidden: Sequence[int] = (),
        intervals: int = 5,
        mechanism: Any = "auto",
        sampling: Any = "poisson",
        steps: int = 300,
        batch_size: int | None = None,
        clip_norm: float = 0.3,
        learning_rate: float | None = None,
        radius: float | None = None,
        missing: str = "raise",
        bounds_share: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.categories = categories
        self.classes = classes
        self.relation = relation
        self.hidden = hidden
        self.intervals = intervals
        self.mechanism = mechanism
        self.sampling = sampling
        self.steps = steps
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.learning_rate = learning_rate
        self.radius = radius
        self.missing = missing
        self.bounds_share = bounds_share
        self.random_state = random_state

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


class PrivateKANRegressor(RegressorMixin, _KAN):  # type: ignore[misc]
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
        steps: Noisy steps.
        batch_size: Expected size of a batch.
        clip_norm: Bound on the gradient of one record.
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
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (2_000, 3))
        >>> y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2
        >>> model = PrivateKANRegressor(
        ...     epsilon=2.0, bounds=(-1, 1), target_bounds=(-1, 2), random_state=0
        ... )
        >>> model.fit(X, y).score(X, y) > 0.8
        True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = "private",
        target_bounds: Any = "private",
        categories: Any = None,
        relation: str | None = None,
        hidden: Sequence[int] = (),
        intervals: int = 5,
        mechanism: Any = "auto",
        sampling: Any = "poisson",
        steps: int = 300,
        batch_size: int | None = None,
        clip_norm: float = 0.3,
        learning_rate: float | None = None,
        radius: float | None = None,
        missing: str = "raise",
        bounds_share: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.categories = categories
        self.relation = relation
        self.hidden = hidden
        self.intervals = intervals
        self.mechanism = mechanism
        self.sampling = sampling
        self.steps = steps
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.learning_rate = learning_rate
        self.radius = radius
        self.missing = missing
        self.bounds_share = bounds_share
        self.random_state = random_state

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
