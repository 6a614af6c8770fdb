"""Plans conditioned on participations: credit for how rarely a unit takes part, none for secrecy."""

import math

import numpy as np

from antiphon.accounting.account import (
    Account,
    check_not_apart,
    diagonal,
    effective_noise,
    is_independent,
    supported_amplitude,
)
from antiphon.accounting.correlated.bins_pair import bin_energies
from antiphon.accounting.correlated.energy import EnergyLaw, binomial_law
from antiphon.accounting.correlated.lambda_energy import lambda_cgd_law
from antiphon.accounting.correlated.sampled_energy import (
    AbstractCoins,
    Bernoulli,
    OncePerEpoch,
    SampledEnergy,
    interactions,
    is_non_negative,
)
from antiphon.accounting.curve import NumericalProfile
from antiphon.accounting.monte_carlo.sampled import SampledRoute
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import LambdaCGD, Tree
from antiphon.numerics import Vector
from antiphon.participation import Relation
from antiphon.plans import BallsInBins, FixedSize, GaussianRelease, Plan, Poisson, ShuffledEpochs

__all__ = ["account", "least_noise", "route"]

_SMALLEST = 1e-6


def account(plan: Plan) -> Account:
    """δ(ε) <= E_y[Gaussian profile at amplitude · sqrt(yᵀ|CᵀC|y) / noise], y the unit's participations.

    Guarantee:
        Valid for batches that do not depend on the data: see `antiphon.accounting.correlated.energy` for
        the proof and the amplitudes. The law of the energy is exact for independent noise under Poisson or
        fixed-size sampling and for every mechanism in a fixed order of batches; it is bounded from above
        for λ-CGD. Gaussian releases beside training add to the energy, as all is Gaussian given
        y; pure ones add their ε.
    """
    law, amplitude, scale = _law(plan)
    noise = effective_noise(plan) / scale
    mu, pure = _beside(plan)
    whole = law if mu == 0 else law.raised((mu * noise / amplitude) ** 2)

    def curve(epsilon: float) -> float:
        if epsilon < pure:
            return 1.0
        # Below the smallest ε: H at e^a is at most H at e^b plus e^b - e^a.
        rest = epsilon - pure
        least = max(rest, _SMALLEST)
        gap = 0.0 if least == rest else math.exp(least) * -math.expm1(rest - least)
        return whole.delta(noise, least, amplitude) + gap

    return Account(
        route="conditioned",
        profile=NumericalProfile(curve),
        theorem=_theorem(amplitude),
        references=("KANCorrelated26",),
        is_tight=False,
    )


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """The noise multiplier at which this route proves (ε, δ)."""
    law, amplitude, scale = _law(plan)
    if not plan.extra:
        return law.noise_multiplier(epsilon, delta, amplitude) * scale

    def proved(noise: float) -> bool:
        return account(plan.with_noise(noise)).profile.delta(epsilon) <= delta

    low, high = 1e-3, 1e9
    if not proved(high):
        raise PlanError(
            f"the releases beside training already cost more than ε = {epsilon} at δ = {delta}."
        )
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if proved(middle) else (middle, high)
    return high


def route(plan: Plan) -> SampledRoute:
    """The same bound for mechanisms whose energies have no closed law, by Monte Carlo over participations.

    Raises:
        UnsupportedError: If the law is known (`account` is exact or deterministic), or the sampling is not
            one of Poisson, FixedSize and ShuffledEpochs.
    """
    try:
        _law(plan)
    except UnsupportedError:
        coins, amplitude = _coins(plan)
    else:
        raise UnsupportedError("the law of the energies is known: no sampling is needed.")
    mu, pure = _beside(plan)
    if pure:
        raise UnsupportedError("sampled energies add Gaussian releases beside training only.")
    matrix = interactions(plan.known_mechanism(), plan.steps)
    times = plan.expected_batch / plan.n * plan.steps
    return SampledRoute(
        route="conditioned",
        at=lambda noise: SampledEnergy(matrix, coins, noise, amplitude, mu),
        theorem=_theorem(amplitude),
        references=("KANCorrelated26", "WaudbySmithRamdas24"),
        cost=10 + times + times**2 / 20,
    )


def _theorem(amplitude: float) -> str:
    return (
        "given the steps in which a unit takes part, one Gaussian release; averaged over them, at "
        f"amplitude {amplitude:g}"
    )


def _beside(plan: Plan) -> tuple[float, float]:
    """μ of the Gaussian releases beside training, and ε of the pure ones."""
    mus = [event.mu for event in plan.extra if isinstance(event, GaussianRelease)]
    pure = [event.epsilon for event in plan.extra if not isinstance(event, GaussianRelease)]
    return math.sqrt(sum(mu**2 for mu in mus)), sum(pure)


def _law(plan: Plan) -> tuple[EnergyLaw, float, float]:
    """The law of a unit's energy, the amplitude of its change, and the size of C's diagonal."""
    check_not_apart(plan)
    mechanism = plan.known_mechanism()
    match plan.sampling:
        case BallsInBins(bins):
            return _fixed_order(plan, np.full(bins, 1 / bins)), supported_amplitude(plan), 1.0
        case ShuffledEpochs(batch, reshuffle=False):
            full, rest = divmod(plan.n, batch)
            weights = np.array([batch / plan.n] * full + [rest / plan.n] * (rest > 0))
            return _fixed_order(plan, weights), supported_amplitude(plan), 1.0
    coins, amplitude = _coins(plan)
    if isinstance(coins, Bernoulli):
        if is_independent(mechanism, plan.steps):
            scale = diagonal(mechanism, plan.steps)
            return binomial_law(coins.rate, plan.steps), amplitude, scale
        if isinstance(mechanism, LambdaCGD):
            law = lambda_cgd_law(mechanism.lam, coins.rate, plan.steps, side="upper")
            return law, amplitude, 1.0
    raise UnsupportedError(
        f"the law of the energies is known for independent and λ-CGD noise under Poisson or FixedSize "
        f"sampling, and in a fixed order of batches; this plan has {mechanism} under {plan.sampling}."
    )


def _coins(plan: Plan) -> tuple[AbstractCoins, float]:
    """How one unit's steps are drawn, and the amplitude of its change."""
    check_not_apart(plan)
    match plan.sampling:
        case Poisson(rate):
            return Bernoulli(rate, plan.steps), supported_amplitude(plan)
        case FixedSize(batch) if batch < plan.n:
            # With one record more, a batch holds it in the place of another: a swap, twice the change.
            amplitude = 1.0 if plan.relation == Relation.ZERO_OUT else 2.0
            return Bernoulli(batch / plan.n, plan.steps), amplitude
        case ShuffledEpochs(batch, reshuffle=True):
            batches = -(-plan.n // batch)
            last = (plan.n - (batches - 1) * batch) / batch
            return OncePerEpoch(batches, last, plan.steps), supported_amplitude(plan)
        case _:
            raise UnsupportedError(
                f"conditioning on participations needs Poisson or FixedSize sampling with a batch below n, "
                f"BallsInBins or ShuffledEpochs; this plan has {plan.sampling}."
            )


def _fixed_order(plan: Plan, weights: Vector) -> EnergyLaw:
    """One place, kept in every epoch: as many energies as there are batches."""
    mechanism, T, places = plan.known_mechanism(), plan.steps, min(len(weights), plan.steps)
    is_pass_of_tree = isinstance(mechanism, Tree) and len(weights) >= T
    if is_pass_of_tree or is_non_negative(mechanism, T):
        found = bin_energies(mechanism, T, len(weights))
    else:
        matrix, apart = interactions(mechanism, T), len(weights)
        found = np.array([matrix[j::apart, j::apart].sum() for j in range(places)])
    # A long pass has few different energies.
    values, which = np.unique(found * (1 + 1e-12), return_inverse=True)
    shares = np.asarray(np.bincount(which.ravel(), weights[:places]), np.float64)
    return EnergyLaw(values, shares)
