"""From files to what an estimator is given: records, targets, users, and what is declared of them."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from antiphon.commands.train_request import EXAMPLE, TrainRequest, estimator_name
from antiphon.errors import DataError, PlanError
from antiphon.plans import Event, delta_of, event_from_dict
from antiphon.tables.data import Column, Schema, check_columns, load, read_table, read_toml, typed

__all__ = ["TrainingData", "collect"]

_MOST_CLASSES = 50  # without a declaration: more are numbers, or names of records
_LARGEST_DELTA = 0.01
_TARGET, _USER = "\0target", "\0user"  # no column of a file is called so


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """Everything that is known before training.

    Attributes:
        X: Records, one column per column of the schema.
        y: Targets.
        users: The user of each record, or None.
        schema: Of the columns that are learned from; numbers without bounds are found privately.
        classes: Declared labels, or None.
        target_bounds: Of a regression: a pair, or "private".
        task: "classification" or "regression".
        target: What the target is called.
        test: Public records with their targets, or None.
        notes: What the user should know.
        released: What bounds in the file have cost before, to be counted in.
    """

    X: Any
    y: NDArray[Any]
    users: NDArray[Any] | None
    schema: Schema
    classes: tuple[Any, ...] | None
    target_bounds: Any
    task: str
    target: str
    test: tuple[Any, NDArray[Any]] | None
    notes: tuple[str, ...] = ()
    released: tuple[Event, ...] = ()

    @property
    def units(self) -> NDArray[np.int64]:
        """The number of every record's unit: its own, or its user's."""
        if self.users is None:
            return np.arange(len(self.y))
        return np.unique(self.users.astype(str), return_inverse=True)[1]

    @property
    def digest(self) -> str:
        """Of all records, targets and users, by which a resumed run knows its table again."""
        frame = self.X.assign(**{_TARGET: self.y, _USER: self.units})
        hashes = pd.util.hash_pandas_object(frame, index=False).to_numpy()
        return hashlib.sha256(hashes.tobytes()).hexdigest()


def collect(asked: TrainRequest) -> TrainingData:
    """Read the table, and the public one for tests, as they were declared.

    Guarantee:
        Every cell is read by what was declared of its column, never by what stands in other rows, so that
        neighbouring tables stay neighbours. The list of labels of an undeclared target is the one
        exception: it is taken to be public, and the certificate says so.
    """
    found = _example() if asked.table is None else _of_files(asked)
    units = int(found.units.max()) + 1
    delta = delta_of(None, units)
    if asked.delta is None and delta > _LARGEST_DELTA:
        raise DataError(
            f"the table has {units} {'records' if found.users is None else 'users'}: with so few, "
            f"δ = n^-1.1 = {delta:.2g} promises nothing. At least {_fewest()} are needed, or a δ of "
            "your own (--delta)."
        )
    return found


def _fewest() -> int:
    return int(np.ceil(_LARGEST_DELTA ** (-1 / 1.1)))


def _example() -> TrainingData:
    """The data that scikit-learn ships, with its test part declared public."""
    data, names = load(EXAMPLE), np.array(["malignant", "benign"])
    columns = list(data.schema.names)
    return TrainingData(
        X=pd.DataFrame(data.X_train, columns=columns),
        y=names[data.y_train],
        users=None,
        schema=data.schema,
        classes=tuple(sorted(names.tolist())),
        target_bounds=None,
        task="classification",
        target="diagnosis",
        test=(pd.DataFrame(data.X_test, columns=columns), names[data.y_test]),
        notes=("no table was named: these are the breast-cancer data of scikit-learn.",),
    )


def _of_files(asked: TrainRequest) -> TrainingData:
    frame = read_table(Path(str(asked.table)))
    target = str(asked.target)
    beside = [name for name in (target, asked.user) if name is not None]
    check_columns(beside, frame.columns, str(asked.table))
    declared, unused = _declared(asked, [str(name) for name in frame.columns if name not in beside])
    schema = replace(declared, columns=tuple(c for c in declared.columns if c.name not in beside))
    goal = next((c for c in declared.columns if c.name == target), None)
    task = asked.task or _task(asked, goal)
    estimator_name(asked.model, task)  # refuses what there is none for
    notes = (f"columns that are not used: {', '.join(unused)}.",) if unused else ()
    y = _targets(frame[target], task, goal, str(asked.table))
    test = None if asked.test is None else _public(asked, frame, schema, task, goal)
    if test is not None and task == "classification":
        _check_labels(test[1], y if goal is None or goal.categories is None else goal.categories)
    return TrainingData(
        X=typed(frame, schema),
        y=y,
        users=None if asked.user is None else _users(frame[asked.user], str(asked.table)),
        schema=schema,
        classes=None if goal is None else goal.categories,
        target_bounds=_target_bounds(asked, goal),
        task=task,
        target=target,
        test=test,
        notes=notes,
        released=_released(asked),
    )


def _public(
    asked: TrainRequest, frame: Any, schema: Schema, task: str, goal: Column | None
) -> tuple[Any, NDArray[Any]]:
    """The records that were declared public; not those that are learned from."""
    path, target = Path(str(asked.test)), str(asked.target)
    public = read_table(path)
    if path.samefile(str(asked.table)) or public.equals(frame):
        raise PlanError(
            f"--test {path} is the table that is learned from. A score on it would tell of these very "
            "records: give public records, or pay for a score with --evaluate."
        )
    check_columns([*schema.names, target], public.columns, str(path))
    return typed(public, schema), _targets(public[target], task, goal, str(path))


def _check_labels(labels: NDArray[Any], known: Any) -> None:
    if not np.isin(labels.astype(str), np.asarray(known).astype(str)).all():
        raise DataError(
            "the public table has labels that are not among the classes. Leave these rows out, or declare "
            "all classes in the bounds file."
        )


def _users(values: Any, where: str) -> NDArray[Any]:
    """Whose record it is; records without a user would otherwise count as one user."""
    if _empty(values).any():
        raise DataError(
            f"the column {values.name!r} of {where}, which names users, has empty cells. Name every "
            "record's user, or leave these rows out."
        )
    return np.asarray(values.to_numpy())


def _empty(values: Any) -> Any:
    return pd.isna(values) | (values.astype(str).str.strip() == "")


def _released(asked: TrainRequest) -> tuple[Event, ...]:
    """The release that found the file's bounds, if `antiphon schema --private` did."""
    values = {} if asked.bounds == "private" else read_toml(asked.bounds)
    if "released" not in values:
        return ()
    if asked.user is not None:
        raise PlanError(
            f"the bounds in {asked.bounds} were found privately for single records, but users are to be "
            "protected. Declare bounds from public knowledge."
        )
    return (event_from_dict(values["released"]),)


def _declared(asked: TrainRequest, features: list[str]) -> tuple[Schema, list[str]]:
    """What the file says, with the table's other columns as numbers; and columns that are not used."""
    missing = asked.missing
    if asked.bounds == "private":
        columns = tuple(Column(name) for name in features)
        return Schema(columns, missing=missing or "raise"), []
    schema = Schema.from_toml(asked.bounds)
    if missing is not None:
        schema = replace(schema, missing=missing)
    known = {column.name: column for column in schema.columns}
    others = [name for name in features if name not in known]
    lacking = [n for n in known if n not in (*features, asked.target, asked.user)]
    if lacking:
        raise PlanError(
            f"{asked.bounds} declares {lacking}, but the table's columns are {features}. Correct the names "
            "there."
        )
    if Schema.lists_columns(asked.bounds):
        return schema, others
    extra = tuple(Column(name) for name in others)
    return replace(schema, columns=(*schema.columns, *extra)), []


def _task(asked: TrainRequest, goal: Column | None) -> str:
    """What is declared of the target decides, never what stands in the table."""
    is_number = asked.target_bounds is not None or (goal is not None and goal.bounds is not None)
    return "regression" if is_number else "classification"


def _target_bounds(asked: TrainRequest, goal: Column | None) -> Any:
    if asked.target_bounds is not None:
        return asked.target_bounds
    return "private" if goal is None or goal.bounds is None else goal.bounds


def _targets(values: Any, task: str, goal: Column | None, where: str) -> NDArray[Any]:
    name = str(values.name)
    if task == "regression":
        column = Schema((Column(name),))
        numbers = column.numbers(values.to_frame())[:, 0]
        if np.isnan(numbers).any():
            raise DataError(
                f"the target {name!r} of {where} has cells that are empty or no number. Leave their rows "
                "out; if it holds labels, use --task classification."
            )
        return numbers
    if _empty(values).any():
        raise DataError(f"the target {name!r} of {where} has empty cells. Leave their rows out.")
    if goal is not None and goal.categories is not None:
        return goal.matched(values)
    labels = values.to_numpy()
    if len(np.unique(labels.astype(str))) > _MOST_CLASSES:
        raise DataError(
            f"the target {name!r} of {where} has more than {_MOST_CLASSES} different values. To predict a "
            "number, use --task regression; to predict one of many labels, declare them in the bounds file."
        )
    return labels
