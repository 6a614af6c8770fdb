"""The mechanisms that the page compares, and what each is called, keeps in memory and leaves as error."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from antiphon.errors import AntiphonError
from antiphon.mechanisms import BLT, AbstractMechanism, Banded, Independent, LambdaCGD, optimize
from antiphon.participation import AbstractParticipation, FixedEpochs, MinSeparation, Once
from antiphon.plans import FixedSize, Plan, Poisson
from antiphon.reports.explore.question import Refused, usual_participation

__all__ = ["Candidate", "best_lambda", "candidate", "mechanism_of", "steps_shown"]

_POINTS = 80  # of a curve over the steps
_LAGS = 40


@final
@dataclass(frozen=True)
class Candidate:
    """A mechanism for a plan.

    Attributes:
        key: Its row: "independent", "slider", "best", "blt" or "banded".
        label: What to call it.
        mechanism: The mechanism.
        python: An expression that makes it, after ``import antiphon as ap``.
        copies: Tensors of the model's size that its noise keeps.
    """

    key: str
    label: str
    mechanism: AbstractMechanism
    python: str
    copies: int

    def shape(self, T: int) -> dict[str, Any]:
        """Errors of prefix sums at unit noise, over the steps and as single numbers; noise taken back."""
        errors = self.mechanism.errors(T)
        taken_back = -self.mechanism.inverse_column(min(T, _LAGS + 1))[1:]  # type: ignore[attr-defined]
        return {
            "error_rms": float(np.sqrt(np.mean(errors**2))),
            "error_max": float(errors.max()),
            "errors": [float(errors[step - 1]) for step in steps_shown(T)],
            "taken_back": [round(float(share), 9) + 0.0 for share in taken_back],
        }


def steps_shown(T: int) -> list[int]:
    """The steps at which curves are drawn, the first and the last included; more of them at the start."""
    if T <= _POINTS:
        return [*range(1, T + 1)]
    spaced = [np.linspace(1, T, _POINTS // 2), np.geomspace(1, T, _POINTS // 2)]
    return sorted({int(step) for step in np.concatenate(spaced).round()})


def candidate(key: str, plan: Plan, lam: float) -> Candidate:
    """The candidate of this key for a plan; ``lam`` is that of the λ-CGD rows."""
    mechanism = mechanism_of(key, plan, lam)
    match mechanism:
        case Independent():
            return Candidate(key, "independent noise (DP-SGD)", mechanism, '"independent"', 0)
        case LambdaCGD(lam):
            name = f"λ-CGD, {'best λ found' if key == 'best' else 'your λ'}: {lam:.4g}"
            return Candidate(
                key, name, mechanism, f"ap.mechanisms.LambdaCGD({lam!r})", int(lam > 0)
            )
        case BLT(_, decays):
            count = len(decays)
            label = f"BLT, {count} {'buffer' if count == 1 else 'buffers'}"
        case Banded(coef):
            count = len(coef) - 1
            label = f"banded, {len(coef)} bands"
        case _:  # pragma: no cover - the families above are all there are
            raise AssertionError
    return Candidate(key, label, mechanism, _optimised(key, plan), count)


def mechanism_of(key: str, plan: Plan, lam: float) -> AbstractMechanism:
    """The mechanism of a row, or a refusal."""
    match key:
        case "independent":
            return Independent()
        case "slider" | "best":
            return LambdaCGD(lam)
        case "blt" | "banded":
            return _best(key, plan.steps, usual_participation(plan), _bands(plan))
        case _:
            raise Refused("mechanism", f"there is no mechanism {key[:40]!r} on this page.")


def best_lambda(plan: Plan) -> float | None:
    """The best λ by closed form, where a record's steps are known up to its place; else None."""
    if isinstance(plan.sampling, Poisson | FixedSize) or plan.steps == 1:
        return None
    found = optimize("lambda-cgd", plan.steps, plan.participation).mechanism
    return abs(round(found.lam, 4)) if isinstance(found, LambdaCGD) else None


def _bands(plan: Plan) -> int | None:
    """A band reaches to a record's next participation; where that is far or unknown, 64 steps back."""
    match usual_participation(plan):
        case FixedEpochs(times, apart) | MinSeparation(times, apart) if times > 1:
            return min(64, apart)
        case _:
            return None


@lru_cache(maxsize=64)
def _best(
    family: str, T: int, participation: AbstractParticipation, bands: int | None
) -> AbstractMechanism:
    try:
        width = bands if family == "banded" else None
        return optimize(family, T, participation, bands=width).mechanism
    except AntiphonError as error:
        raise Refused("mechanism", str(error)) from error


def _optimised(family: str, plan: Plan) -> str:
    participation, width = usual_participation(plan), _bands(plan)
    where = "ap.participation." + (
        "Once()" if isinstance(participation, Once) else repr(participation)
    )
    bands = f", bands={width}" if family == "banded" and width is not None else ""
    return f'ap.mechanisms.optimize("{family}", {plan.steps}, {where}{bands}).mechanism'
