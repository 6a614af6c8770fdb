"""What the bounds advise for a private run, each number with its reason."""

import math
from dataclasses import dataclass
from typing import final

from antiphon.accounting import check_delta, check_epsilon
from antiphon.checks import positive, whole
from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_gd.calibration import Calibration, clipped_calibration
from antiphon_papers.kan_gd.theory.constants import KANConstants, SecondLayer, kan_constants
from antiphon_papers.kan_gd.theory.private import theorem_d10
from antiphon_papers.kan_gd.theory.problem import Problem

__all__ = ["Advice", "Horizon", "advise", "best_horizon"]


@final
@dataclass(frozen=True)
class Horizon:
    """Where Theorem D.10 is smallest.

    Attributes:
        length: η T.
        value: The two terms that depend on it, at that length, in units of the loss.
    """

    length: float
    value: float


def best_horizon(energy_rate: float, distance: float) -> Horizon:
    """The product ηT that balances distance and noise: 1.5 Λ²/(ηT) + 3 v (ηT) is smallest.

    Args:
        energy_rate: v, the noise energy of one step divided by T; a calibration for T steps has an energy
            that grows as T, so that v does not depend on T.
        distance: Λ, how far the reference point is from the start.

    Guarantee:
        ηT = Λ/sqrt(2v) with the value 2Λ sqrt(4.5 v), from [KANGradientDescent26, Thm. D.10] with the
        constants of `theorem_d10`. Only the product matters to it.

    Example:
        >>> noise = clipped_calibration(Problem(20_000, 10, 32, 100), 2.0, 5e-5, clip_norm=0.5)
        >>> round(best_horizon(noise.energy / 100, distance=12.0).length)
        1762
    """
    v, reach = positive("energy_rate", energy_rate), positive("distance", distance)
    return Horizon(reach / math.sqrt(2 * v), 2 * reach * math.sqrt(4.5 * v))


@final
@dataclass(frozen=True)
class Advice:
    """A private run of clipped full-batch descent.

    Attributes:
        width: m.
        steps: T.
        step_size: η.
        clip_norm: C.
        noise: The calibration of exactly these steps.
        reasons: One sentence for each of the above, by its name.
        horizon: The ηT that was aimed at, and what Theorem D.10 would say of it.
        conditions: Those of Theorem D.10 at these numbers, for balls that hold the reference point. They
            fail: the advice follows the shape of a bound, and is no guarantee of utility.
        warnings: What is unusual in the request.
    """

    width: int
    steps: int
    step_size: float
    clip_norm: float
    noise: Calibration
    reasons: dict[str, str]
    horizon: Horizon
    conditions: tuple[Condition, ...]
    warnings: tuple[str, ...]


def advise(
    n: int,
    d: int,
    epsilon: float,
    delta: float | None = None,
    *,
    width: int = 16,
    step_size: float = 8.0,
    clip_norm: float = 0.5,
    distance: float = 12.0,
    constants: KANConstants | None = None,
) -> Advice:
    """Width, steps, step size and noise for a private two-layer KAN.

    Args:
        n: Number of examples, public.
        d: Number of inputs.
        epsilon: ε.
        delta: δ; None is n^-1.1.
        width: m; 16 lies on the plateau of the non-private curves that are known (8 to 32). None of the
            defaults looks at the data; a choice that does must be paid for.
        step_size: η; 8 is stable in experiments with tanh, though the proofs allow 0.09 at most.
        clip_norm: C; examples' gradients have norms of 0.5 to 1.4 in experiments.
        distance: Λ, how far a good point is from the start; descent moved by about 12 in experiments.
        constants: Of the grid and the activation.

    Guarantee:
        Of privacy: (ε, δ)-DP under replace-one for clipped full-batch steps with this noise, exactly. Of
        utility: none. Theorems 4.15 and 4.16 are not used, since they are not proved.

    Example:
        >>> advice = advise(20_000, 10, 2.0, 5e-5, width=32)
        >>> advice.steps, advice.step_size, round(advice.noise.blocks[0].noise, 6)
        (220, 8.0, 0.001346)
        >>> advice.reasons["steps"]
        'Noise and distance balance at ηT = 1762, and only that product matters to first order.'
    """
    check_epsilon(epsilon)
    chosen = float(n) ** -1.1 if delta is None else delta
    check_delta(chosen)
    known = kan_constants() if constants is None else constants
    positive("step_size", step_size)
    one = Problem(n, d, whole("width", width), 1, known)
    horizon = best_horizon(clipped_calibration(one, epsilon, chosen, clip_norm).energy, distance)
    steps = max(1, round(horizon.length / step_size))
    problem = Problem(n, d, width, steps, known)
    noise = clipped_calibration(problem, epsilon, chosen, clip_norm)
    bound = theorem_d10(
        problem,
        SecondLayer.a_priori(width, chosen, known),
        radii=(distance, distance),
        distance=distance,
        step_size=step_size,
        initial_loss=math.log(2),
        reference_loss=0.0,
        energy=noise.energy,
    )
    share = f"{noise.blocks[0].noise:.3g}"
    reasons = {
        "width": "Noise energy grows with the width while accuracy stops rising at 8 to 32: take the "
        "smallest width on the plateau of a non-private curve on public data.",
        "steps": f"Noise and distance balance at ηT = {horizon.length:.0f}, and only that product "
        "matters to first order.",
        "step_size": "Few large steps are as good as many small ones and cost less time, not more "
        "privacy: the noise is calibrated to their number.",
        "clip_norm": "Examples' gradients have norms of 0.5 to 1.4 in experiments, and the noise grows "
        "with the clip norm.",
        "noise": f"A standard deviation of {share} per coordinate of the mean gradient is what exact "
        f"accounting of {steps} full-batch steps needs.",
    }
    warnings = (
        () if chosen * n < 1 else (f"δ = {chosen:g} is at least 1/n: too large by convention.",)
    )
    return Advice(
        width, steps, step_size, clip_norm, noise, reasons, horizon, bound.conditions, warnings
    )
