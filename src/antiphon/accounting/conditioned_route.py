"""Plans conditioned on participations: credit for how rarely a unit takes part, none for secrecy."""

import math

from antiphon.accounting.account import Account, effective_noise, is_independent
from antiphon.accounting.conditioned import EnergyLaw, binomial_law, lambda_cgd_law
from antiphon.accounting.profile import NumericalProfile
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import LambdaCGD
from antiphon.plan import Plan
from antiphon.relations import Relation
from antiphon.sampling import FixedSize, Poisson

__all__ = ["account", "least_noise"]

_SMALLEST = 1e-6


def account(plan: Plan) -> Account:
    """δ(ε) <= E_y[Gaussian profile at amplitude · ‖Cy‖ / noise], y being the unit's participations.

    Guarantee:
        Valid for batches that do not depend on the data, with Poisson or fixed-size sampling and
        independent or λ-CGD noise: see `antiphon.accounting.conditioned` for the proof and the amplitudes.
        The law of ‖Cy‖² is exact for independent noise and bounded from above for λ-CGD.
    """
    law, amplitude, scale = _law(plan)
    noise = effective_noise(plan) / scale

    def curve(epsilon: float) -> float:
        # Below the smallest ε the bound grows by at most e^Δ - 1: H_1 <= H_{e^Δ} + e^Δ - 1.
        least = max(epsilon, _SMALLEST)
        return law.delta(noise, least, amplitude) + math.expm1(least - epsilon)

    return Account(
        route="conditioned",
        profile=NumericalProfile(curve),
        theorem=(
            f"given the steps in which a unit takes part, one Gaussian release; averaged over them, at "
            f"amplitude {amplitude:g}"
        ),
        references=("KANCorrelated26",),
        is_tight=False,
    )


def least_noise(plan: Plan, epsilon: float, delta: float) -> float:
    """The noise multiplier at which this route proves (ε, δ)."""
    law, amplitude, scale = _law(plan)
    return law.noise_multiplier(epsilon, delta, amplitude) * scale


def _law(plan: Plan) -> tuple[EnergyLaw, float, float]:
    """The law of a unit's energy, the amplitude of its change, and the size of C's diagonal."""
    if plan.extra:
        raise UnsupportedError("the conditioned accountant does not add releases beside training.")
    relation, mechanism = Relation.of(plan.relation), plan.known_mechanism()
    match plan.sampling:
        case Poisson(rate):
            amplitude = relation.amplitude
        case FixedSize(batch) if batch < plan.n:
            rate = batch / plan.n
            # With one record more, a batch holds it in the place of another: a swap, twice the change.
            amplitude = 1.0 if relation is Relation.ZERO_OUT else 2.0
        case _:
            raise UnsupportedError(
                f"conditioning on participations needs Poisson or FixedSize sampling with a batch below n; "
                f"this plan has {plan.sampling}."
            )
    if is_independent(mechanism, plan.steps):
        return binomial_law(rate, plan.steps), amplitude, abs(float(mechanism.encoder(1)[0, 0]))
    if isinstance(mechanism, LambdaCGD):
        return lambda_cgd_law(mechanism.lam, rate, plan.steps, side="upper"), amplitude, 1.0
    raise UnsupportedError(
        f"the law of ‖Cy‖ is known for independent and λ-CGD noise; this plan has {mechanism}."
    )
