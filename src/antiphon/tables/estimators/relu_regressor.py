"""One private ReLU neuron for tables, with scikit-learn's interface and a certificate."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from antiphon.accounting import calibrate, gaussian_mu
from antiphon.certificates import Certificate, certify
from antiphon.errors import PlanError
from antiphon.models import TableNeuron
from antiphon.numerics import digest_of
from antiphon.participation import Relation
from antiphon.plans import Block, Event, GaussianRelease, Plan, mechanism_of, relation_of
from antiphon.releases import mu_of_share, threshold_slack
from antiphon.tables.data import Schema
from antiphon.tables.estimators.columns import is_number
from antiphon.tables.estimators.fit_folder import Start
from antiphon.tables.estimators.inputs import Data, encoded
from antiphon.tables.estimators.mixins import AbstractPrivateRegressor
from antiphon.tables.estimators.neuron_fitting import Found, How, fit_neuron
from antiphon.tables.estimators.relu_methods import Method, method_of, passes, scheme
from antiphon.tables.estimators.settings import RELU_REGRESSOR, StepSize
from antiphon.tables.estimators.targets import AbstractTarget
from antiphon.training.neuron import AVERAGES, AbstractClipNorms, BlockThreshold, PublicThreshold

__all__ = ["PrivateReLURegressor"]

_SMALLEST, _LARGEST = 2.0**-6, 1.0  # thresholds of residuals, as shares of the target's range
_NORMS = (2.0**-9, 1.0)  # thresholds of directions' norms
_VOTERS = 10  # one record of so many votes on the clip norm of its batch [ReLURegression25, Thm. 4]
_LOOKS = 100  # at public records during a pass
_SPREAD = 0.1  # norm of the random start of gradients, which are all 0 at 0
_VOTES, _CLIP = "clip norms of the batches", "the clip norm"
_UNIT = "direction over the step's clip norm"


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateReLURegressor(AbstractPrivateRegressor):
    """A private regression by one ReLU neuron: low + ReLU(w·x + b), up to the target's upper bound.

    Targets are moved into their bounds and counted from the lower one, so that they are not negative: with
    ``target_bounds=(0, high)`` and ``fit_intercept=False`` this is the model of [ReLURegression25]. A
    neuron that is active for all records is linear.

    Args:
        epsilon: As in `PrivateKANRegressor`, as is all that is not said here.
        delta: δ; unless given, n to the power of -1.1.
        bounds: Public bounds of the columns, or "private".
        target_bounds: Public bounds (low, high) of the target, or "private".
        categories: A mapping from columns to the values that they may have.
        method: "full-batch" or "poisson": the GLMtron direction with a fixed clip norm, far better than the
            others at the same ε. The paper's own: "mb-glmtron" and "glmtron", one pass in batches or record
            by record. "ta-glmtron": record by record with tree noise. "sgd" and "pgd": the gradient, in one
            pass or on all records.
        average: Of the iterates after the steps: "tail", the second half; "full"; or "last".
        fit_intercept: Whether there is a b.
        relation: How neighbouring tables differ; unless given "add-remove", for methods that go through
            the records in an order "replace-one".
        clip: "fixed", at ``clip_norm``. "threshold": ``clip_norm`` times DP-Threshold of the residuals, in
            "mb-glmtron" from a tenth of each batch, whose records do nothing else; in "glmtron" from public
            records; else once, at the start. "quantile": a quantile of the directions' norms at the start.
            Unless given, the method's own.
        quantile: Of the directions' norms, if that is the clip norm.
        clip_share: Share of the budget for a clip norm that is found once.
        public_data: A table and its targets that are public, for "glmtron" with thresholds.
        mechanism: The correlated noise: "auto" is the method's own, independent or tree.
        sampling: Nothing but the method's own.
        steps: Noisy steps; unless given 300, in one pass fewer where the noise demands it. Methods that go
            record by record take n.
        batch_size: Of "poisson", "mb-glmtron" and "sgd".
        clip_norm: Bound on the direction (ReLU(w·x) - y) x of one record, where y is a share of the
            target's range and the norm of x, intercept included, is at most 1. Unless given, 0.06.
        learning_rate: Of the descent; where the clip norm is found, at ``clip_norm``: steps keep their
            length.
        radius: If given, the norm of weights and intercept, in ranges of the target per unit, is kept below
            it. "pgd" has 1 unless given.
        missing: What a missing number does.
        bounds_share: Share of the budget for private bounds.
        random_state: A seed: not for release.

    Attributes:
        certificate_: What is proved, with what is treated as public and how often records are used.
        plan_: What ran.
        coef_: Change of the prediction per unit of a feature, where the neuron is active. A unit is
            half of a number's bounds, or a category against none; `get_feature_names_out` says which is
            which.
        intercept_: b, in units of the target: the prediction above its lower bound where all features
            are 0.
        model_: The same as a network.
        schema_: Columns with their bounds, declared or found.
        target_: The target's bounds.
        learning_rate_: As it was used.
        n_iter_: Steps.

    Guarantee:
        As `PrivateKANRegressor`. Each clip norm that was found is paid for in the certificate.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, (2_000, 2))
        >>> y = np.maximum(X[:, 0] + X[:, 1], 0)
        >>> model = PrivateReLURegressor(
        ...     epsilon=1.0, bounds=(-1, 1), target_bounds=(0, 2), random_state=0
        ... )
        >>> model.fit(X, y).score(X, y) > 0.9
        True
    """

    method: str = "full-batch"
    average: str = "tail"
    fit_intercept: bool = True
    clip: str | None = None
    quantile: float = 0.1
    clip_share: float = 0.05
    public_data: Any = None
    sampling: Any = None

    _step_size: ClassVar[StepSize] = RELU_REGRESSOR
    _unsaved: ClassVar[tuple[str, ...]] = ("random_state", "public_data")

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Change of the prediction per unit of a feature."""
        return np.asarray(self._linear()[0] * self._half_range)

    @property
    def intercept_(self) -> float:
        """The prediction above the target's lower bound where all features are 0, if it is not negative."""
        return float(self._linear()[1] * self._half_range)

    def _linear(self) -> tuple[Any, Any]:
        check_is_fitted(self, "model_")
        model: Any = self.model_
        coefficients, intercept = model.linear()
        return coefficients.numpy(), intercept.numpy()

    @property
    def _half_range(self) -> float:
        return (self.target_.high - self.target_.low) / 2

    def _network(self, schema: Schema, outputs: int) -> nn.Module:
        spread = _SPREAD if self._method().direction == "sgd" else 0.0
        columns = len(schema.columns)
        intercept = bool(self.fit_intercept)
        return TableNeuron(is_number(schema), columns, has_intercept=intercept, spread=spread)

    def _method(self) -> Method:
        return method_of(self.method, self.sampling)

    def _clip(self) -> str:
        clip = self._method().clip if self.clip is None else self.clip
        if clip not in ("fixed", "threshold", "quantile"):
            raise PlanError(f"clip is 'fixed', 'threshold' or 'quantile'; got {clip!r}.")
        return clip

    @property
    def _is_found_once(self) -> bool:
        """Whether the clip norm is found at the start, from all records."""
        clip = self._clip()
        return clip == "quantile" or (
            clip == "threshold" and self.method not in ("mb-glmtron", "glmtron")
        )

    def _check_users(self, schema: Schema, is_users: bool) -> None:
        if is_users:
            raise PlanError(
                "PrivateReLURegressor protects single records, and users were given. Use "
                "PrivateKANRegressor, which protects users, or one record per user."
            )

    def _certificate(
        self, n: int, schema: Schema, is_users: bool, extra: tuple[Event, ...]
    ) -> Certificate:
        method, delta = self._method(), self._delta(n)
        is_voted = self._clip() == "threshold" and self.method == "mb-glmtron"
        drawn, steps = scheme(
            method,
            n,
            len(schema.columns),
            steps=self.steps,
            batch_size=self.batch_size,
            mu=gaussian_mu(self.epsilon, delta),
            is_voted=is_voted,
        )
        relation = relation_of(self.relation, drawn, Relation.REPLACE_ONE)
        if self._is_found_once:
            mu = mu_of_share(self.epsilon, delta, self.clip_share)
            extra = (GaussianRelease(mu, _CLIP, relation), *extra)
        extra = self._with_bounds(extra, schema, delta, relation)
        plan = Plan(
            n=n,
            sampling=drawn,
            steps=steps,
            clip_norm=self._bound(schema),
            mechanism=method.mechanism,
            relation=relation,
            extra=extra,
        )
        if self.mechanism != "auto":
            plan = replace(plan, mechanism=mechanism_of(self.mechanism, plan))
        if is_voted:
            votes = GaussianRelease(self._left(delta, extra), _VOTES, relation)
            plan = replace(plan, apart=(votes,))
        plan = calibrate(plan, self.epsilon, delta)
        if self._clip() != "fixed":
            plan = replace(plan, blocks=(Block(_UNIT, 1.0, plan.known_noise()),))
        return certify(plan, delta, epsilon=self.epsilon)

    def _left(self, delta: float, extra: tuple[Event, ...]) -> float:
        """μ that is left for each of two disjoint groups of records."""
        if not all(isinstance(event, GaussianRelease) for event in extra):
            raise PlanError(
                "thresholds from records of their own can stand beside Gaussian releases only; extra holds "
                "others. Use clip='fixed'."
            )
        paid = sum(event.mu**2 for event in extra if isinstance(event, GaussianRelease))
        left = gaussian_mu(self.epsilon, delta) ** 2 - paid
        if left <= 0:
            raise PlanError(
                f"the releases beside training already cost more than ε = {self.epsilon} at δ = {delta}."
            )
        return math.sqrt(left) * (1 - 1e-9)

    def _try_out(self, start: Start, data: Data) -> None:
        super()._try_out(start, data)
        if self.average not in AVERAGES:
            raise PlanError(f"average is one of {', '.join(AVERAGES)}; got {self.average!r}.")
        plan = start.certificate.plan
        if self._clip() == "quantile" and not 0 < self.quantile < 1:
            raise PlanError(f"quantile lies strictly between 0 and 1; got {self.quantile}.")
        if self._is_found_once:
            return
        if self._clip() == "threshold" and self.method == "glmtron":
            self._public()
        elif plan.apart:
            if _voters(plan) >= plan.expected_batch:
                raise PlanError(
                    f"batches of {plan.expected_batch:g} leave no record to learn from beside those that "
                    "vote on the clip norm. Use larger ones, or clip='fixed'."
                )
            self._warn_of_few(plan)

    def _warn_of_few(self, plan: Plan) -> None:
        voters = _voters(plan)
        needed = 4 * threshold_slack(_SMALLEST, _LARGEST, plan.apart[0].mu)
        if voters < needed:
            warnings.warn(
                f"{voters} records vote on the clip norm of a batch, but {needed:.0f} are needed to be "
                "heard above the noise: it will be chosen by noise. Use clip='fixed' or more records.",
                UserWarning,
                stacklevel=4,
            )

    def _public(self) -> tuple[Any, NDArray[Any]]:
        """The public records, checked."""
        if self.public_data is None:
            raise PlanError(
                "method='glmtron' reads its clip norms off public records: give public_data=(X, y), or "
                "clip='fixed'."
            )
        try:
            X, y = self.public_data
        except (TypeError, ValueError) as error:
            raise PlanError("public_data is a pair: a table, and its targets.") from error
        table, targets = self._checked_X(X, reset=False), self._checked_y(np.asarray(y))
        check_consistent_length(table, targets)
        return table, targets

    def _train(
        self,
        model: nn.Module,
        x: Tensor,
        wanted: Tensor,
        target: AbstractTarget,
        schema: Schema,
        certificate: Certificate,
        **how: Any,
    ) -> tuple[nn.Module, Certificate]:
        """As `fit_model`, by the compiled loop."""
        del how["user"]
        neuron: Any = model
        plan, radius = certificate.plan, self.radius
        if radius is None and self.method == "pgd":
            radius = 1.0
        clip, lines = self._rule(neuron, target, schema, plan), [passes(plan)]
        public = "the number of records, the names of the columns, and all settings"
        if isinstance(clip, PublicThreshold):
            public += f", and the {len(clip.y)} records of public_data"
        lines.append(f"treated as public: {public}")
        context = digest_of(self.method, self.average, self.clip, self.quantile, *_arrays(clip))
        if how["seed"] is not None:
            how["seed"] = int(digest_of(how["seed"], context), 16)
        ball = None if radius is None else radius / neuron.scale
        run = How(self._method().direction, self.average, ball, clip, context)
        known = replace(certificate, assumptions=(*certificate.assumptions, *lines))
        return fit_neuron(neuron, x, wanted, known, run, **how)

    def _rule(
        self, model: TableNeuron, target: AbstractTarget, schema: Schema, plan: Plan
    ) -> AbstractClipNorms | Found | None:
        """Where clip norms come from, if they are not the plan's own."""
        clip, factor = self._clip(), plan.clip_norm
        if clip == "fixed":
            return None
        if self._is_found_once:
            event: Any = next(event for event in plan.extra if event.what == _CLIP)
            if clip == "quantile":
                return Found(event, True, self.quantile, *_NORMS, 1.0)
            return Found(event, False, 1.0, _SMALLEST, _LARGEST, factor)
        if plan.apart:
            mu = plan.apart[0].mu
            return BlockThreshold(_voters(plan), factor, _SMALLEST, _LARGEST, mu)
        table, targets = self._public()
        X = model.inputs(encoded(schema, table).double()).numpy()
        y = (target.encode(targets).double().numpy() + 1) / 2
        return PublicThreshold(X, y, factor, _SMALLEST, _LARGEST, max(1, plan.steps // _LOOKS))


def _voters(plan: Plan) -> int:
    return max(1, int(plan.expected_batch) // _VOTERS)


def _arrays(clip: AbstractClipNorms | Found | None) -> tuple[Any, ...]:
    return (clip.X, clip.y) if isinstance(clip, PublicThreshold) else ()
