"""Learning rate and correlation for a run of known length, chosen by the exact error instead of a rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, Independent, NuFTRL
from antiphon_papers.dp_ftrl.theory.regression import expected_excess, feedback
from antiphon_papers.dp_ftrl.theory.spectrum import Spectrum, eigenvalues

__all__ = ["Advice", "advise"]

_RATES = 16


@final
@dataclass(frozen=True)
class Advice:
    """The best of the candidates for a run of Noisy-FTRL.

    Attributes:
        mechanism: Independent noise, or ν-FTRL.
        learning_rate: η.
        excess: E F_T - F* of it.
        independent: E F_T - F* of independent noise at the rate that is best for it.
        start: F_0 - F*; no run is worth its privacy that does not end below.
    """

    mechanism: AbstractMechanism
    learning_rate: float
    excess: float
    independent: float
    start: float

    @property
    def gain(self) -> float:
        """What correlation leaves of the error of independent noise."""
        return self.excess / self.independent


def advise(
    steps: int,
    *,
    spectrum: Spectrum,
    start: Spectrum,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    label_noise: float = 0.0,
    learning_rates: Sequence[float] | None = None,
) -> Advice:
    """The learning rate and ν with the smallest expected error after T steps, noise being scaled for T.

    Args:
        steps: T.
        spectrum: Eigenvalues of H; public, or estimated on public data.
        start: A guess of θ_0 - θ* in the eigenbasis; prior knowledge, not from the records.
        rho: ρ of zCDP.
        clip_norm: G, for which hardly any gradient is clipped.
        label_noise: A guess of σ_sgd.
        learning_rates: To try; unless given, 16 up to the largest for which the error stays bounded.

    Guarantee:
        The best of the candidates for Gaussian inputs, whose error is exact (`expected_excess`); a choice
        for others. Its privacy is that of the plan it is used in, whatever the inputs are.

    Example:
        >>> found = advise(200, spectrum=[1.0, 0.1, 0.01], start=[1.0, 1.0, 1.0], clip_norm=0.5)
        >>> found.mechanism.name, found.gain < 0.9
        ('nu-ftrl', True)
    """
    values, T = eigenvalues(spectrum), whole("steps", steps)
    if learning_rates is None:
        stable = _largest_rate(values)
        learning_rates = np.geomspace(1e-3 * stable, 0.9 * stable, _RATES).tolist()
    guess = np.asarray(start, dtype=np.float64)
    if guess.shape != values.shape or not np.isfinite(guess).all():
        raise PlanError(f"start has one finite number for each of {len(values)} eigenvalues.")
    if not learning_rates:
        raise PlanError("learning_rates is empty: give at least one, or leave it out.")

    def error(mechanism: AbstractMechanism, eta: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # where descent diverges
            found = expected_excess(
                mechanism,
                T,
                spectrum=values,
                learning_rate=eta,
                start=start,
                rho=rho,
                clip_norm=clip_norm,
                label_noise=label_noise,
                horizon=T,
            )
        return float(found[-1])

    initial = float(values @ guess**2) / 2
    plain = {eta: error(Independent(), eta) for eta in learning_rates}
    nus = [min(0.5, x / T) for x in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)]
    candidates: dict[tuple[AbstractMechanism, float], float] = {
        (Independent(), eta): value for eta, value in plain.items()
    }
    for nu in sorted(set(nus)):
        candidates |= {(NuFTRL(nu), eta): error(NuFTRL(nu), eta) for eta in learning_rates}
    candidates = {pair: value for pair, value in candidates.items() if math.isfinite(value)}
    if not candidates:
        raise PlanError(f"the error is not finite for any of the learning rates {learning_rates}.")
    mechanism, eta = min(candidates, key=candidates.__getitem__)
    return Advice(mechanism, eta, candidates[mechanism, eta], min(plain.values()), initial)


def _largest_rate(values: Spectrum) -> float:
    """The learning rate at which the feedback reaches 1, by bisection."""
    low, high = 0.0, 1 / float(eigenvalues(values).max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if feedback(values, middle) < 1 else (low, middle)
    return low
