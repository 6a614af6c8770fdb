"""What tables and figures of correlated noise share: problems, random spectra, chains of Noisy-FTRL."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from antiphon.mechanisms import AbstractMechanism, NuFTRL
from antiphon.numerics import Series
from antiphon.participation import Once
from antiphon_papers import dp_ftrl

__all__ = ["Config", "runnable", "simulated", "spectrum_near"]

_BUFFERS = 6


@final
@dataclass(frozen=True)
class Config:
    """One linear regression, of Tables 1, 2 and 4.

    Attributes:
        d: Dimension.
        alpha: Eigenvalues are near k^-alpha.
        learning_rate: η.
        seed: 0 for eigenvalues of exactly that kind, others for random ones near them.
    """

    d: int
    alpha: float
    learning_rate: float
    seed: int = 0


def runnable(mechanism: AbstractMechanism, steps: int) -> AbstractMechanism:
    """The mechanism itself, or, for ν-FTRL, the BLT that runs in its place in constant memory."""
    if isinstance(mechanism, NuFTRL):
        # A fit for the next power of two serves many lengths.
        return mechanism.buffered(1 << (steps - 1).bit_length(), _BUFFERS)
    return mechanism


def simulated(
    problem: dp_ftrl.AbstractProblem,
    mechanism: AbstractMechanism,
    *,
    learning_rate: float,
    slowest: float,
    chains: int,
    seed: int,
    rho: float = 1.0,
) -> float:
    """Mean excess risk of chains, after five times the memory of the slowest direction.

    Args:
        problem: What is learned.
        mechanism: The noise, scaled by its sensitivity for endlessly many steps.
        learning_rate: η.
        slowest: ημ, by which the slowest direction is forgotten in every step.
        chains: Independent repetitions.
        seed: Of records and noise.
        rho: ρ of zCDP.
    """
    burn_in = math.ceil(5 / slowest)
    steps = burn_in + math.ceil(2 / slowest) + 100
    runs = runnable(mechanism, steps)
    scale = float(runs.sensitivity(math.inf, Once())) / math.sqrt(2 * rho)
    done = dp_ftrl.ftrl(
        problem,
        runs,
        steps,
        learning_rate,
        noise_multiplier=scale,
        clip=False,
        chains=chains,
        seed=seed,
    )
    return float(done.excess[burn_in:].mean())


def spectrum_near(d: int, exponent: float, seed: int) -> Series:
    """λ_k = k^-exponent for seed 0; for others with random factors, of a fifth or so, and λ_max = 1."""
    values = dp_ftrl.power_law(d, exponent)
    if seed:
        values = values * np.exp(0.2 * np.random.default_rng(seed).normal(size=d))
    return values / values.max()
