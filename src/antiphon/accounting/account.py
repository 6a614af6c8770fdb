"""What an accountant returns: a profile, and why it holds."""

from dataclasses import dataclass
from typing import final

import numpy as np

from antiphon.accounting.curve import AbstractProfile
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import AbstractMechanism
from antiphon.participation import Relation
from antiphon.plans import Plan

__all__ = [
    "MOST_NOISE",
    "Account",
    "check_not_apart",
    "diagonal",
    "effective_noise",
    "is_independent",
    "supported_amplitude",
]

MOST_NOISE = 1e6  # more than any training can bear: where searches for noise end


@final
@dataclass(frozen=True)
class Account:
    """A proved profile of a plan.

    Attributes:
        route: Name of the accountant.
        profile: δ(ε) as a whole.
        theorem: Why it holds, in one sentence.
        references: Keys of ``docs/references.bib``.
        is_tight: Whether a data set and an attack exist that reach it (up to rounding).
    """

    route: str
    profile: AbstractProfile
    theorem: str
    references: tuple[str, ...]
    is_tight: bool


def effective_noise(plan: Plan) -> float:
    """The noise multiplier, of all blocks together if there are any.

    A unit moves block i by at most its bound, under noise of κ_i times that bound: whitened, it moves the
    whole by at most sqrt(Σ κ_i⁻²), which is one Gaussian release of noise (Σ κ_i⁻²)^(-1/2).
    """
    if not plan.blocks:
        return plan.known_noise()
    return float(sum(block.noise_multiplier**-2 for block in plan.blocks) ** -0.5)


def supported_amplitude(plan: Plan) -> float:
    """Largest change of one contribution, if neighbours share the batches of all others; else a refusal."""
    relation = Relation.of(plan.relation)
    if not plan.sampling.supports(relation):
        raise UnsupportedError(
            f"{plan.sampling} gives places by row: adding or removing a record moves others to other "
            "batches, so it is not a change of one record. Use relation='zero-out' or 'replace-one', or a "
            "sampling with one coin per record (Poisson, BallsInBins, CyclicPoisson, FullBatch)."
        )
    return relation.amplitude


def check_not_apart(plan: Plan) -> None:
    """Refuse plans with releases apart from the steps, for accountants that do not know them."""
    if plan.apart:
        raise UnsupportedError(
            "only the Gaussian accountant knows releases apart from the steps: "
            f"{', '.join(str(event) for event in plan.apart)}."
        )


def is_independent(mechanism: AbstractMechanism, T: int) -> bool:
    """Whether the noise of different steps is independent and of equal size."""
    if T == 1:
        return True
    column = getattr(mechanism, "column", None)
    if column is not None:
        return not np.any(column(T)[1:])
    try:  # a corner usually decides; some mechanisms do not exist for so few steps
        corner = mechanism.encoder(min(T, 3))
        if not np.array_equal(corner, corner[0, 0] * np.eye(len(corner))):
            return False
    except PlanError:
        pass
    C = mechanism.encoder(T)
    return bool(np.array_equal(C, C[0, 0] * np.eye(T)))


def diagonal(mechanism: AbstractMechanism, T: int) -> float:
    """Size of the diagonal of an encoder of independent noise."""
    column = getattr(mechanism, "column", None)
    return abs(float(mechanism.encoder(T)[0, 0] if column is None else column(T)[0]))
