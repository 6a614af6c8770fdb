"""Utility bounds of DP-GD on two-layer KANs: one that is proved, and two rates that are not."""

import math

from antiphon.accounting import check_delta, check_epsilon
from antiphon.checks import positive
from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_gd.theory.bound import INDEPENDENT, Bound, step_conditions
from antiphon_papers.kan_gd.theory.constants import SecondLayer
from antiphon_papers.kan_gd.theory.curvature import Chain, curvature
from antiphon_papers.kan_gd.theory.problem import Problem

__all__ = ["theorem_4_15", "theorem_4_16", "theorem_d10"]


def theorem_d10(
    problem: Problem,
    layer: SecondLayer,
    *,
    radii: tuple[float, float],
    distance: float,
    step_size: float,
    initial_loss: float,
    reference_loss: float,
    energy: float,
    form: Chain = "tight",
) -> Bound:
    """Expected training loss of DP-GD, averaged over its T iterates.

    Args:
        problem: The run.
        layer: Of c(0).
        radii: R₁ and R₂ of the balls around a(0) and c(0).
        distance: Λ, of a reference point within the balls.
        step_size: η.
        initial_loss: L_S(Θ(0)).
        reference_loss: L_S(Θ*).
        energy: Expected squared norm of one step's noise: `Calibration.energy`, of a calibration with
            projection and without clipping, which this theorem does not cover.
        form: "tight"; "printed" has 4.5 instead of 3 before the noise, and the paper's constants.

    Guarantee:
        4 L_S(Θ*) + 1.5 Λ²/(ηT) + 3 η E‖B‖² + 2 L_S(Θ(0))/T [KANGradientDescent26, Thm. D.10] if
        η <= min(1, 1/(3ρ)) and κ (Λ + R₁ + R₂)² <= 1/2 on the balls. The printed statement misses 1/T in
        the last term. With l'² <= 2 l'' l the loss's own constant (1/4 for the logistic) is enough in ρ.

    Example:
        >>> c = SecondLayer(norm=16.0, largest=4.7, slope_norm=17.4)
        >>> run = dict(radii=(0.09, 0.09), distance=0.1, step_size=0.02, initial_loss=0.7)
        >>> noisy = theorem_d10(
        ...     Problem(20_000, 10, 32, 100), c, **run, reference_loss=0.69, energy=0.06
        ... )
        >>> noisy.verdict, round(noisy.value, 3)
        ('proved, but vacuous', 2.785)
    """
    first, second = radii
    at = curvature(problem, layer, distance=second, chain=form)
    reach = distance + first + second
    horizon = positive("step_size", step_size) * problem.steps
    noise = (3.0 if form == "tight" else 4.5) * step_size * energy
    value = 4 * reference_loss + 1.5 * distance**2 / horizon
    value += noise + 2 * initial_loss / problem.steps
    return Bound(
        "KANGradientDescent26, Thm. D.10",
        value,
        initial_loss,
        (
            Condition.at_most("κ (Λ + R₁ + R₂)² <= 1/2", at.weakness * reach**2, 0.5),
            Condition.at_most("Λ <= ‖(R₁, R₂)‖", distance, math.hypot(first, second)),
            *step_conditions(step_size, at.smoothness, 3),
        ),
    )


def theorem_4_15(
    problem: Problem,
    epsilon: float,
    delta: float,
    *,
    radii: tuple[float, float],
    distance: float,
    step_size: float,
    largest_step: float,
) -> Bound:
    """The rate of DP-GD's population risk, averaged over iterates, with unknown constants set to 1.

    Args:
        problem: The run.
        epsilon: ε.
        delta: δ.
        radii: R₁ and R₂.
        distance: Λ.
        step_size: η.
        largest_step: 1/(3ρ) on the balls, for instance from `curvature`.

    Guarantee:
        None [KANGradientDescent26, Thm. 4.15]: Lemma D.11 takes an expectation into an exponential of
        correlated growth factors, in the wrong direction. The lower limit on m is R⁴ + Λ⁴ as in D.10; the
        main text prints R². The upper one is a condition, not a proof that narrow networks are necessary.

    Example:
        >>> run = dict(radii=(1.0, 1.0), distance=2.0, step_size=1.0, largest_step=0.03)
        >>> rate = theorem_4_15(Problem(20_000, 10, 32, 100), 2.0, 5e-5, **run)
        >>> {c.name: float(f"{c.limit:.2g}") for c in rate.conditions}["upper limit on the width"]
        6.5e-05
    """
    check_epsilon(epsilon)
    check_delta(delta)
    n, d, m, horizon = problem.n, problem.d, problem.m, step_size * problem.steps
    total = sum(radii)
    width, log = math.log(m / delta) + total**2, math.log(problem.steps / delta)
    upper = (n * epsilon / horizon) ** 4 / (problem.constants.p**10 * d**2 * width * log**2)
    value = (1 / horizon + m**0.25 / n) * distance**2
    value += (1 + horizon / n) * m * horizon * d * log / (n * epsilon) ** 2
    return Bound(
        "KANGradientDescent26, Thm. 4.15",
        value,
        math.log(2),
        (
            Condition.at_least("lower limit on the width", m, width * (total**4 + distance**4)),
            Condition.at_most("upper limit on the width", m, upper),
            Condition.at_most("step size", step_size, min(1.0, largest_step)),
            Condition.at_most("ε <= log(T/δ)", epsilon, log),
        ),
        is_explicit=False,
        unproved=("Lemma D.11 bounds E exp(ΣM) by exp(E ΣM)", INDEPENDENT),
    )


def theorem_4_16(
    problem: Problem,
    epsilon: float,
    delta: float,
    *,
    margin: float | None,
    step_size: float,
    largest_step: float,
) -> Bound:
    """The rate of DP-GD's risk under separability, with unknown constants set to 1.

    Args:
        problem: The run.
        epsilon: ε.
        delta: δ.
        margin: γ; None if the sample is not separable, where the theorem says nothing.
        step_size: η.
        largest_step: 1/(3ρ) on the balls.

    Guarantee:
        None: log⁶(n/δ) √d/(γ⁴ n ε) [KANGradientDescent26, Thm. 4.16] rests on Theorem 4.15. It asks for
        ηT ≍ γ² n ε/(√d log^2.5(n/δ)) and m ≍ log⁶(n/δ)/γ⁶, read here as "at most" and "at least".

    Example:
        >>> run = dict(margin=1.0, step_size=1.0, largest_step=0.03)
        >>> rate = theorem_4_16(Problem(20_000, 10, 32, 100), 2.0, 5e-5, **run)
        >>> [float(f"{c.limit:.3g}") for c in rate.conditions[1:3]]
        [7.24, 60400000.0]
    """
    check_epsilon(epsilon)
    check_delta(delta)
    gamma, log = margin or 0.0, math.log(problem.n / delta)
    root = math.sqrt(problem.d)
    horizon = gamma**2 * problem.n * epsilon / (root * log**2.5)
    rate = log**6 * root / (problem.n * epsilon)
    return Bound(
        "KANGradientDescent26, Thm. 4.16",
        rate / gamma**4 if gamma else math.inf,
        math.log(2),
        (
            Condition("separable: γ > 0", gamma, 0.0, gamma > 0, 1.0 if gamma else math.inf),
            Condition.at_most("horizon ηT", step_size * problem.steps, horizon),
            Condition.at_least("width", problem.m, log**6 / gamma**6 if gamma else math.inf),
            Condition.at_most("step size", step_size, min(1.0, largest_step)),
        ),
        is_explicit=False,
        unproved=("it rests on Theorem 4.15, which is not proved", INDEPENDENT),
    )
