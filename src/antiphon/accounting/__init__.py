"""From what happened to the (ε, δ) that is proved for it."""

from antiphon.accounting.account import Account
from antiphon.accounting.calibrate import calibrate, choose_mechanism, noise_by
from antiphon.accounting.comparison import Comparison, compare
from antiphon.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_trade_off,
)
from antiphon.accounting.inverses import largest_batch, most_steps
from antiphon.accounting.profile import AbstractProfile, GaussianProfile, NumericalProfile
from antiphon.accounting.routes import best_account, open_routes

__all__ = [
    "AbstractProfile",
    "Account",
    "Comparison",
    "GaussianProfile",
    "NumericalProfile",
    "best_account",
    "calibrate",
    "choose_mechanism",
    "compare",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_trade_off",
    "largest_batch",
    "most_steps",
    "noise_by",
    "open_routes",
]
