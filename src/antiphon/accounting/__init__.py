"""From what happened to the (ε, δ) that is proved for it."""

from antiphon.accounting.account import (
    Account,
    effective_noise,
    is_independent,
    supported_amplitude,
)
from antiphon.accounting.correlated.conditioned import least_noise as conditioned_noise
from antiphon.accounting.correlated.lambda_energy import lambda_cgd_law
from antiphon.accounting.correlated.moments import least_noise as moments_noise
from antiphon.accounting.curve import (
    AbstractProfile,
    ConvexProfile,
    GaussianProfile,
    NumericalProfile,
)
from antiphon.accounting.independent.gaussian import (
    check_delta,
    check_epsilon,
    compose_gaussians,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_trade_off,
)
from antiphon.accounting.independent.pld import account as pld_account
from antiphon.accounting.independent.pld import together as pld_together
from antiphon.accounting.independent.rdp import curve as renyi_curve
from antiphon.accounting.search.calibration import calibrate, choose_mechanism, noise_by
from antiphon.accounting.search.comparison import Comparison, compare
from antiphon.accounting.search.inverses import largest_batch, most_steps
from antiphon.accounting.search.proof import best_proof
from antiphon.accounting.search.registry import (
    ACCOUNTANTS,
    SLOW,
    best_account,
    open_routes,
    sampled_routes,
)

__all__ = [
    "ACCOUNTANTS",
    "SLOW",
    "AbstractProfile",
    "Account",
    "Comparison",
    "ConvexProfile",
    "GaussianProfile",
    "NumericalProfile",
    "best_account",
    "best_proof",
    "calibrate",
    "check_delta",
    "check_epsilon",
    "choose_mechanism",
    "compare",
    "compose_gaussians",
    "conditioned_noise",
    "effective_noise",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_trade_off",
    "is_independent",
    "lambda_cgd_law",
    "largest_batch",
    "moments_noise",
    "most_steps",
    "noise_by",
    "open_routes",
    "pld_account",
    "pld_together",
    "renyi_curve",
    "sampled_routes",
    "supported_amplitude",
]
