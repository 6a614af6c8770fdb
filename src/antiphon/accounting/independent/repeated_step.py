"""Which step a plan repeats, and how often it happens to one unit: shared by all that compose."""

from dataclasses import dataclass
from typing import final

from antiphon.accounting.account import diagonal, effective_noise, is_independent
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import AbstractMechanism, Banded
from antiphon.participation import Once, Relation
from antiphon.plans import CyclicPoisson, FixedSize, Plan, Poisson

__all__ = ["Step", "repeated_step"]


@final
@dataclass(frozen=True)
class Step:
    """A subsampled Gaussian release.

    Attributes:
        rate: Probability that a unit takes part.
        noise: Standard deviation over the norm of the unit's contribution.
        relation: How neighbouring data sets differ.
        is_fixed_size: Whether batches have a fixed size; else each unit has a coin of its own.
        count: How many such steps, independent of each other, happen to a unit.
        theorem: Why, in words.
        references: By whom.
    """

    rate: float
    noise: float
    relation: Relation
    is_fixed_size: bool
    count: int
    theorem: str
    references: tuple[str, ...]


def repeated_step(plan: Plan) -> Step:
    """The plan as one step, repeated with fresh noise and fresh coins.

    Raises:
        UnsupportedError: If steps share noise or coins, or there is no amplified bound for the relation.
    """
    noise, relation = effective_noise(plan), Relation.of(plan.relation)
    mechanism, sampling = plan.known_mechanism(), plan.sampling
    by: tuple[str, ...]
    match sampling:
        case CyclicPoisson(rate, cycle):
            if not _bands_at_most(mechanism, cycle, plan.steps):
                raise UnsupportedError(
                    f"cyclic Poisson sampling amplifies encoders of at most {cycle} bands, so that steps "
                    f"of one group share no noise; this mechanism is {mechanism}. Use Banded with at most "
                    f"{cycle} coefficients, or a longer cycle."
                )
            norm = float(mechanism.sensitivity(plan.steps, Once()))
            theorem, by = "subsampled Gaussians of one group", ("Banded23", "ZhuWang19")
            return Step(rate, noise / norm, relation, False, -(-plan.steps // cycle), theorem, by)
        case Poisson(rate) if is_independent(mechanism, plan.steps):
            scale = diagonal(mechanism, plan.steps)
            theorem, by = "Poisson-subsampled Gaussians", ("ZhuWang19",)
            return Step(rate, noise / scale, relation, False, plan.steps, theorem, by)
        case FixedSize(batch) if is_independent(mechanism, plan.steps):
            if relation is Relation.ADD_REMOVE:
                raise UnsupportedError(
                    "fixed-size batches have no amplified bound for add-remove: with one record more, every"
                    " batch is drawn from other data. Use relation='zero-out' or 'replace-one', or Poisson "
                    "sampling."
                )
            if batch == plan.n:
                raise UnsupportedError(
                    "a batch of all records is FullBatch(); its accounting is exact."
                )
            scale = diagonal(mechanism, plan.steps)
            theorem = f"fixed-size batches without replacement under {relation}"
            by = ("BalleBartheGaboardi18",)
            return Step(batch / plan.n, noise / scale, relation, True, plan.steps, theorem, by)
        case _:
            raise UnsupportedError(
                "step by step composition needs independent noise under Poisson or FixedSize sampling, or a"
                f" banded encoder under CyclicPoisson; this plan has {mechanism} under {sampling}, whose "
                "steps are not independent."
            )


def _bands_at_most(mechanism: AbstractMechanism, cycle: int, T: int) -> bool:
    if isinstance(mechanism, Banded):
        return len(mechanism.coef) <= cycle
    return is_independent(mechanism, T)
