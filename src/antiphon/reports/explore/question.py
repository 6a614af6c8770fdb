"""What the page asks: a state of its sliders, read from text and checked with words for each control."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from antiphon.accounting import supported_amplitude
from antiphon.errors import AntiphonError, PlanError
from antiphon.mechanisms import AbstractMechanism
from antiphon.participation import AbstractParticipation, FixedEpochs, Once, Relation
from antiphon.plans import FixedSize, Plan, Poisson, sampling_of, steps_of

__all__ = ["MOST_STEPS", "SAMPLINGS", "Question", "Refused", "usual_participation"]

SAMPLINGS = ("poisson", "shuffled", "balls-in-bins", "fixed-size", "one-pass", "full-batch")
MOST_STEPS = 20_000  # beyond, mechanisms take too long to optimise while somebody waits
_MOST_RECORDS = 10**9
_NUMBERS = {"n": int, "batch": int, "epochs": float, "epsilon": float, "delta": float, "lam": float}


@final
class Refused(PlanError):
    """A question without an answer.

    Attributes:
        field: The control that it is about.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(" ".join(text.split()))
        self.field = field


@final
@dataclass(frozen=True)
class Question:
    """One state of the sliders.

    Attributes:
        n: Records.
        batch: Expected size of a batch.
        epochs: Passes over the data.
        epsilon: ε to be proved.
        delta: δ to be proved.
        lam: λ of the λ-CGD that is shown beside the others.
        sampling: One of `SAMPLINGS`.
        relation: How neighbours differ; "" for add-remove, and zero-out where batches are given by row.

    Example:
        >>> asked = Question.read({"n": "6000", "batch": "60", "epochs": "2", "epsilon": "2",
        ...                        "delta": "1e-5", "lam": "0.9", "sampling": "poisson"})
        >>> asked.plan("auto").steps
        200
    """

    n: int
    batch: int
    epochs: float
    epsilon: float
    delta: float
    lam: float
    sampling: str = "poisson"
    relation: str = ""

    def __post_init__(self) -> None:
        self._check("n", 1 <= self.n <= _MOST_RECORDS, "1 to 1 000 000 000")
        self._check("batch", self.batch >= 1, "at least 1")
        self._check("epochs", 0 < self.epochs < math.inf, "above 0")
        self._check("epsilon", 0 < self.epsilon <= 100, "above 0, at most 100")
        self._check("delta", 0 < self.delta <= 0.1, "above 0, at most 0.1")
        self._check("lam", 0 <= self.lam <= 1, "0 to 1")
        self._check("sampling", self.sampling in SAMPLINGS, f"one of {', '.join(SAMPLINGS)}")
        allowed = ("", *Relation)
        self._check("relation", self.relation in allowed, f"empty or one of {', '.join(Relation)}")

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Question":
        """The question in a query's or a form's values; each refusal names its control."""
        unknown = set(values) - set(cls.__dataclass_fields__)
        if unknown:
            name = min(map(str, unknown))
            raise Refused(name[:40], f"there is no parameter {name[:40]!r}.")
        found: dict[str, Any] = {name: _number(name, values.get(name)) for name in _NUMBERS}
        for name in ("sampling", "relation"):
            if name in values:
                found[name] = str(values[name])
        return cls(**found)

    def plan(self, mechanism: AbstractMechanism | str) -> Plan:
        """The plan without noise, or the library's reason why there is none, by its control."""
        try:
            drawn = sampling_of(self.sampling, self.n, self.batch)
        except AntiphonError as error:
            raise Refused("batch", str(error)) from error
        steps = steps_of(self.epochs, None, self.n, drawn.expected_batch(self.n))
        if steps > MOST_STEPS:
            raise Refused(
                "epochs",
                f"{steps:,} steps are more than the {MOST_STEPS:,} that this page answers for: take fewer "
                "epochs or larger batches, or ask antiphon plan.",
            )
        relation = self.relation or (Relation.ADD_REMOVE if drawn.own_coin else Relation.ZERO_OUT)
        try:
            plan = Plan(
                n=self.n, sampling=drawn, steps=steps, mechanism=mechanism, relation=relation
            )
        except AntiphonError as error:
            raise Refused("epochs", str(error)) from error
        try:
            if not isinstance(drawn, FixedSize):  # which has pairs of its own for every relation
                supported_amplitude(plan)
        except AntiphonError as error:
            raise Refused("relation", str(error)) from error
        return plan

    def _check(self, name: str, is_fine: bool, allowed: str) -> None:
        if not is_fine:
            raise Refused(name, f"{name} must be {allowed}; got {getattr(self, name)}.")


def usual_participation(plan: Plan) -> AbstractParticipation:
    """The participations that mechanisms are optimised for; noise is accounted for as it is drawn."""
    if not isinstance(plan.sampling, Poisson | FixedSize):
        return plan.participation
    times = max(1, round(plan.steps * plan.expected_batch / plan.n))
    return Once() if times == 1 else FixedEpochs(times, max(1, plan.steps // times))


def _number(name: str, given: Any) -> float | int:
    """The value as the control's kind of number; 6e4 is a whole number too."""
    try:
        value = float(given) if isinstance(given, str | int | float) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or isinstance(given, bool):
        raise Refused(name, f"{name} must be a number; got {str(given)[:40]!r}.")
    if _NUMBERS[name] is int and value != math.floor(value):
        raise Refused(name, f"{name} must be a whole number; got {str(given)[:40]!r}.")
    return _NUMBERS[name](value)
