"""Four calibrations of DP-GD's noise, each beside the ε that it really costs.

- `theorem_4_14_calibration`, with balls: as printed. Its logarithm and its R₂ are wrong, and at R₂ = 1 the
  noise is far more than its claim needs.
- `corrected_calibration`, with balls: the same with what the proof needs.
- `tight_calibration`, with a ball for c, or with c(k) measured before each step: exact accounting.
- `clipped_calibration`: exact accounting of clipped examples; no ball, no bound on the splines.

All steps of a calibration have one ratio of noise to sensitivity for each block, so that T steps are one
Gaussian release of μ² = T Σ (sensitivity/noise)², chosen adaptively or not [DongRothSu22].
"""

import math
from dataclasses import dataclass
from typing import Literal, final

from antiphon.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.participation import Relation
from antiphon_papers.kan_gd.printed import kan_block_constants, theorem_4_14
from antiphon_papers.kan_gd.theory.constants import SecondLayer
from antiphon_papers.kan_gd.theory.problem import Problem, sensitivities

__all__ = [
    "Block",
    "Calibration",
    "allowed_mu",
    "clipped_calibration",
    "corrected_calibration",
    "theorem_4_14_calibration",
    "tight_calibration",
]

_ROUNDING = 1e-12


@final
@dataclass(frozen=True)
class Block:
    """Parameters that share one noise.

    Attributes:
        name: Which.
        size: How many.
        sensitivity: Largest change of their mean gradient between neighbours, L2.
        noise: Standard deviation added to each coordinate of the mean gradient, per step.
    """

    name: str
    size: int
    sensitivity: float
    noise: float


@final
@dataclass(frozen=True)
class Calibration:
    """Noise for T steps, and what is true of it.

    Attributes:
        name: Which calibration.
        blocks: The noise of each block.
        steps: T.
        claimed_epsilon: What it was made for, at ``delta``.
        delta: δ.
        reserve: Part of δ kept for the event that c(0) is larger than assumed.
        relation: Between neighbours.
        failed: Conditions of the printed proof that do not hold, in words.
    """

    name: str
    blocks: tuple[Block, ...]
    steps: int
    claimed_epsilon: float
    delta: float
    reserve: float = 0.0
    relation: Relation = Relation.REPLACE_ONE
    failed: tuple[str, ...] = ()

    @property
    def mu(self) -> float:
        """Of all steps together, as one Gaussian release."""
        return math.sqrt(self.steps * sum((b.sensitivity / b.noise) ** 2 for b in self.blocks))

    @property
    def epsilon(self) -> float:
        """The ε that this noise has at ``delta``: exact if sensitivities are attained, else at most it."""
        return gaussian_epsilon(self.mu, self.delta - self.reserve)

    @property
    def true_delta(self) -> float:
        """The δ that this noise has at ``claimed_epsilon``."""
        return float(gaussian_delta(self.mu, self.claimed_epsilon)) + self.reserve

    @property
    def is_confirmed(self) -> bool:
        """Whether the claim is true, whatever its proof."""
        return self.epsilon <= self.claimed_epsilon * (1 + 1e-12)

    @property
    def energy(self) -> float:
        """Expected squared norm of one step's noise."""
        return sum(b.size * b.noise**2 for b in self.blocks)


def theorem_4_14_calibration(
    problem: Problem,
    epsilon: float,
    delta: float,
    radius: float,
    *,
    constant: Literal["main text", "proof of 4.14", "proof of D.12", "corrected"] = "main text",
    logarithm: Literal["printed", "corrected"] = "printed",
    layer: SecondLayer | None = None,
    bound: Literal["coordinates", "vectors", "slopes"] = "coordinates",
) -> Calibration:
    """The noise of [KANGradientDescent26, Thm. 4.14] as printed, beside the ε that it costs.

    Args:
        problem: The run.
        epsilon: Claimed ε.
        delta: δ.
        radius: R₂, of the ball around c(0); R₁ does not matter for privacy.
        constant: Which of the printed forms of C₁, or the one that the paper's bounds give.
        logarithm: log(2T/δ) as printed, or the 2 log(2/δ) that the proof needs.
        layer: c(0) as measured, for the true sensitivity; None is the paper's bound, which holds with
            probability 1 - δ/2. The noise does not depend on it.
        bound: Which bound on the gradient is taken for the truth.

    Guarantee:
        None as printed: `is_confirmed` says whether the claim is true here. With both corrections it
        always is.

    Example:
        >>> import warnings
        >>> problem, c = Problem(20_000, 10, 32, 100), SecondLayer(16.0, 5.0, 18.0)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     far = theorem_4_14_calibration(problem, 2.0, 5e-5, radius=1000.0, layer=c)
        >>> round(far.epsilon, 2), far.is_confirmed
        (13.77, False)
    """
    c = problem.constants
    printed = theorem_4_14(problem.steps, epsilon, delta, logarithm)
    squares = kan_block_constants(
        constant,
        problem.m,
        c.p,
        radius,
        delta,
        largest=c.coordinate[0],
        slope=c.sigma[1] * c.coordinate[1],
    )
    start = SecondLayer.a_priori(problem.m, delta, c) if layer is None else layer
    truth = sensitivities(problem, start, radius, bound)
    scale = problem.loss.slope * printed.noise / (math.sqrt(2) * problem.n)
    failed = printed.failed
    if constant != "corrected":
        failed += (f"C₁ of the {constant} does not follow from the paper's bounds",)
    return Calibration(
        f"Thm. 4.14: C₁ {constant}, logarithm {logarithm}",
        _blocks(problem, truth, (scale * math.sqrt(squares[0]), scale * math.sqrt(squares[1]))),
        problem.steps,
        epsilon,
        delta,
        start.reserve,
        failed=failed,
    )


def corrected_calibration(
    problem: Problem, epsilon: float, delta: float, radius: float
) -> Calibration:
    """Theorem 4.14 with the constant and the logarithm that its proof needs.

    σᵢ² = Cᵢ T (1 + 2 log(2/δ)/ε)/(n² ε), with C₁ from X = 2 sqrt(log(2/δ)) + R₂.

    Guarantee:
        (ε, δ)-DP under replace-one for every T, m and R₂ [KANGradientDescent26, Thm. 4.14, corrected]. It
        is loose: by exact accounting its ε is about three quarters of what it claims.

    Example:
        >>> noise = corrected_calibration(Problem(20_000, 10, 32, 100), 2.0, 5e-5, radius=1.0)
        >>> [round(b.noise, 6) for b in noise.blocks], round(noise.epsilon, 6)
        ([0.382656, 0.006421], 1.526691)
    """
    return theorem_4_14_calibration(
        problem, epsilon, delta, radius, constant="corrected", logarithm="corrected"
    )


def tight_calibration(
    problem: Problem,
    epsilon: float,
    delta: float,
    layer: SecondLayer,
    radius: float = 0.0,
    *,
    split: Literal["equal", "optimal"] = "equal",
) -> Calibration:
    """The least Gaussian noise for these sensitivities, by exact accounting.

    Two uses. Fixed: ``layer`` is c(0), measured, and c is projected onto the ball of ``radius`` around it.
    Adaptive: before each step call it with the c(k) of that step and radius 0; no ball is needed. c(0) is
    drawn without the data and c(k) is a release already paid for, so nothing is paid for measuring; with
    `SecondLayer.a_priori` instead, δ/2 is kept for a large c(0).

    Args:
        problem: The run; all T steps must use the same ε, δ and T.
        epsilon: Target ε.
        delta: Target δ.
        layer: c(0) or c(k).
        radius: R₂, or 0 for the adaptive use.
        split: "equal" gives both blocks the same ratio of noise to sensitivity; "optimal" the least
            noise energy. In the adaptive use, too: μ of every step is the same constant.

    Guarantee:
        (ε, δ)-DP under replace-one, exact for sensitivities that are attained [DongRothSu22]. Conditional
        on the past each step is a Gaussian release of μ/sqrt(T), whatever c(k).

    Example:
        >>> c = SecondLayer(norm=16.0, largest=5.0, slope_norm=17.42)
        >>> noise = tight_calibration(Problem(20_000, 10, 32, 100), 2.0, 5e-5, c, radius=1.0)
        >>> [round(b.noise, 5) for b in noise.blocks], round(noise.epsilon, 9)
        ([0.00631, 0.00182], 2.0)
    """
    mu = allowed_mu(epsilon, delta - layer.reserve)
    first, second = sensitivities(problem, layer, radius)
    if split == "equal":
        ratio = math.sqrt(2 * problem.steps) / mu
        noise = (ratio * first, ratio * second)
    elif split == "optimal":
        roots = [math.sqrt(size) for size in problem.sizes]
        total = (
            first * roots[0] + second * roots[1]
        )  # by Lagrange: noise⁴ grows as sensitivity²/size
        noise = (
            math.sqrt(problem.steps * first * total / roots[0]) / mu,
            math.sqrt(problem.steps * second * total / roots[1]) / mu,
        )
    else:
        raise PlanError(f"split is 'equal' or 'optimal'; got {split!r}.")
    name = "tight, " + ("fixed" if radius else "adaptive") + f", {split} split"
    blocks = _blocks(problem, (first, second), noise)
    return Calibration(name, blocks, problem.steps, epsilon, delta, layer.reserve)


def clipped_calibration(
    problem: Problem,
    epsilon: float,
    delta: float,
    clip_norm: float,
    relation: Relation | str = Relation.REPLACE_ONE,
) -> Calibration:
    """Noise for examples whose gradients, of both layers together, are clipped to ``clip_norm``.

    Args:
        problem: The run. The divisor is the public n under either relation.
        epsilon: Target ε.
        delta: Target δ.
        clip_norm: C, chosen without the data; 0.5 to 1 is natural for this network.
        relation: Replace-one (sensitivity 2C/n), or add-remove and zero-out (C/n).

    Guarantee:
        (ε, δ)-DP, exact [BalleWang18, Thm. 8]. It needs no ball and no bound on splines or weights.

    Example:
        >>> noise = clipped_calibration(Problem(20_000, 10, 32, 100), 2.0, 5e-5, clip_norm=1.0)
        >>> round(noise.blocks[0].noise, 7), round(noise.energy, 7)
        (0.0018152, 0.0092787)
    """
    relation = Relation.of(relation)
    sensitivity = relation.amplitude * positive("clip_norm", clip_norm) / problem.n
    noise = sensitivity * math.sqrt(problem.steps) / allowed_mu(epsilon, delta)
    block = Block("both layers", sum(problem.sizes), sensitivity, noise)
    return Calibration("clipped", (block,), problem.steps, epsilon, delta, relation=relation)


def allowed_mu(epsilon: float, delta: float) -> float:
    """The largest μ for (ε, δ), but for one part in 10¹².

    Noise made from it goes through products and roots, and is accounted for from their rounded results:
    that must not give more than ε.
    """
    return gaussian_mu(epsilon, delta) * (1 - _ROUNDING)


def _blocks(
    problem: Problem, bounds: tuple[float, float], noise: tuple[float, float]
) -> tuple[Block, ...]:
    names = ("first layer", "second layer")
    return tuple(map(Block, names, problem.sizes, bounds, noise))
