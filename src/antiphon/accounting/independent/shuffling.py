"""One shuffled pass with independent noise: credit for the secret order.

A pass in batches of b is shuffled reports, although a batch is a sum. Number the places of the order by
step t and place k in the batch. Reveal which records stand at which place k, for every k, and all steps
except those of the differing record's own place k: this depends on no record's values, and the divergence
is jointly convex. What is left is a uniformly random order of the records of one place over the steps: step
t releases a sum that is known but for one record, plus noise. That is one report, and two reports' means
are at most 2 clip norms apart, whatever the relation: other records may point the opposite way.

How many reports? A place has at least ⌊n/b⌋ steps in a whole pass. If b does not divide n, some places have
one more: then one of the *other* records is never counted as a clone, which claims less than is true. A
pass that ends early is the beginning of a whole one, whose other steps are not seen. So N = ⌊n/b⌋ in all
cases, and `antiphon.accounting.independent.clones` does the rest.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from antiphon.accounting.account import (
    Account,
    check_not_apart,
    diagonal,
    effective_noise,
    is_independent,
)
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.independent.clones import clones_delta, gaussian_clones_delta
from antiphon.accounting.independent.gaussian import gaussian_mu
from antiphon.errors import UnsupportedError
from antiphon.participation import Relation
from antiphon.plans import Plan, ShuffledEpochs

__all__ = ["account", "clones_delta", "gaussian_clones_delta", "least_noise"]

# What is proved at one ε holds at every larger one; the bound itself may rise where δ is tiny.
_ANCHORS = tuple(np.geomspace(0.05, 20.0, 24).tolist())
_SLACK = 1e-5  # relative, of the least noise


def account(plan: Plan) -> Account:
    """δ(ε) of one pass in a secret uniformly random order, by hiding among Gaussian clones.

    Guarantee:
        An upper bound for zero-out and replace-one, for records, batches and gradients chosen adaptively,
        and never above the Gaussian profile without amplification. The order, and which record is in which
        batch, must stay secret for ever; the model after every step may be published.
    """
    reports = _reports(plan)
    return Account(
        route="shuffling",
        profile=NumericalProfile(_curve(reports, effective_noise(plan))),
        theorem=(
            f"one pass in a secret random order: each record hides among {reports.number} that could have "
            "had its place, as Gaussian clones"
        ),
        references=("FeldmanMcMillanTalwar21", "BalleBellGasconNissim19"),
        is_tight=False,
    )


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """A noise multiplier at which this route proves (ε, δ), within 0.001 % of where it stops to."""
    reports = _reports(plan)
    high = reports.own / gaussian_mu(epsilon, delta)  # enough without amplification

    def proves(anchors: tuple[float, ...]) -> Callable[[float], bool]:
        return lambda noise: _curve(reports, noise, anchors)(epsilon) <= delta

    # The second search has little left to do, unless δ is tiny.
    return _search(_search(high, proves(())), proves(_ANCHORS))


def _search(high: float, is_proved: Callable[[float], bool]) -> float:
    """The smallest noise below ``high`` for which a proof is found, by bisection."""
    while not is_proved(high):
        high *= 1 + 1e-12
    low, factor = high / (1 + _SLACK), 1 + _SLACK
    while is_proved(low):
        factor = min(2.0, factor**4)
        low, high = low / factor, low
    while high > low * (1 + _SLACK):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_proved(middle) else (middle, high)
    return high


class _Reports(NamedTuple):
    """How many there are, and how far apart at a noise multiplier of 1: own versions, any two."""

    number: int
    own: float
    apart: float


def _curve(
    reports: _Reports, noise: float, anchors: tuple[float, ...] = _ANCHORS
) -> Callable[[float], float]:
    own, apart = reports.own / noise, reports.apart / noise

    def curve(epsilon: float) -> float:
        points = (epsilon, *(anchor for anchor in anchors if anchor < epsilon))
        return min(gaussian_clones_delta(reports.number, own, apart, e) for e in points)

    return curve


def _reports(plan: Plan) -> _Reports:
    sampling, relation, mechanism = (
        plan.sampling,
        Relation.of(plan.relation),
        plan.known_mechanism(),
    )
    if not isinstance(sampling, ShuffledEpochs):
        raise UnsupportedError(
            "amplification by shuffling needs a secret random order, ShuffledEpochs; this plan has "
            f"{sampling}."
        )
    if relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "amplification by shuffling has no bound for add-remove: with one record more, others move to "
            "other batches. Use relation='zero-out' or 'replace-one'."
        )
    if plan.extra:
        raise UnsupportedError(
            "the shuffling accountant cannot add releases beside training: "
            f"{', '.join(str(event) for event in plan.extra)}. The Gaussian accountant adds Gaussian ones, "
            "without amplification."
        )
    check_not_apart(plan)
    batches = -(-plan.n // sampling.batch)
    if plan.steps > batches:
        raise UnsupportedError(
            f"amplification by shuffling is proved for one pass, at most {batches} steps; this plan has "
            f"{plan.steps}. Use fewer steps, or Poisson sampling, whose amplification composes."
        )
    if not is_independent(mechanism, plan.steps):
        raise UnsupportedError(
            f"amplification by shuffling needs noise that is independent between steps; this plan has "
            f"{mechanism}. Use Independent()."
        )
    number = plan.n // sampling.batch
    if number < 2:
        raise UnsupportedError(
            f"a pass over {plan.n} records in batches of {sampling.batch} has one full batch: no order "
            "hides a record. Use smaller batches."
        )
    scale = diagonal(mechanism, plan.steps)
    return _Reports(number, relation.amplitude * scale, 2 * scale)
