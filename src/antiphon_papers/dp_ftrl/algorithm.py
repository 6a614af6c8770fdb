"""DP-FTRL and Noisy-FTRL as algorithms [CorrelatedNoise24, Alg. 1], on laws whose optimum is known.

Records come from a law, not from people: many independent chains run side by side and tell the error by
Monte Carlo, which is what the formulas of this package are checked against. Models and data are trained
with `antiphon.make_private`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism
from antiphon.numerics import Generator
from antiphon.participation import Relation
from antiphon.plans import OnePass, Plan
from antiphon_papers.dp_ftrl.theory.energy import squared_sensitivity
from antiphon_papers.dp_ftrl.theory.regression import non_negative
from antiphon_papers.dp_ftrl.theory.spectrum import Spectrum, eigenvalues

__all__ = [
    "AbstractProblem",
    "FTRLRun",
    "LinearRegression",
    "MeanProblem",
    "Server",
    "ftrl",
    "private_plan",
]


class AbstractProblem(ABC):
    """A law of records, a loss, and how far a point is from its optimum 0."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of coordinates."""

    @abstractmethod
    def gradient(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """The gradient at each chain's point for a fresh record of its own."""

    @abstractmethod
    def penalty_gradient(self, theta: Tensor) -> Tensor:
        """The gradient of the part of the loss that no record touches: never clipped, never noised."""

    @abstractmethod
    def excess(self, theta: Tensor) -> Tensor:
        """Loss minus its minimum, for each chain."""


@final
@dataclass(frozen=True)
class MeanProblem(AbstractProblem):
    """The mean of z = ±spread, each with probability 1/2; the loss is z²/2 - zθ, the penalty θ²/2.

    Attributes:
        spread: In [0, 1], so that gradients of a clip norm of 1 are never clipped.
    """

    spread: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.spread <= 1:
            raise PlanError(f"spread must be in [0, 1], so that |z| <= 1; got {self.spread}.")

    @property
    def dimension(self) -> int:
        """One."""
        return 1

    def gradient(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """-z."""
        signs = torch.randint(0, 2, theta.shape, generator=generator, dtype=theta.dtype)
        return self.spread * (1 - 2 * signs)

    def penalty_gradient(self, theta: Tensor) -> Tensor:
        """θ."""
        return theta

    def excess(self, theta: Tensor) -> Tensor:
        """θ²/2: the mean is 0."""
        return theta.square().sum(dim=-1) / 2


@final
@dataclass(frozen=True)
class LinearRegression(AbstractProblem):
    """y = <θ*, x> + ξ with Gaussian x and ξ, in the eigenbasis of H and with θ* = 0.

    Attributes:
        spectrum: Eigenvalues of H.
        label_noise: σ_sgd.
    """

    spectrum: tuple[float, ...]
    label_noise: float = 0.0

    def __post_init__(self) -> None:
        eigenvalues(self.spectrum)
        non_negative("label_noise", self.label_noise)

    @property
    def dimension(self) -> int:
        """Number of directions."""
        return len(self.spectrum)

    def gradient(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """X (<x, θ> - ξ)."""
        x = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
        x = x * torch.tensor(self.spectrum, dtype=theta.dtype).sqrt()
        xi = torch.randn(theta.shape[:-1], generator=generator, dtype=theta.dtype)
        residual = (x * theta).sum(dim=-1) - self.label_noise * xi
        return x * residual[..., None]

    def penalty_gradient(self, theta: Tensor) -> Tensor:
        """None."""
        return torch.zeros_like(theta)

    def excess(self, theta: Tensor) -> Tensor:
        """‖θ‖²/2 in the norm of H."""
        return (theta.square() * torch.tensor(self.spectrum, dtype=theta.dtype)).sum(dim=-1) / 2


@final
@dataclass(frozen=True)
class Server:
    """What happens to a noisy gradient: momentum and a schedule. Post-processing, so it costs no privacy.

    Attributes:
        learning_rate: η.
        momentum: In [0, 1); 0 for none.
        schedule: Factor on η at each step; None for 1. Data-independent, or a function of what was
            released.
    """

    learning_rate: float
    momentum: float = 0.0
    schedule: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        positive("learning_rate", self.learning_rate)
        if not 0 <= self.momentum < 1:
            raise PlanError(f"momentum must be in [0, 1); got {self.momentum}.")

    def step(self, theta: Tensor, velocity: Tensor, noisy: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """The next point and velocity: a function of what was released, and of nothing else."""
        velocity = self.momentum * velocity + noisy if self.momentum else noisy
        rate = self.learning_rate * (1.0 if self.schedule is None else self.schedule(t))
        return theta - rate * velocity, velocity

    def replay(self, start: Tensor, released: Tensor) -> Tensor:
        """The path that noisy gradients lead along from a start, one row for each step and the start."""
        theta, velocity, path = start, torch.zeros_like(start), [start]
        for t, noisy in enumerate(released):
            theta, velocity = self.step(theta, velocity, noisy, t)
            path.append(theta)
        return torch.stack(path)


@final
@dataclass(frozen=True, eq=False)
class FTRLRun:
    """What chains of DP-FTRL or Noisy-FTRL did.

    Attributes:
        excess: Excess risk of each chain (columns) before each step and after the last (rows).
        theta: Where the chains ended.
        clipped: Share of gradients that were clipped; 0 without clipping.
        released: The noisy gradients, if they were kept: steps, chains, dimension.
    """

    excess: NDArray[np.float64]
    theta: Tensor
    clipped: float
    released: Tensor | None = None


def private_plan(
    mechanism: AbstractMechanism, steps: int, *, rho: float, clip_norm: float = 1.0, batch: int = 1
) -> Plan:
    """The plan of one pass whose noise makes it ρ-zCDP: noise multiplier γ_T/sqrt(2ρ).

    Guarantee:
        [CorrelatedNoise24, Thm. 1.1], for the relation it holds for: one record's gradients become 0.
        `certify` gives the exact (ε, δ) of it, which is less than zCDP says.

    Example:
        >>> from antiphon.certificates import certify
        >>> from antiphon.mechanisms import NuFTRL
        >>> plan = private_plan(NuFTRL(0.01), 100, rho=0.5)
        >>> round(certify(plan, delta=1e-5).epsilon, 4)
        4.3772
    """
    T = whole("steps", steps)
    scale = math.sqrt(squared_sensitivity(mechanism, T) / (2 * positive("rho", rho)))
    return Plan(
        n=T * whole("batch", batch),
        sampling=OnePass(batch),
        steps=T,
        mechanism=mechanism,
        clip_norm=clip_norm,
        relation=Relation.ZERO_OUT,
        noise_multiplier=scale,
    )


def ftrl(
    problem: AbstractProblem,
    mechanism: AbstractMechanism,
    steps: int,
    server: Server | float,
    *,
    noise_multiplier: float,
    clip_norm: float = 1.0,
    clip: bool = True,
    start: Spectrum | None = None,
    chains: int = 1,
    seed: int = 0,
    keep: bool = False,
) -> FTRLRun:
    """Run DP-FTRL, or Noisy-FTRL without clipping, one fresh record per step and chain.

    Args:
        problem: Mean estimation, linear regression, or a law of one's own.
        mechanism: The correlated noise; its `correlate` runs.
        steps: T.
        server: What happens to noisy gradients, or the learning rate of plain descent.
        noise_multiplier: Standard deviation of the white noise per unit of clip norm.
        clip_norm: G.
        clip: Whether gradients are clipped to G. Without it nothing is private: Noisy-FTRL.
        start: θ_0 - θ*; zeros unless given.
        chains: Independent repetitions.
        seed: Of records and noise.
        keep: Whether to keep the noisy gradients.

    Guarantee:
        With ``clip``, each chain's path is private as `private_plan` says for this noise multiplier,
        clip norm and mechanism. The seed makes it reproducible, so not for release.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> run = ftrl(MeanProblem(), Independent(), 3, 0.5, noise_multiplier=0.0, start=[1.0])
        >>> run.excess.ravel().tolist()
        [0.5, 0.125, 0.03125, 0.0078125]
    """
    T, count = whole("steps", steps), whole("chains", chains)
    scale = non_negative("noise_multiplier", noise_multiplier) * positive("clip_norm", clip_norm)
    server = server if isinstance(server, Server) else Server(server)
    first = np.zeros(problem.dimension) if start is None else np.asarray(start, dtype=np.float64)
    if first.shape != (problem.dimension,) or not np.isfinite(first).all():
        raise PlanError(
            f"start has one finite number for each of {problem.dimension} coordinates; got {first}."
        )
    theta = torch.as_tensor(first).expand(count, -1).clone()
    velocity, state = torch.zeros_like(theta), mechanism.init(theta, T)
    noise = Generator.seeded(seed).spawn("noise")
    records = torch.Generator().manual_seed(seed)
    excess, released, clipped = [problem.excess(theta)], [], 0.0
    for t in range(T):
        gradient = problem.gradient(theta, records)
        if clip:
            gradient, share = _clipped(gradient, clip_norm)
            clipped += share / T
        row, state = mechanism.correlate(noise.normal(theta, t), state)
        noisy = gradient + problem.penalty_gradient(theta) + scale * row
        theta, velocity = server.step(theta, velocity, noisy, t)
        excess.append(problem.excess(theta))
        if keep:
            released.append(noisy)
    kept = torch.stack(released) if keep else None
    return FTRLRun(torch.stack(excess).numpy(), theta, clipped, kept)


def _clipped(gradient: Tensor, clip_norm: float) -> tuple[Tensor, float]:
    gradient = torch.where(gradient.isfinite().all(dim=-1, keepdim=True), gradient, 0.0)
    norms = gradient.norm(dim=-1, keepdim=True)
    factor = (clip_norm / norms.clamp_min(1e-300)).clamp_max(1.0)
    return gradient * factor, float((factor < 1).double().mean())
