"""Amplified correlated noise: the mixture pairs of Poisson sampling and of balls in bins.

For an encoder C and a law of participations y that is every record's own, the pair
P = E_y N(|C|y, κ²I), Q = N(0, κ²I) dominates under add-remove and zero-out [KANCorrelated26, Thm. F.8],
[NearExact24]. It is monotone: let m(y) >= 0 be the means, L = E_y exp(<x, m(y)> − ‖m(y)‖²/2) at κ = 1. Then

    ∂H_γ(P‖Q)/∂m_t(y) = p(y) E_{x ~ N(m(y), I)}[1{L(x) > γ} (x_t − m_t(y))] >= 0,

since L, hence the indicator, increases in x_t; likewise for H_γ(Q‖P) with 1{γL < 1} and the opposite sign.
So larger means give a dominating pair: an encoder below a multiple of λ-CGD's, entry by entry, has the
guarantee of that multiple (`envelope`).
"""

import numpy as np

from antiphon.accounting.account import is_independent
from antiphon.accounting.correlated.bins_pair import BinsPair, bin_factor
from antiphon.accounting.correlated.lambda_pair import LambdaPair
from antiphon.accounting.monte_carlo.sampled import SampledRoute
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import AbstractMechanism, LambdaCGD
from antiphon.numerics import Vector
from antiphon.participation import Relation
from antiphon.plans import BallsInBins, Plan, Poisson

__all__ = ["diagonals", "envelope", "route"]

_SLOWEST = 0.99  # decay beyond which the filter would need too many nodes
_MOST_DENSE_STEPS = 4096


def route(plan: Plan) -> SampledRoute:
    """The mixture pair of the plan, to be certified by Monte Carlo.

    Raises:
        UnsupportedError: If the relation or the sampling has no such pair, or another accountant is exact.
    """
    if plan.relation == Relation.REPLACE_ONE:
        raise UnsupportedError(
            "the mixture pair with twice the amplitude is not valid for replace-one. Use "
            "relation='add-remove' or 'zero-out'."
        )
    match plan.sampling:
        case Poisson(rate):
            return _poisson(plan, rate)
        case BallsInBins(bins):
            return _bins(plan, bins)
        case _:
            raise UnsupportedError(
                f"a mixture pair is known for Poisson and BallsInBins sampling; this plan has "
                f"{plan.sampling}."
            )


def envelope(column: Vector) -> tuple[float, float]:
    """A scale a and a decay λ with column_k <= a λ^k for all k, for which a/(1 − λ) is small.

    Example:
        >>> a, lam = envelope(np.array([1.0, 0.5, 0.0]))
        >>> round(a, 3), round(lam, 3)
        (1.0, 0.5)
    """
    used = np.flatnonzero(column)
    if len(used) == 0 or used[-1] == 0:
        return float(column[0]), 0.0
    logs = np.log(column[used])
    decays = np.append(np.geomspace(1e-3, 1, 200)[:-1], column[1] / column[0])
    decays = decays[(decays > 0) & (decays <= _SLOWEST)]
    scales = np.exp((logs[:, None] - used[:, None] * np.log(decays)).max(axis=0))
    best = int(np.argmin(scales / (1 - decays)))
    return float(scales[best]) * (1 + 1e-12), float(decays[best])


def diagonals(mechanism: AbstractMechanism, T: int) -> Vector:
    """The largest absolute entry on each diagonal of the encoder, from the main one down."""
    column = getattr(mechanism, "column", None)
    if column is not None:
        return np.abs(column(T))
    if T > _MOST_DENSE_STEPS:
        raise UnsupportedError(
            f"{mechanism} is not Toeplitz, and its encoder too large beyond {_MOST_DENSE_STEPS} steps."
        )
    C = np.abs(mechanism.encoder(T))
    return np.array([np.diagonal(C, -k).max() for k in range(T)])


def _poisson(plan: Plan, rate: float) -> SampledRoute:
    mechanism, T = plan.known_mechanism(), plan.steps
    if rate == 1 or is_independent(mechanism, T):
        raise UnsupportedError(
            "Monte Carlo is for correlated noise at a rate below 1: other accountants are exact here."
        )
    if isinstance(mechanism, LambdaCGD):
        scale, lam, below = 1.0, mechanism.lam, ""
    else:
        scale, lam = envelope(diagonals(mechanism, T))
        below = f", by {scale:.4g} times the encoder of λ-CGD with λ = {lam:.4g}, which is above this one"
    if lam > _SLOWEST:
        raise UnsupportedError(
            f"the noise remembers too long for the filter of the mixture pair: λ = {lam:g} is above "
            f"{_SLOWEST}."
        )
    return SampledRoute(
        route="mixture",
        at=lambda noise: LambdaPair(lam, rate, T, noise / scale, plan.extra),
        theorem=f"mixture pair of Poisson sampling with correlated noise{below}",
        references=("KANCorrelated26", "WaudbySmithRamdas24"),
        cost=T,
    )


def _bins(plan: Plan, bins: int) -> SampledRoute:
    factor = bin_factor(plan.known_mechanism(), plan.steps, bins)
    return SampledRoute(
        route="mixture",
        at=lambda noise: BinsPair(factor, noise, plan.extra),
        theorem=f"mixture pair of {bins} bins with correlated noise",
        references=("NearExact24", "WaudbySmithRamdas24"),
        cost=bins**2 / 500 + bins,
    )
