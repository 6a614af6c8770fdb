"""One training from a table to a folder: hold out, fit, score, describe, write; resumable in between."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from antiphon import reports
from antiphon.certificates import Ledger
from antiphon.commands import scoring
from antiphon.commands.run_folder import RunFolder
from antiphon.commands.train_request import TrainRequest, estimator_name
from antiphon.commands.training_data import TrainingData, collect
from antiphon.errors import AntiphonError, DataError, PlanError
from antiphon.plans import GaussianRelease, delta_of
from antiphon.releases import mu_of_share
from antiphon.tables import estimators
from antiphon.writing import write_whole

__all__ = ["Result", "train"]

_SCORE_SHARE = 0.05  # of the budget, for a noisy score
_POINTS = 40  # of a learning curve
_FEWEST = 20  # units to learn from, and to be scored on


@final
class Result(NamedTuple):
    """What a training has left.

    Attributes:
        folder: Of the files.
        estimator: Fitted.
        report: All that stands on the page.
    """

    folder: Path
    estimator: Any
    report: dict[str, Any]


def train(request: TrainRequest | None, out: Path, tell: Callable[[str], None]) -> Result:
    """Train as request, in a new folder; or resume the run that is there.

    Args:
        request: None resumes the run in ``out``.
        out: The folder.
        tell: Is given remarks for the user.

    Guarantee:
        What is in the folder when this returns may be shown: weights, certificate, page. What was secret is
        removed. If it fails before anything was released, the folder is as it was.
    """
    if request is None:
        folder = RunFolder.open(out)
    else:
        data = collect(request)  # errors leave no folder behind
        folder = RunFolder.create(out, request, data.digest)
    try:
        if request is None:
            data = collect(folder.request)
            folder.check(data.digest)
        result = _Job(folder, data, tell).run()
    except BaseException:
        if folder.has_begun or folder.is_resumed:
            folder.close()
        else:
            folder.discard()
        raise
    folder.finish()
    return result


class _Job:
    """The steps of one training."""

    def __init__(self, folder: RunFolder, data: TrainingData, tell: Callable[[str], None]) -> None:
        self.folder, self.request, self.data = folder, folder.request, data
        for note in data.notes:
            tell(note)

    def run(self) -> Result:
        """Everything, in an order in which each step can be repeated after a crash."""
        m, generator = self.data, self.folder.generator
        kept = _coins(m, self.request.evaluate, generator.spawn("held out"))
        units = len(np.unique(m.units[kept]))
        delta = delta_of(self.request.delta, units)
        estimator, event = self._estimator(delta), self._event(delta)
        self._fit(estimator, kept, (*m.released, *(() if event is None else (event,))))
        # First what took the longest: it is not lost if anything below fails.
        estimator.save(self.folder.path / "model.safetensors")
        certificate = estimator.certificate_.to_json() + "\n"
        write_whole(self.folder.path / "certificate.json", certificate)
        evaluation = None
        if m.test is not None:
            evaluation = scoring.on_public(estimator, *m.test)
        elif event is not None:
            # The same key and the same model give the same noisy score: a resumed run tells nothing new.
            users = None if m.users is None else m.users[~kept]
            source = generator.spawn("score")
            evaluation = scoring.on_held_out(
                estimator, m.X[~kept], m.y[~kept], users, event, source
            )
        return self._written(estimator, evaluation)

    def _estimator(self, delta: float) -> Any:
        m, request = self.data, self.request
        name = estimator_name(request.model, m.task)
        options: dict[str, Any] = {
            "epsilon": request.epsilon,
            "delta": delta,
            "bounds": m.schema,
            "mechanism": request.mechanism,
            "random_state": request.seed,
        }
        if m.task == "classification":
            options["classes"] = m.classes
        else:
            options["target_bounds"] = m.target_bounds
        given = {"steps": request.steps, "batch_size": request.batch_size}
        options |= {key: value for key, value in given.items() if value is not None}
        return getattr(estimators, name)(**options)

    def _event(self, delta: float) -> GaussianRelease | None:
        if self.request.evaluate is None:
            return None
        mu = mu_of_share(float(self.request.epsilon or 0), delta, _SCORE_SHARE)
        unit = "record" if self.request.user is None else "user"
        return GaussianRelease(mu, scoring.WHAT[self.data.task].format(unit=unit))

    def _fit(self, estimator: Any, kept: NDArray[np.bool_], extra: tuple[Any, ...]) -> None:
        m, request = self.data, self.request
        ledger = None if request.ledger is None else Ledger(Path(request.ledger))
        try:
            estimator.fit(
                m.X[kept],
                m.y[kept],
                user=None if m.users is None else m.users[kept],
                extra=extra,
                checkpoint=self.folder.checkpoint,
                resume=self.folder.has_begun,
                callback=None if m.test is None else self._watch,
                ledger=ledger,
            )
        except AntiphonError:
            raise
        except ValueError as error:  # of scikit-learn's checks, which quote no record
            raise DataError(str(error)) from None

    def _watch(self, step: int, estimator: Any) -> None:
        """A point of the learning curve, on public records."""
        every = max(1, estimator.plan_.steps // _POINTS)
        if self.data.test is None or (step % every and step != estimator.plan_.steps):
            return
        rows = self.folder.curve()
        found = scoring.scores(estimator, *self.data.test)
        rows[step] = {name: value for name, value in found.items() if name != scoring.COMMONEST}
        self.folder.keep_curve(rows)

    def _written(self, estimator: Any, evaluation: dict[str, Any] | None) -> Result:
        m, folder = self.data, self.folder
        found = set(m.schema.unbounded)
        if m.released:
            found |= {c.name for c in m.schema.columns if c.kind == "number"}
        sources = {
            name: "private" if name in found else "declared" for name in estimator.schema_.names
        }
        report = reports.describe(
            estimator,
            table=self.request.name,
            target=m.target,
            bounds_from=sources,
            learning=[{"step": step, **row} for step, row in sorted(folder.curve().items())],
            evaluation=evaluation,
        )
        reports.write(report, folder.path)
        return Result(folder.path, estimator, report)


def _coins(m: TrainingData, share: float | None, generator: Any) -> NDArray[np.bool_]:
    """Which records are learned from: one secret coin for each record, or for each user."""
    if share is None:
        return np.ones(len(m.y), dtype=bool)
    place = m.units
    words = generator.words(int(place.max()) + 1, step=0).numpy()
    uniform = (words.view(np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    kept = np.asarray(uniform >= share)
    least = min(int(kept.sum()), int((~kept).sum()))
    if least < _FEWEST:  # before anything is paid for
        raise PlanError(
            f"--evaluate {share:g} leaves {least} of {len(kept)} to one of the two parts, training and "
            f"score; each needs {_FEWEST} at least. Choose another share, or none."
        )
    return kept[place]
