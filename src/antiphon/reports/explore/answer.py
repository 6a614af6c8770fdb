"""What the page shows, as a stream: what has a closed form at once, then what takes a second each.

Every noise multiplier is proved by an accountant that is named beside it. Accountants without Monte Carlo
answer here; the first proof of a row is often the plain Gaussian one, which a later one undercuts.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import pairwise
from typing import Any

from antiphon.accounting import is_independent, noise_by
from antiphon.errors import AntiphonError, UnsupportedError
from antiphon.mechanisms import AbstractMechanism, LambdaCGD
from antiphon.participation import Relation
from antiphon.plans import BallsInBins, FixedSize, Plan, Poisson, ShuffledEpochs
from antiphon.reports.explore.candidates import Candidate, best_lambda, candidate, steps_shown
from antiphon.reports.explore.question import Question, usual_participation

__all__ = ["ROUTES", "answers", "proved_noise", "routes"]

Turn = Callable[[], AbstractContextManager[None]]

ROUTES = {
    "gaussian": "exact Gaussian accounting, no amplification",
    "conditioned": "Gaussian accounting, averaged over participations",
    "pld": "privacy loss distributions",
    "moments": "moments of the likelihood ratio",
    "shuffling": "amplification by the secret order of one pass",
}
# λ at which noise × error is computed: each takes up to seconds where batches are drawn anew.
_FEW = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98)
_MANY = (*(round(0.05 * i, 2) for i in range(1, 19)), 0.92, 0.94, 0.96, 0.97, 0.98, 0.99, 0.995)
_SAME = 1.01  # products this close count as equal: then memory decides


def answers(question: Question, turn: Turn = nullcontext) -> Iterator[dict[str, Any]]:
    """Everything that is known for a question, each part as soon as it is.

    Args:
        question: A state of the sliders.
        turn: Entered around each computation; may raise to end it all.

    Yields:
        JSON objects of a ``kind``: "plan" (once), "row" (for each mechanism, again whenever less noise is
        proved), "lambda" (a point of noise × error over λ), "best" (what is recommended so far), "done".

    Guarantee:
        For each row and point, the accountant named in ``route`` proves (ε, δ) for the plan with that
        mechanism and that noise multiplier.

    Raises:
        Refused: Before the first object, if there is no such plan.
    """
    plan = question.plan("auto")
    keys = _keys(plan)
    yield _head(plan, keys)
    rows: dict[str, dict[str, Any]] = {}
    known: list[Candidate] = []
    for key in keys[:-1] if "best" in keys else keys:
        with turn():
            known.append(candidate(key, plan, question.lam))
            rows[key] = _row(known[-1], plan, question, is_final=False)
        yield rows[key]
    for one in known:
        if rows[one.key]["is_final"]:
            continue
        with turn():
            rows[one.key] = _row(one, plan, question, is_final=True)
        yield rows[one.key]
        yield _best(rows, is_final=False)
    if "best" in keys:
        points = {0.0: rows["independent"], question.lam: rows["slider"]}
        for lam in _lambdas(plan, points):
            with turn():
                one = candidate("best", plan, lam)
                points[lam] = _row(one, plan, question, is_final=True)
            yield _point(lam, points[lam])
        found = [lam for lam in points if lam > 0 and points[lam]["product"] is not None]
        if found:
            best = min(found, key=lambda lam: points[lam]["product"])
            with turn():
                rows["best"] = _row(candidate("best", plan, best), plan, question, is_final=True)
            yield rows["best"]
    yield _best(rows, is_final=True)
    yield {"kind": "done"}


def routes(plan: Plan) -> tuple[list[str], list[str]]:
    """The accountants to ask: those that answer at once, and those that take up to seconds.

    Left out are those that would take minutes, or that another undercuts.
    """
    independent = is_independent(plan.known_mechanism(), plan.steps)
    match plan.sampling:
        case Poisson() if plan.relation == Relation.REPLACE_ONE:
            return ["gaussian"], ["conditioned"]
        case Poisson():
            return ["gaussian"], ["pld" if independent else "moments"]
        case FixedSize():
            return ["gaussian"], ["pld", "conditioned"] if independent else ["conditioned"]
        case ShuffledEpochs():
            return ["gaussian", "conditioned"], ["shuffling"] if independent else []
        case BallsInBins():
            return ["gaussian", "conditioned"], []
        case _:
            return ["gaussian"], []


def proved_noise(plan: Plan, question: Question, *, is_final: bool) -> tuple[float, str]:
    """The least noise that the accountants of this page prove for the plan, and which one.

    Raises:
        UnsupportedError: If none has a bound, with the reason of each.
    """
    at_once, later = routes(plan)
    found, refusals = [], []
    for route in (*at_once, *later) if is_final else at_once:
        noise = _noise(route, plan, question.epsilon, question.delta)
        if isinstance(noise, str):
            refusals.append(f"{route}: {noise}")
        else:
            found.append((noise, route))
    if not found:
        raise UnsupportedError("no quick accountant can bound this plan. " + " ".join(refusals))
    return min(found)


@lru_cache(maxsize=4096)
def _noise(route: str, plan: Plan, epsilon: float, delta: float) -> float | str:
    """The noise, or the reason why this accountant has none."""
    try:
        return float(noise_by(route, plan, epsilon, delta))
    except AntiphonError as refusal:
        return str(refusal)


def _keys(plan: Plan) -> list[str]:
    """The rows: correlated ones only if some step can take noise back at a gain."""
    if plan.steps == 1:
        return ["independent"]
    apart = getattr(usual_participation(plan), "apart", plan.steps)
    families = ["blt", "banded"] if apart > 1 else []
    return ["independent", "slider", *families, "best"]


def _head(plan: Plan, keys: list[str]) -> dict[str, Any]:
    return {
        "kind": "plan",
        "n": plan.n,
        "steps": plan.steps,
        "expected_batch": plan.expected_batch,
        "sampling": str(plan.sampling),
        "relation": str(plan.relation),
        "keys": keys,
        "shown": steps_shown(plan.steps),
        "routes": ROUTES,
        "caveat": _caveat(plan),
    }


def _caveat(plan: Plan) -> str | None:
    """What the quick accountants may miss, for one kind of noise more than for another."""
    match plan.sampling:
        case Poisson() if plan.relation == Relation.REPLACE_ONE:
            return (
                "Tight accounting under replace-one takes minutes, also for independent noise: all rows "
                "are quick upper bounds, and their order may be another once they are certified below."
            )
        case Poisson() | BallsInBins():
            return (
                "For correlated noise the quick accountants give upper bounds: Monte Carlo, below, often "
                "proves less noise."
            )
        case FixedSize():
            return (
                "For correlated noise with fixed-size batches the quick accountants give weak bounds: "
                "certify a row below, or take Poisson batches, which are amplified more."
            )
        case _:
            return None


@lru_cache(maxsize=512)
def _shape(one: Candidate, T: int) -> dict[str, Any]:
    return one.shape(T)


def _row(one: Candidate, plan: Plan, question: Question, *, is_final: bool) -> dict[str, Any]:
    values = _shape(one, plan.steps)
    own = _with(plan, one.mechanism)
    is_final = is_final or not routes(own)[1]
    noise, route, refusal = _proof(own, question, is_final=is_final)
    scale = None if noise is None else noise / plan.expected_batch
    return {
        "kind": "row",
        "key": one.key,
        "label": one.label,
        "python": one.python,
        "lam": one.mechanism.lam if isinstance(one.mechanism, LambdaCGD) else None,
        "copies": one.copies,
        **values,
        "noise": noise,
        "route": route,
        "refusal": refusal,
        "product": None if scale is None else scale * values["error_rms"],
        "product_max": None if scale is None else scale * values["error_max"],
        "is_final": is_final,
    }


def _proof(
    plan: Plan, question: Question, *, is_final: bool
) -> tuple[float | None, str | None, str | None]:
    """Noise and route, or the reasons why there are none."""
    try:
        return *proved_noise(plan, question, is_final=is_final), None
    except UnsupportedError as refusal:
        return None, None, str(refusal) if is_final else None


def _lambdas(plan: Plan, points: dict[float, dict[str, Any]]) -> Iterator[float]:
    """λ to try: a grid, the best by closed form, and two more about the best of the grid."""
    closed = best_lambda(plan)
    is_quick = not routes(_with(plan, LambdaCGD(0.5)))[1]
    grid = _MANY if is_quick else _FEW
    yield from (lam for lam in grid if lam not in points)
    if closed is not None and closed not in points:
        yield closed
    if is_quick:
        return
    ranked = [lam for lam in sorted(points) if points[lam]["product"] is not None]
    if not ranked:
        return
    best = min(ranked, key=lambda lam: points[lam]["product"])
    for low, high in pairwise(ranked):
        if best in (low, high) and high < 1:  # halfway in log(1 − λ), in which the noise is smooth
            yield round(1 - math.sqrt((1 - low) * (1 - high)), 3)


def _with(plan: Plan, mechanism: AbstractMechanism) -> Plan:
    return Plan(plan.n, plan.sampling, plan.steps, mechanism, relation=plan.relation)


def _point(lam: float, row: dict[str, Any]) -> dict[str, Any]:
    names = ("noise", "route", "error_rms", "product")
    return {"kind": "lambda", "lam": lam, **{name: row[name] for name in names}}


def _best(rows: dict[str, dict[str, Any]], *, is_final: bool) -> dict[str, Any]:
    """The row with the smallest noise × error, or one as good with less memory, and why."""
    found = [row for row in rows.values() if row["product"] is not None]
    if not found:
        return {"kind": "best", "key": None, "why": "Nothing is proved.", "is_final": is_final}
    least = min(row["product"] for row in found)
    close = [row for row in found if row["product"] <= _SAME * least]
    best = min(close, key=lambda row: (row["copies"], row["product"]))
    plain = rows["independent"]["product"]
    return {
        "kind": "best",
        "key": best["key"],
        "why": _why(best, None if plain is None else best["product"] / plain),
        "is_final": is_final,
    }


def _why(best: dict[str, Any], ratio: float | None) -> str:
    if best["copies"] == 0 or ratio is None:
        return (
            "Independent noise leaves no more noise in the sums of gradients than any correlated noise "
            "here, and keeps nothing in memory."
        )
    copies = "1 copy" if best["copies"] == 1 else f"{best['copies']} copies"
    return (
        f"It leaves {100 * (1 - ratio):.0f} % less noise in the sums of gradients than independent noise, "
        f"at the same privacy, and keeps {copies} of the model in memory."
    )
