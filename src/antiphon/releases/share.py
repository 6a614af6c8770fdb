"""How much of a budget a release takes."""

import math

from antiphon.accounting import gaussian_mu
from antiphon.errors import PlanError

__all__ = ["mu_of_share"]


def mu_of_share(epsilon: float, delta: float, share: float) -> float:
    """μ of a Gaussian release that takes this share of an (ε, δ) budget, by squares.

    Args:
        epsilon: ε of everything together.
        delta: δ of everything together.
        share: In (0, 1).

    Guarantee:
        sqrt(share) times the largest μ within (ε, δ). Squares of μ add up [DongRothSu22], so Gaussian
        releases whose shares sum to 1 are (ε, δ)-DP together, and the rest of a run without amplification
        needs 1/sqrt(1 - share) times its noise: 5.4 % more for a tenth.

    Example:
        >>> round(mu_of_share(1.0, 1e-5, share=0.1), 4)
        0.0848
    """
    if not 0 < share < 1:
        raise PlanError(f"a share of the budget lies strictly between 0 and 1; got {share}.")
    return math.sqrt(share) * gaussian_mu(epsilon, delta)
