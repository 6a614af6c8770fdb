"""How the noise of a release is compared with what its event claims."""

import numpy as np
from scipy.stats import kstest

from antiphon.numerics import Generator

TRIALS = 1_000
FALSE_ALARM = 1e-4  # of each comparison


def likelihood_ratios(release, here, there, mu):
    """Log-likelihood ratios of releases of ``here`` against ``there``, if the noise is as μ claims.

    ``here`` and ``there`` are exact counts. White noise of ‖here − there‖/μ makes the ratio a function of
    the projection on the difference.
    """
    change = (here - there).ravel().astype(float)
    size = np.linalg.norm(change)
    middle = (here + there).ravel() / 2
    noisy = np.stack([release(Generator.seeded(seed)).ravel() for seed in range(TRIALS)])
    return (noisy - middle) @ change * (mu / size) ** 2


def p_value(ratios, mu):
    """Kolmogorov and Smirnov: how likely such ratios are under N(μ²/2, μ²)."""
    return kstest((ratios - mu**2 / 2) / mu, "norm").pvalue


def is_as_claimed(ratios, mu):
    return p_value(ratios, mu) > FALSE_ALARM
