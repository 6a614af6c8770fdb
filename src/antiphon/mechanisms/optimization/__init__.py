"""Finding the best mechanism of a family for a number of steps and a participation."""

import math
import time
from dataclasses import dataclass
from typing import Literal, final, get_args

import numpy as np

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms.abstract_mechanism import AbstractMechanism, ErrorKind, check_steps
from antiphon.mechanisms.dense import Dense
from antiphon.mechanisms.optimization.best_banded import best_banded
from antiphon.mechanisms.optimization.best_blt import best_blt
from antiphon.mechanisms.optimization.best_dense import best_dense
from antiphon.mechanisms.optimization.best_scalar import best_lambda_cgd, best_nu_ftrl
from antiphon.mechanisms.optimization.dual import Dual, prefix_bound
from antiphon.mechanisms.optimization.min_separation import best_min_separation
from antiphon.mechanisms.optimization.objective import SquaredError
from antiphon.mechanisms.workload import PREFIX_SUMS, Workload
from antiphon.numerics import Matrix, gram
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Patterns,
    Reshuffled,
)

__all__ = ["Family", "Optimized", "lower_bound", "optimize"]

Family = Literal["nu-ftrl", "lambda-cgd", "banded", "blt", "dense"]

# Up to here one eigendecomposition (a fraction of a second) sharpens the lower bound of a found mechanism.
_SHARP_STEPS = 512


@final
@dataclass(frozen=True)
class Optimized:
    """The best mechanism found, with its distance from the best possible.

    Attributes:
        mechanism: The mechanism.
        loss: Its sensitivity × error.
        bound: A proved lower bound on the loss of every mechanism of any family, or None.
        seconds: Time taken.
    """

    mechanism: AbstractMechanism
    loss: float
    bound: float | None
    seconds: float

    @property
    def gap(self) -> float | None:
        """Loss over the lower bound, minus 1: at most this much can be gained by any mechanism."""
        return None if self.bound is None else self.loss / self.bound - 1


def optimize(
    family: Family | str,
    T: int,
    participation: AbstractParticipation,
    *,
    kind: ErrorKind = "rms",
    workload: Workload | None = None,
    bands: int | None = None,
    buffers: int | None = None,
) -> Optimized:
    """The member of ``family`` with the smallest sensitivity × error.

    Args:
        family: "nu-ftrl", "lambda-cgd", "banded", "blt" or "dense".
        T: Number of steps.
        participation: The steps in which one unit can take part.
        kind: Root mean square ("rms") or largest ("max") error over the steps.
        workload: What the error is of; prefix sums unless given.
        bands: For "banded". Unless given, the distance between participations, or 64 for one.
        buffers: For "blt". Unless given, as many as are worth it, at most 6.

    Guarantee:
        ``loss`` is the mechanism's own proved sensitivity times its exact error; how it was found does
        not matter. ``bound`` holds for every mechanism: weak duality, see `Dual`.

    Example:
        >>> found = optimize("banded", 2000, FixedEpochs(times=20, apart=100), bands=100)
        >>> round(found.loss, 3)
        20.207
    """
    began = time.perf_counter()
    if family not in get_args(Family):
        raise PlanError(f"family is one of {', '.join(get_args(Family))}; got {family!r}.")
    for name, value in (("bands", bands), ("buffers", buffers)):
        if value is not None and value < 1:
            raise PlanError(f"{name} must be at least 1; got {value}.")
    check_steps(T)
    participation.check(T)
    workload = workload or PREFIX_SUMS

    def loss(mechanism: AbstractMechanism) -> float:
        return mechanism.loss(T, participation, kind, workload)

    bound = None
    mechanism: AbstractMechanism
    match family:
        case "nu-ftrl":
            mechanism = best_nu_ftrl(T, loss)
        case "lambda-cgd":
            mechanism = best_lambda_cgd(T, loss)
        case "banded":
            width = min(T, bands or _usual_bands(T, participation))
            mechanism = best_banded(T, width, participation, SquaredError(T, kind, workload), loss)
        case "blt":
            mechanism = best_blt(T, buffers, participation, SquaredError(T, kind, workload), loss)
        case "dense":
            mechanism, bound = _dense(T, participation, kind, workload)
    if bound is None:
        bound = lower_bound(T, participation, kind, workload, near=mechanism)
    return Optimized(mechanism, loss(mechanism), bound, time.perf_counter() - began)


def lower_bound(
    T: int,
    participation: AbstractParticipation,
    kind: ErrorKind = "rms",
    workload: Workload = PREFIX_SUMS,
    *,
    near: AbstractMechanism | None = None,
) -> float | None:
    """A loss that no mechanism can beat, or None if none can be computed.

    Args:
        T: Number of steps.
        participation: The steps in which one unit can take part.
        kind: Which error.
        workload: What the error is of.
        near: A good mechanism; up to 512 steps the bound is then taken where that would be optimal,
            which is sharper than the closed form.
    """
    check_steps(T)
    participation.check(T)
    if kind not in get_args(ErrorKind):
        raise PlanError(f"kind is 'rms' or 'max'; got {kind!r}.")
    groups = _groups(T, participation)
    bounds = []
    if workload == PREFIX_SUMS and sum(map(len, groups)) == T:
        bounds.append(prefix_bound(T, len(groups)))
    if near is not None and T <= _SHARP_STEPS and min(workload.rates(T)) > 0:
        C = near.encoder(T)
        dual = Dual(workload.matrix(T), groups, kind)
        bounds.append(dual.at(dual.start(C.T @ C)).bound)
    return max(bounds, default=None)


def _usual_bands(T: int, participation: AbstractParticipation) -> int:
    match participation:
        case MinSeparation(times, apart) | FixedEpochs(times, apart) if times > 1:
            return apart
        case _:
            return 64


def _dense(
    T: int, participation: AbstractParticipation, kind: ErrorKind, workload: Workload
) -> tuple[Dense, float | None]:
    A = workload.matrix(T)
    if min(workload.rates(T)) == 0:
        raise UnsupportedError(
            "a dense mechanism needs a positive learning rate in every step: where it is 0 the noise "
            "does not matter and has no best correlation."
        )
    match participation:
        case MinSeparation(times, apart) if times > 1:
            start = optimize("banded", T, participation, kind=kind, workload=workload, bands=apart)
            C = start.mechanism.encoder(T)
            return best_min_separation(A, min(T, apart), kind, C), None
        case Reshuffled(times) if times > 1:
            raise UnsupportedError(
                "no best dense mechanism is known for batches that are reshuffled every epoch, because "
                "any two steps of different epochs may meet. Use 'banded' or 'blt', or keep the order "
                "of the batches (FixedEpochs), which also has the smaller sensitivity."
            )
        case _:
            groups = _groups(T, participation)
            if not _covers(groups, participation, T):
                raise UnsupportedError(
                    f"no best dense mechanism is known for {participation}: its patterns overlap, or "
                    "leave out steps. Use 'banded' or 'blt'."
                )
            solution = best_dense(A, groups, kind, _near_gram(T, groups))
            return solution.mechanism, solution.bound


def _groups(T: int, participation: AbstractParticipation) -> list[tuple[int, ...]]:
    """Disjoint patterns, each allowed by the participation, that hold every step in which a unit can be.

    Only such patterns may enter the dual: weight on any other would claim a bound that does not hold.
    """
    match participation:
        case FixedEpochs(times, apart) | MinSeparation(times, apart):
            reach = times * apart
            return [
                tuple(range(start, min(T, block + reach), apart))
                for block in range(0, T, reach)
                for start in range(block, min(T, block + apart))
            ]
        case Reshuffled(_, batches):
            return [tuple(range(start, T, batches)) for start in range(min(T, batches))]
        case Patterns(patterns):
            left, groups = set(range(T)), []
            for pattern in sorted(patterns, key=len, reverse=True):
                taken = tuple(step for step in pattern if step in left)
                if taken:
                    groups.append(taken)
                    left -= set(taken)
            return groups
        case _:
            return [(step,) for step in range(T)]


def _covers(groups: list[tuple[int, ...]], participation: AbstractParticipation, T: int) -> bool:
    """Whether the groups hold every step, and every pattern of the participation lies within one."""
    match participation:
        case Once():
            return True
        case FixedEpochs(times, apart):
            return times * apart >= T
        case Patterns(patterns):
            sets = [set(group) for group in groups]
            inside = all(any(set(pattern) <= group for group in sets) for pattern in patterns)
            return inside and sum(map(len, groups)) == T
        case _:
            return participation.densest(T) == (0,)


def _near_gram(T: int, groups: list[tuple[int, ...]]) -> Matrix:
    """A Gram matrix to start from: the square root of prefix sums, cut where participations meet."""
    longest = max(map(len, groups))
    apart = T if longest == 1 else max(1, T // longest)
    c = np.array([math.comb(2 * t, t) / 4**t if t < apart else 0.0 for t in range(T)])
    return gram(c)
