"""Lower bounds on ε and μ from experiments: what a mechanism surely leaks."""

from antiphon.auditing.bounds import (
    TradeOffBand,
    binomial_lower,
    binomial_upper,
    epsilon_from_rates,
    mu_from_guesses,
    trade_off_band,
)
from antiphon.auditing.curve import AbstractCurve, GaussianCurve, PointCurve
from antiphon.auditing.one_run import (
    epsilon_from_one_run,
    guesses_for,
    is_refuted,
    mu_from_one_run,
)

__all__ = [
    "AbstractCurve",
    "GaussianCurve",
    "PointCurve",
    "TradeOffBand",
    "binomial_lower",
    "binomial_upper",
    "epsilon_from_one_run",
    "epsilon_from_rates",
    "guesses_for",
    "is_refuted",
    "mu_from_guesses",
    "mu_from_one_run",
    "trade_off_band",
]
