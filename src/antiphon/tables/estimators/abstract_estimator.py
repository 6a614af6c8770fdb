"""What all private estimators of tables do: declare, plan, certify, pay, then look at the data."""

import json
import os
import secrets
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from antiphon.certificates import Certificate, Ledger, round_up
from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics import Generator, digest_of
from antiphon.plans import Event, GaussianRelease
from antiphon.releases import private_bounds
from antiphon.tables.data import Schema
from antiphon.tables.estimators.codec import to_json
from antiphon.tables.estimators.columns import schema_for
from antiphon.tables.estimators.fit_folder import FitFolder, Start
from antiphon.tables.estimators.fitting import fit_model
from antiphon.tables.estimators.inputs import Data, encoded, parts
from antiphon.tables.estimators.planning import WHAT, AbstractPlannedEstimator
from antiphon.tables.estimators.targets import AbstractTarget
from antiphon.training.checkpoints import export
from antiphon.training.run import Rows

__all__ = ["AbstractPrivateEstimator", "Callback"]

_SETTINGS = "all settings were chosen without looking at the records or at results on them"
_DECLARED = (
    "what was not released of bounds and categories was declared without looking at the records"
)
_ANY = (-1e300, 1e300)  # bounds within which every number is

Callback = Callable[[int, Any], object]


@dataclass(repr=False, eq=False)
class AbstractPrivateEstimator(AbstractPlannedEstimator):
    """Fits a network to a table under a certificate.

    Everything that privacy depends on is fixed before a value is looked at: the schema, the plan with its
    noise, the certificate. Then bounds that are not declared are released, and the network is trained.
    Subclasses say which network, and what it predicts.
    """

    _unsaved: ClassVar[tuple[str, ...]] = ("random_state",)

    @abstractmethod
    def _network(self, schema: Schema, outputs: int) -> nn.Module:
        """The model at its start."""

    @abstractmethod
    def _target(self, y: NDArray[Any], found: tuple[float, float] | None) -> AbstractTarget:
        """What is predicted, with bounds that were found privately if there are any."""

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        user: Any = None,
        extra: Sequence[Event] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        callback: Callback | None = None,
        ledger: Ledger | None = None,
    ) -> Any:
        """Train on all records of a table.

        Args:
            X: Records: an array, or a data frame if there are categories or names.
            y: One target for each.
            user: If given, the user of every record: then users are protected, not single records.
            extra: Further releases from the same records, such as a noisy score, that are paid for in the
                certificate and made by the caller, before or after.
            checkpoint: Folder in which an interrupted fit is kept, a new or an empty one. As secret as the
                data: it holds the noise's key. Remove it when the fit is done.
            resume: Resume the fit in that folder. Nothing is released or paid again, and the result is
                that of a fit without interruption, to the last bit. All else must be given as before.
            callback: Called after each step with its number and the estimator as ``fit`` would leave it if
                that step were the last, to draw a learning curve: ``lambda step, model:
                curve.append(model.score(X_public, y_public))``. What it shows must come from public
                records, never from those that are learned from. It may raise, which interrupts the fit; a
                resumed fit repeats the steps since its last checkpoint, and calls it for them again.
            ledger: Enter the whole plan there first, with bounds and ``extra``. A fit that would pass its
                budget does not start.

        Returns:
            The estimator, with ``certificate_`` and ``plan_``.
        """
        if resume and checkpoint is None:
            raise PlanError("resume=True needs checkpoint=, the folder of the fit.")
        folder = None if checkpoint is None else FitFolder(checkpoint)
        data = self._checked(X, y)
        units, is_users = Rows(len(data.y), user).count, user is not None
        schema = schema_for(data.columns, self.bounds, self.categories, self.missing)
        if folder is not None and resume:
            start = self._resumed(folder.read(), self._asked(schema, units, is_users, extra))
        else:
            self._check_users(schema, is_users)
            certificate = self._certificate(units, schema, is_users, tuple(extra))
            asked = {} if folder is None else self._asked(schema, units, is_users, extra)
            start = self._started(schema, data, certificate, asked, folder, ledger)
        target = self._target(data.y, start.found)
        x, wanted = encoded(start.schema, data.table), target.encode(data.y)
        if folder is not None and resume:
            start.check_data(digest_of(x, wanted, user))
        elif folder is not None:
            start = replace(start, data=digest_of(x, wanted, user))
            folder.create(start)
        model, rate = (
            self._start(start.schema, target.outputs, start.model_seed),
            self._rate(start.certificate.plan, start.schema),
        )
        seed = start.seed
        if seed is not None:
            # One seed in several fits, as in a grid search, must not put the same noise on other gradients.
            what = (seed, start.certificate.plan.hash, rate, self.radius, x, wanted, user)
            seed = int(digest_of(*what, *model.parameters()), 16)
        lines = (*target.assumptions, _SETTINGS, *self._declared(schema, start))

        def leave(estimator: Any, model: nn.Module, certificate: Certificate) -> None:
            estimator.schema_, estimator.target_ = start.schema, target
            estimator.model_ = model.double().eval().requires_grad_(False)
            known = (*certificate.assumptions, *lines)
            estimator.certificate_ = replace(certificate, assumptions=known)
            estimator.plan_ = certificate.plan
            estimator.n_iter_, estimator.learning_rate_ = certificate.plan.steps, rate

        def show(step: int, model: nn.Module, certificate: Certificate) -> None:
            seen = copy(self)
            leave(seen, model, certificate)
            if callback is not None:
                callback(step, seen)

        trained, certificate = self._train(
            model,
            x,
            wanted,
            target,
            start.schema,
            start.certificate,
            learning_rate=rate,
            seed=seed,
            user=user,
            folder=None if folder is None else folder.training,
            resume=folder is not None and folder.has_training(),
            begun=None if folder is None else lambda: folder.mark_begun(start),
            watcher=None if callback is None else show,
        )
        leave(self, trained, certificate)
        return self

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
        """The trained model and what is proved of it; ``how`` is that of `fit_model`, whose loop this is.

        An estimator with a loop of its own keeps what `fit_model` guarantees.
        """
        return fit_model(model, x, wanted, target, certificate, radius=self.radius, **how)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """What the network sees: numbers under their names, categories as name=value."""
        check_is_fitted(self)
        given = None if input_features is None else [str(name) for name in input_features]
        if given not in (None, list(self.schema_.names)):
            raise PlanError(f"input_features is {given}; the table had {list(self.schema_.names)}.")
        return np.array(self.schema_.feature_names, dtype=object)

    def plot(self, *, most: int = 48) -> Any:
        """The effect of each column, with the guarantee below it."""
        check_is_fitted(self)
        c = self.certificate_
        caption = f"private: ε = {round_up(c.epsilon)}, δ = {round_up(c.delta)}, {c.relation}, per {c.unit}"
        drawing: Any = self.model_
        bounds = {c.name: c.bounds for c in self.schema_.columns if c.kind == "number"}
        return drawing.plot(self.schema_.feature_names, caption, bounds=bounds, most=most)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one safetensors file, which `load` reads.

        Guarantee:
            The file holds what is released: weights, certificate, plan, schema, classes or target bounds,
            and the parameters but ``random_state`` and public records; no key, no noise, and nothing else
            of the records.
        """
        check_is_fitted(self)
        parameters = self._parameters()
        certificate = json.loads(self.certificate_.to_json())
        meta = {
            "estimator": type(self).__name__,
            "certificate": certificate,
            "plan": certificate["plan"],
            "schema": to_json("the schema", self.schema_),
            "target": to_json("classes", self.target_),
            "parameters": {name: to_json(name, value) for name, value in parameters.items()},
            "has_names": hasattr(self, "feature_names_in_"),
            "learning_rate": self.learning_rate_,
        }
        export(path, self.model_.state_dict(), meta)

    def _parameters(self) -> dict[str, Any]:
        """What a file keeps of the parameters."""
        given = self.get_params(deep=False)
        return {name: value for name, value in given.items() if name not in self._unsaved}

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        """The network's outputs for a table, shape (rows, outputs)."""
        check_is_fitted(self)
        table = self._checked_X(X, reset=False)
        model: nn.Module = self.model_
        with torch.no_grad():
            outputs = [model(encoded(self.schema_, part).double()) for part in parts(table)]
        return torch.cat(outputs).numpy()

    def _started(
        self,
        schema: Schema,
        data: Data,
        certificate: Certificate,
        asked: dict[str, Any],
        folder: FitFolder | None,
        ledger: Ledger | None,
    ) -> Start:
        """Pay, then release what is needed before the training."""
        seed = self._seed()
        model_seed = secrets.randbits(63) if seed is None else seed
        start = Start(asked, certificate, schema, None, seed, model_seed)
        self._try_out(start, data)
        if folder is not None:
            folder.prepare()
        # The order is: pay, release bounds, write start.json, train. Whatever is on the disk or in the
        # caller's hands was therefore paid for. A crash before start.json leaves nothing of what was
        # released, and nothing to resume: the payment is lost, not spent twice. From start.json on, a
        # resumed fit reads what was released, and comes here no more.
        if ledger is not None:
            failure = 0.0 if certificate.confidence is None else 1 - certificate.confidence
            ledger.spend(certificate.plan, f"{type(self).__name__}.fit", failure=failure)
        found, of_target = self._released_bounds(schema, data, certificate, seed)
        return replace(start, schema=found, found=of_target)

    def _try_out(self, start: Start, data: Data) -> None:
        """Raise now what would be raised for these settings and values after paying for them."""
        known = start.schema.with_bounds(dict.fromkeys(start.schema.unbounded, _ANY))
        target = self._target(data.y, _ANY if self._target_column() else None)
        for part in parts(data.table):
            known.encode(part)
        self._start(known, target.outputs, start.model_seed)
        self._rate(start.certificate.plan, start.schema)
        if self.radius is not None:
            positive("radius", self.radius)

    def _released_bounds(
        self, schema: Schema, data: Data, certificate: Certificate, seed: int | None
    ) -> tuple[Schema, tuple[float, float] | None]:
        """The schema with all bounds, and the target's; what is unknown is released as the plan says."""
        if not self._needed(schema):
            return schema, None
        columns = [schema.numbers(data.table)]
        if self._target_column():
            columns.append(np.asarray(data.y, float)[:, None])
        event, *_ = certificate.plan.extra  # the others are the caller's
        if not isinstance(event, GaussianRelease) or event.what != WHAT:
            raise PlanError(f"bounds are a Gaussian release, but the plan pays for {event}.")
        generator = Generator.secure() if seed is None else Generator.seeded(seed)
        low, high, paid = private_bounds(
            np.concatenate(columns, axis=1),
            mu=event.mu,
            relation=str(certificate.plan.relation),
            generator=generator.spawn("bounds"),
        )
        if paid != (event,):
            raise PlanError(f"{paid} was released, but the plan pays for {event}.")
        pairs = list(zip(low.tolist(), high.tolist(), strict=True))
        known = dict(zip(schema.unbounded, pairs, strict=False))
        return schema.with_bounds(known), pairs[-1] if self._target_column() else None

    def _asked(
        self, schema: Schema, units: int, is_users: bool, extra: Sequence[Event]
    ) -> dict[str, Any]:
        """What a resumed fit must have again; its seed is compared by itself."""
        kept = {name: to_json(name, value) for name, value in self._parameters().items()}
        columns = to_json("columns", schema.names)
        events = [event.to_dict() for event in extra]
        who = "user" if is_users else "example"
        rest = {"columns": columns, "units": units, "unit": who, "extra": events}
        return {"estimator": type(self).__name__, **kept, **rest}

    def _resumed(self, start: Start, asked: dict[str, Any]) -> Start:
        start.check_same(asked)
        given = self.random_state
        is_number = isinstance(given, int | np.integer)
        if (given is None) != (start.seed is None) or (is_number and int(given) != start.seed):
            raise PlanError(
                "the folder holds a fit with another random_state, or with none. Give the same again."
            )
        return start

    def _declared(self, schema: Schema, start: Start) -> tuple[str, ...]:
        """What the certificate says of bounds and categories that were not released."""
        is_target_declared = start.found is None and not _is_classifier(self)
        is_declared = len(schema.unbounded) < len(schema.columns)
        return (_DECLARED,) if is_declared or is_target_declared else ()

    def _start(self, schema: Schema, outputs: int, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._network(schema, outputs)


def _is_classifier(estimator: Any) -> bool:
    return estimator.__sklearn_tags__().estimator_type == "classifier"
