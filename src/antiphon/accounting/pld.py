"""Privacy loss distributions, composed by Google's dp-accounting, for noise independent between steps."""

import math
from functools import lru_cache

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import common, pld_pmf, privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from antiphon.accounting.account import Account, effective_noise, is_independent
from antiphon.accounting.fixed_size import profiles
from antiphon.accounting.profile import NumericalProfile
from antiphon.errors import UnsupportedError
from antiphon.events import Event, GaussianRelease
from antiphon.mechanisms import Banded
from antiphon.participation import Once
from antiphon.plan import Plan
from antiphon.relations import Relation
from antiphon.sampling import CyclicPoisson, FixedSize, Poisson

__all__ = ["FINE", "account", "extra_loss"]

FINE = 1e-4  # grid of the privacy loss, refined where many steps compose


def account(plan: Plan, *, grid: float | None = None) -> Account:
    """Compose the steps' privacy losses numerically, rounded up.

    Args:
        plan: Independent noise under Poisson or fixed-size batches, or a banded encoder under cyclic
            Poisson, whose participations meet independent noise [Banded23].
        grid: Width of the grid of privacy losses; unless given, chosen by the plan.

    Guarantee:
        Each step's dominating pair is discretised pessimistically ("connect the dots", [Doroshenko22]) and
        composed without loss; the δ of truncated tails is added. Poisson: tight for add-remove and
        zero-out [ZhuWang19]; for replace-one dp-accounting's pair. Fixed size: see
        `antiphon.accounting.fixed_size`.
    """
    width = grid or _grid(plan)
    step, count, theorem, references = _step(plan, width)
    # dp-accounting takes logarithms of sums that may be 0: its warnings are about terms that vanish.
    with np.errstate(all="ignore"):
        whole = step.self_compose(count) if count > 1 else step
        for event in plan.extra:
            whole = whole.compose(extra_loss(event, width))
    return Account(
        route="pld",
        profile=NumericalProfile(lambda epsilon: float(whole.get_delta_for_epsilon(epsilon))),
        theorem=f"{theorem}, {count} times composed as privacy loss distributions on a grid of {width:g}",
        references=(*references, "Doroshenko22"),
        # A pure release is counted at its worst, which its own mechanism need not reach.
        is_tight=isinstance(plan.sampling, Poisson)
        and plan.relation != Relation.REPLACE_ONE
        and not plan.extra,
    )


def _step(plan: Plan, width: float) -> tuple[PrivacyLossDistribution, int, str, tuple[str, ...]]:
    """One step's privacy loss, how often it happens to a unit, why, and by whom."""
    noise, relation = effective_noise(plan), Relation.of(plan.relation)
    mechanism, sampling = plan.known_mechanism(), plan.sampling
    match sampling:
        case CyclicPoisson(rate, cycle):
            if not (isinstance(mechanism, Banded) and len(mechanism.coef) <= cycle):
                raise UnsupportedError(
                    f"cyclic Poisson sampling amplifies encoders of at most {cycle} bands, so that steps "
                    f"of one group share no noise; this mechanism is {mechanism}. Use Banded with at most "
                    f"{cycle} coefficients, or a longer cycle."
                )
            norm = float(mechanism.sensitivity(plan.steps, Once()))
            loss = _poisson(rate, noise / norm, relation, width)
            rounds = -(-plan.steps // cycle)
            return loss, rounds, "subsampled Gaussians of one group", ("Banded23", "ZhuWang19")
        case Poisson(rate) if is_independent(mechanism, plan.steps):
            scale = float(mechanism.encoder(1)[0, 0])
            loss = _poisson(rate, noise / abs(scale), relation, width)
            return loss, plan.steps, "Poisson-subsampled Gaussians", ("ZhuWang19",)
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
            scale = abs(float(mechanism.encoder(1)[0, 0]))
            loss = _fixed_size(batch / plan.n, noise / scale, relation, width)
            theorem = f"fixed-size batches without replacement under {relation}"
            return loss, plan.steps, theorem, ("BalleBartheGaboardi18",)
        case _:
            raise UnsupportedError(
                "the PLD accountant composes independent noise under Poisson or FixedSize sampling, and "
                f"banded encoders under CyclicPoisson; this plan has {mechanism} under {sampling}, whose "
                "steps are not independent."
            )


@lru_cache(maxsize=64)
def _poisson(
    rate: float, noise: float, relation: Relation, width: float
) -> PrivacyLossDistribution:
    neighbours = (
        NeighboringRelation.REPLACE_ONE
        if relation is Relation.REPLACE_ONE
        else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=width,
        neighboring_relation=neighbours,
    )


@lru_cache(maxsize=64)
def _fixed_size(
    rate: float, noise: float, relation: Relation, width: float
) -> PrivacyLossDistribution:
    # Beyond the largest privacy loss of a Gaussian at 40 standard deviations nothing is left to count.
    mu = 2 / noise
    reach = math.ceil(min(mu * (mu / 2 + 12) + 1, 200.0) / width)
    rounded = np.arange(-reach, reach + 1)
    forth, back = profiles(rate, noise, relation, np.float64(width) * rounded)

    def pmf(deltas: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pld_pmf.PLDPmf:
        decreasing = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
        return pld_pmf.create_pmf_pessimistic_connect_dots(width, rounded, decreasing)

    return PrivacyLossDistribution(pmf(forth), pmf(back))


def extra_loss(event: Event, width: float) -> PrivacyLossDistribution:
    """Privacy loss of a release beside training, on a grid of this width."""
    if isinstance(event, GaussianRelease):
        return privacy_loss_distribution.from_gaussian_mechanism(
            1 / event.mu, value_discretization_interval=width
        )
    pure = common.DifferentialPrivacyParameters(event.epsilon, 0)
    return privacy_loss_distribution.from_privacy_parameters(
        pure, value_discretization_interval=width
    )


def _grid(plan: Plan) -> float:
    """A grid fine enough that rounding costs less than a thousandth of ε.

    Connecting the dots adds variance of up to width²/4 to each step's loss, which itself has about
    (rate × amplitude / noise)²: the grid must stay well below that.
    """
    rate = plan.expected_batch / plan.n
    spread = rate * plan.amplitude / effective_noise(plan)
    return float(np.clip(0.05 * spread, 2e-6, 1e-3)) if spread < 2e-3 else FINE
