"""The options of `antiphon train` that fix a run, kept with it so that it can be resumed."""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, final

from antiphon.errors import PlanError, StateError

__all__ = ["EXAMPLE", "TrainRequest", "estimator_name"]

EXAMPLE = "breast-cancer"  # the table that is used where none is named
_EXAMPLE_EPSILON = 2.0
_ESTIMATORS = {
    ("kan", "classification"): "PrivateKANClassifier",
    ("kan", "regression"): "PrivateKANRegressor",
    ("mlp", "classification"): "PrivateMLPClassifier",
    ("mlp", "regression"): "PrivateMLPRegressor",
    ("logistic", "classification"): "PrivateLogisticRegression",
    ("relu", "regression"): "PrivateReLURegressor",
}


def estimator_name(model: str, task: str) -> str:
    """The class in `antiphon.tables.estimators` that does it."""
    name = _ESTIMATORS.get((model, task))
    if name is None:
        able = sorted(model for model, its in _ESTIMATORS if its == task)
        raise PlanError(f"--model {model} does not do {task}: use --model {' or '.join(able)}.")
    return name


@final
@dataclass(frozen=True)
class TrainRequest:
    """The options of one training, with absolute paths.

    Attributes:
        table: The file, or None for the data that scikit-learn ships.
        target: Its column to predict.
        epsilon: ε of everything that is released.
        delta: δ; None is n^-1.1.
        model: "kan", "mlp", "logistic" or "relu".
        task: "classification" or "regression"; None follows from the bounds file, else classification.
        bounds: "private", or the bounds file.
        target_bounds: Of a regression, if they are not in the bounds file.
        missing: What a missing number does; None follows from the bounds file, else "raise".
        user: Column that says whose record it is.
        mechanism: Name of the mechanism or its family.
        steps: Noisy steps, if not the estimator's own number.
        batch_size: Expected, if not the estimator's own.
        test: A public table.
        evaluate: Share of the records that is held out for a noisy score.
        ledger: The ledger that pays.
        seed: Of all randomness: not for release.
    """

    table: str | None = None
    target: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    model: str = "kan"
    task: str | None = None
    bounds: str = "private"
    target_bounds: tuple[float, float] | None = None
    missing: str | None = None
    user: str | None = None
    mechanism: str = "auto"
    steps: int | None = None
    batch_size: int | None = None
    test: str | None = None
    evaluate: float | None = None
    ledger: str | None = None
    seed: int | None = None

    @classmethod
    def of(cls, options: Any) -> "TrainRequest":
        """From parsed arguments."""
        values = {field.name: getattr(options, field.name) for field in fields(cls)}
        for name in ("table", "bounds", "test", "ledger"):
            if values[name] not in (None, "private"):
                values[name] = str(Path(values[name]).absolute())
        return cls(**values).completed()

    def completed(self) -> "TrainRequest":
        """With what the example needs, or an error that says what is lacking."""
        if self.table is None:
            theirs = {"target": self.target, "user": self.user, "test": self.test}
            given = [f"--{name}" for name, value in theirs.items() if value is not None]
            if given or self.bounds != "private" or self.evaluate is not None:
                raise PlanError(
                    f"no TABLE was named, but {', '.join(given) or '--bounds or --evaluate'} is about one. "
                    "Name the table; without one the breast-cancer data of scikit-learn are used as they "
                    "are."
                )
            return replace(self, epsilon=_EXAMPLE_EPSILON if self.epsilon is None else self.epsilon)
        if self.target is None:
            raise PlanError("say what is to be predicted: --target COLUMN.")
        if self.epsilon is None:
            raise PlanError(
                "say how much privacy may be spent: --epsilon 1 (smaller protects better; 1 is strong, "
                "above 8 protects little)."
            )
        if self.test is not None and self.evaluate is not None:
            raise PlanError(
                "--test shows a score on public records, --evaluate pays for one on held-out private "
                "records: give one of the two."
            )
        return self

    @property
    def name(self) -> str:
        """What the table is called on the page."""
        return f"{EXAMPLE} (scikit-learn)" if self.table is None else Path(self.table).name

    def to_json(self) -> str:
        """For the run's secret folder: it may hold a seed."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str, where: Path) -> "TrainRequest":
        """What `to_json` wrote."""
        try:
            values = json.loads(text)
            if values["target_bounds"] is not None:
                values["target_bounds"] = tuple(values["target_bounds"])
            return cls(**values)
        except (KeyError, TypeError, ValueError):
            raise StateError(
                f"{where} does not say what was asked for: it was changed, or another version wrote it. "
                "Start a new run, which costs a new ε."
            ) from None  # the text may hold a seed
