"""What all private estimators of tables do: declare, plan, certify, then look at the data."""

import secrets
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from antiphon.accounting import calibrate
from antiphon.certificate import Certificate, certify, round_up
from antiphon.checks import positive, whole
from antiphon.data import Schema
from antiphon.errors import PlanError
from antiphon.estimators.columns import schema_for
from antiphon.estimators.fitting import fit_model
from antiphon.estimators.scaling import warn_if_scaled
from antiphon.estimators.settings import batch_for, learning_rate_for
from antiphon.estimators.targets import AbstractTarget
from antiphon.events import GaussianRelease
from antiphon.plan import Plan
from antiphon.randomness import Generator, digest_of
from antiphon.relations import Relation
from antiphon.releases import mu_of_share, private_bounds
from antiphon.training.batches import Rows
from antiphon.training.recipe import mechanism_of, sampling_of

__all__ = ["AbstractPrivateEstimator"]

_ROWS = 4096  # that are encoded and predicted at once
_WHAT = "bounds of the columns"
_SETTINGS = "all settings were chosen without looking at the records or at results on them"
_LARGE_DELTA = 0.01


class _Data(NamedTuple):
    """A checked table, still as it was given, with its targets."""

    table: Any
    y: NDArray[Any]
    columns: tuple[str, ...] | int


class AbstractPrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Fits a network to a table under a certificate.

    Everything that privacy depends on is fixed before a value is looked at: the schema, the plan with its
    noise, the certificate. Then bounds that are not declared are released, and the network is trained.
    Subclasses say which network, and what it predicts.
    """

    # Parameters of every subclass; scikit-learn reads them off each __init__.
    epsilon: float
    delta: float | None
    bounds: Any
    categories: Any
    missing: str
    bounds_share: float
    relation: str | None
    mechanism: Any
    sampling: Any
    steps: int
    batch_size: int | None
    clip_norm: float
    learning_rate: float | None
    radius: float | None
    random_state: Any
    # What fit leaves.
    model_: nn.Module
    schema_: Schema
    target_: Any
    certificate_: Certificate
    plan_: Plan

    @abstractmethod
    def _network(self, schema: Schema, outputs: int) -> nn.Module:
        """The model at its start."""

    @abstractmethod
    def _target_column(self) -> bool:
        """Whether the target's bounds are to be found privately beside the columns'."""

    @abstractmethod
    def _target(self, y: NDArray[Any], found: tuple[float, float] | None) -> AbstractTarget:
        """What is predicted, with bounds that were found privately if there are any."""

    @abstractmethod
    def _checked_y(self, y: Any) -> NDArray[Any]:
        """The targets as an array of one dimension."""

    def fit(self, X: Any, y: Any, *, user: Any = None) -> Any:
        """Train on all records of a table.

        Args:
            X: Records: an array, or a data frame if there are categories or names.
            y: One target for each.
            user: If given, the user of every record: then users are protected, not single records.

        Returns:
            The estimator, with ``certificate_`` and ``plan_``.
        """
        data = self._checked(X, y, reset=True)
        units = Rows(len(data.y), user).count
        schema = schema_for(data.columns, self.bounds, self.categories, self.missing)
        needed = len(schema.unbounded) + self._target_column()
        if needed and user is not None:
            raise PlanError(
                "private bounds protect single records, but users are to be protected. Declare bounds for "
                f"{[*schema.unbounded, *['the target'] * self._target_column()]}."
            )
        certificate = self._certificate(units, self.n_features_in_, needed, user is not None)
        seed = self._seed()
        is_declared = len(schema.unbounded) < len(schema.columns)
        schema, found = self._with_bounds(schema, data, certificate, seed)
        target = self._target(data.y, found)
        model = self._start(schema, target.outputs, seed)
        rate = self.learning_rate
        if rate is None:
            rate = learning_rate_for(certificate.plan, _is_classifier(self))
        x, wanted = self._encoded(schema, data.table), target.encode(data.y)
        if seed is not None:
            # One seed in several fits, as in a grid search, must not put the same noise on other gradients.
            what = (seed, certificate.plan.hash, rate, self.radius, x, wanted, user)
            seed = int(digest_of(*what, *model.parameters()), 16)
        trained, certificate = fit_model(
            model,
            x,
            wanted,
            target,
            certificate,
            learning_rate=positive("learning_rate", rate),
            seed=seed,
            radius=self.radius,
            user=user,
        )
        lines = (*target.assumptions, _SETTINGS)
        if is_declared or (found is None and not _is_classifier(self)):
            lines += ("bounds and categories were declared without looking at the records",)
        self.schema_, self.target_ = schema, target
        self.model_ = trained.double().eval().requires_grad_(False)
        self.certificate_ = replace(certificate, assumptions=(*certificate.assumptions, *lines))
        self.plan_, self.n_iter_ = certificate.plan, certificate.plan.steps
        self.learning_rate_ = float(rate)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """What the network sees: numbers under their names, categories as name=value."""
        check_is_fitted(self)
        given = None if input_features is None else [str(name) for name in input_features]
        if given not in (None, list(self.schema_.names)):
            raise PlanError(f"input_features is {given}; the table had {list(self.schema_.names)}.")
        return np.array(self.schema_.feature_names, dtype=object)

    def plot(self, *, most: int = 48) -> Any:
        """The learned functions of the columns, with the guarantee below them."""
        check_is_fitted(self)
        c = self.certificate_
        caption = f"private: ε = {round_up(c.epsilon)}, δ = {round_up(c.delta)}, {c.relation}, per {c.unit}"
        drawing: Any = self.model_
        bounds = {c.name: c.bounds for c in self.schema_.columns if c.kind == "number"}
        return drawing.plot(self.schema_.feature_names, caption, bounds=bounds, most=most)

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        """The network's outputs for a table, shape (rows, outputs)."""
        check_is_fitted(self)
        table = self._checked_X(X, reset=False)
        with torch.no_grad():
            model: nn.Module = self.model_
            parts = [model(_tensor(self.schema_, part).double()) for part in _parts(table)]
        return torch.cat(parts).numpy()

    def _certificate(self, n: int, columns: int, needed: int, users: bool) -> Certificate:
        """Of the plan, proved before any value of the table is looked at."""
        delta = self._delta(n)
        batch = batch_for(n, columns) if self.batch_size is None else self.batch_size
        drawn = sampling_of(self.sampling, n, batch)
        relation = self.relation
        if relation is None:
            relation = Relation.ADD_REMOVE if drawn.own_coin else Relation.ZERO_OUT
        extra: tuple[GaussianRelease, ...] = ()
        if needed:
            mu = mu_of_share(self.epsilon, delta, self.bounds_share)
            extra = (GaussianRelease(mu, _WHAT, relation),)
        plan = Plan(
            n=n,
            sampling=drawn,
            steps=whole("steps", self.steps),
            clip_norm=positive("clip_norm", self.clip_norm),
            mechanism="auto",
            relation=relation,
            unit="user" if users else "example",
            extra=extra,
        )
        plan = replace(plan, mechanism=mechanism_of(self.mechanism, plan))
        plan = calibrate(plan, self.epsilon, delta)
        return certify(plan, delta, epsilon=self.epsilon)

    def _delta(self, n: int) -> float:
        if self.delta is not None:
            return self.delta
        if n**-1.1 > _LARGE_DELTA:
            warnings.warn(
                f"δ = {n**-1.1:.2g} of {n} units is large: with that probability anything may be told of "
                "one of them. Learn from more, or give delta.",
                UserWarning,
                stacklevel=4,
            )
        return n**-1.1

    def _with_bounds(
        self, schema: Schema, data: _Data, certificate: Certificate, seed: int | None
    ) -> tuple[Schema, tuple[float, float] | None]:
        """The schema with all bounds, and the target's; what is unknown is released as the plan says."""
        if not certificate.plan.extra:
            return schema, None
        parts = [schema.numbers(data.table)]
        if self._target_column():
            parts.append(np.asarray(data.y, float)[:, None])
        (event,) = certificate.plan.extra
        if not isinstance(event, GaussianRelease):
            raise PlanError(f"bounds are a Gaussian release, but the plan pays for {event}.")
        generator = Generator.secure() if seed is None else Generator.seeded(seed)
        low, high, paid = private_bounds(
            np.concatenate(parts, axis=1),
            mu=event.mu,
            relation=str(certificate.plan.relation),
            generator=generator.spawn("bounds"),
        )
        if paid != (event,):
            raise PlanError(f"{paid} was released, but the plan pays for {event}.")
        pairs = list(zip(low.tolist(), high.tolist(), strict=True))
        known = dict(zip(schema.unbounded, pairs, strict=False))
        return schema.with_bounds(known), pairs[-1] if self._target_column() else None

    def _start(self, schema: Schema, outputs: int, seed: int | None) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(secrets.randbits(63) if seed is None else seed)
            return self._network(schema, outputs)

    def _seed(self) -> int | None:
        if self.random_state is None:
            return None
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _checked(self, X: Any, y: Any, *, reset: bool) -> _Data:
        if y is None:
            raise PlanError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        table = self._checked_X(X, reset=reset)
        targets = self._checked_y(column_or_1d(y, warn=True))
        check_consistent_length(table, targets)
        warn_if_scaled(table)
        names = getattr(self, "feature_names_in_", None)
        columns = self.n_features_in_ if names is None else tuple(map(str, names))
        return _Data(table, targets, columns)

    def _checked_X(self, X: Any, *, reset: bool) -> Any:
        if self._has_categories():
            return self._checked_frame(X, reset=reset)
        finite = "allow-nan" if self._allows_missing() else True
        try:
            return validate_data(
                self,
                X,
                reset=reset,
                dtype=np.float64,
                ensure_all_finite=finite,
                ensure_min_samples=2 if reset else 1,
            )
        except ValueError as error:
            if "could not convert string" in str(error):
                # Not the original error: it quotes a record.
                raise PlanError(
                    "a column holds texts. Declare its values from public knowledge, "
                    "categories={column: [...]}, or leave the column out."
                ) from None
            raise

    def _checked_frame(self, X: Any, *, reset: bool) -> Any:
        """A table with texts, which scikit-learn's checks of arrays would refuse."""
        if issparse(X) or not hasattr(X, "shape"):
            raise PlanError(
                f"a table with categories is a data frame or an array of objects; got {type(X).__name__}."
            )
        if not all(isinstance(name, str) for name in getattr(X, "columns", ())):
            X = X.set_axis([str(name) for name in X.columns], axis=1)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if len(X) < (least := 2 if reset else 1):
            raise PlanError(f"at least {least} records are needed; got {len(X)} sample(s).")
        return X

    def _allows_missing(self) -> bool:
        given = self.bounds.missing if isinstance(self.bounds, Schema) else self.missing
        return given == "middle"

    def _has_categories(self) -> bool:
        if isinstance(self.bounds, Schema):
            return any(column.kind == "category" for column in self.bounds.columns)
        return bool(self.categories)

    def _encoded(self, schema: Schema, table: Any) -> Tensor:
        return torch.cat([_tensor(schema, part) for part in _parts(table)])

    def __sklearn_tags__(self) -> Any:
        """No promise on the score of small tables: noise may drown them."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self._allows_missing()
        tags.input_tags.string = tags.input_tags.categorical = self._has_categories()
        return tags


def _parts(table: Any) -> Iterator[Any]:
    """The table in pieces, so that it need not fit into memory twice."""
    rows = len(table)
    for start in range(0, rows, _ROWS):
        piece = slice(start, start + _ROWS)
        yield table.iloc[piece] if hasattr(table, "iloc") else table[piece]


def _tensor(schema: Schema, table: Any) -> Tensor:
    return torch.as_tensor(schema.encode(table), dtype=torch.float32)


def _is_classifier(estimator: Any) -> bool:
    return estimator.__sklearn_tags__().estimator_type == "classifier"
