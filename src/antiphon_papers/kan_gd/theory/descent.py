"""Training and generalisation bounds of gradient descent without noise on two-layer KANs.

Θ* is a point to compare with, Λ = ‖Θ(0) - Θ*‖ its distance from the start, L_S the training loss.
Explicit bounds are guarantees where all their conditions hold; where one fails the number still comes,
with the factor by which it fails. Widths of practice fail by factors of 10⁶ and more.
"""

import math

from antiphon.accounting import check_delta
from antiphon.checks import positive
from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_gd.theory.bound import INDEPENDENT, Bound, step_conditions, width_condition
from antiphon_papers.kan_gd.theory.constants import SecondLayer
from antiphon_papers.kan_gd.theory.curvature import Chain, Curvature, curvature
from antiphon_papers.kan_gd.theory.problem import Problem

__all__ = [
    "printed_step_limit_4_7",
    "theorem_4_3",
    "theorem_4_7",
    "theorem_4_9",
    "theorem_4_10",
    "theorem_4_11",
    "theorem_4_12",
]


def theorem_4_3(
    problem: Problem,
    layer: SecondLayer,
    *,
    distance: float,
    step_size: float,
    initial_loss: float,
    reference_loss: float,
    chain: Chain = "tight",
) -> Bound:
    """Training loss after T steps of gradient descent, and on average over them.

    Args:
        problem: The run.
        layer: Of c(0).
        distance: Λ, of the reference point Θ*.
        step_size: η.
        initial_loss: L_S(Θ(0)).
        reference_loss: L_S(Θ*).
        chain: Constants "tight" or "printed".

    Guarantee:
        1.4 L_S(Θ*) + 0.6 Λ²/(ηT) + 0.2 L_S(Θ(0))/T [KANGradientDescent26, Thm. B.4], whose last display
        prints 6/5 for 7/5. All iterates stay within √2 Λ of Θ*. The proof bounds the loss summed from the
        start by Λ²/η; its own terms give 1.25 Λ²/η, which is used here.

    Example:
        >>> c = SecondLayer(norm=16.18, largest=4.69, slope_norm=17.5)
        >>> run = dict(distance=5.0, step_size=0.05, initial_loss=0.7, reference_loss=0.01)
        >>> theorem_4_3(Problem(20_000, 10, 32, 100), c, **run).verdict
        'not proved here: width >= 64 c_max² Λ⁴ fails by a factor of 2.42e+07'
    """
    horizon = positive("step_size", step_size) * problem.steps
    squared = positive("distance", distance) ** 2
    needed = 4 * step_size * max(problem.steps * reference_loss, initial_loss)
    ball = curvature(problem, layer, distance=3 * distance, chain=chain)
    path = _along(problem, layer, 1.25 * squared, 3 * distance, chain)
    value = 1.4 * reference_loss + 0.6 * squared / horizon + 0.2 * initial_loss / problem.steps
    return Bound(
        "KANGradientDescent26, Thm. 4.3",
        value,
        initial_loss,
        (
            Condition.at_least("Λ² >= 4 η max(T L_S(Θ*), L_S(Θ(0)))", squared, needed),
            width_condition(problem, ball, 64, squared, "width >= 64 c_max² Λ⁴"),
            *step_conditions(step_size, path.smoothness, 1),
        ),
    )


def theorem_4_7(
    problem: Problem,
    layer: SecondLayer,
    *,
    distance: float,
    step_size: float,
    initial_loss: float,
    chain: Chain = "tight",
) -> Bound:
    """Training loss if some point near the start has a loss of 1/T.

    Args:
        problem: The run.
        layer: Of c(0).
        distance: g(1/T), from the start to the nearest point with a training loss of at most 1/T (or to
            any such point; a run of gradient descent gives one).
        step_size: η.
        initial_loss: L_S(Θ(0)).
        chain: Constants "tight" or "printed".

    Guarantee:
        (2η + g²)/(ηT) [KANGradientDescent26, Thm. 4.7] under η <= g²/(4 max(1, L_S(Θ(0)))), η <= 1/ρ and
        the width of Theorem 4.3. The printed step condition is `printed_step_limit_4_7`.

    Example:
        >>> c = SecondLayer(norm=16.18, largest=4.69, slope_norm=17.5)
        >>> run = dict(distance=5.0, step_size=0.05, initial_loss=0.7)
        >>> theorem_4_7(Problem(20_000, 10, 32, 10_000), c, **run).value
        0.0502
    """
    first = theorem_4_3(
        problem,
        layer,
        distance=distance,
        step_size=step_size,
        initial_loss=initial_loss,
        reference_loss=1 / problem.steps,
        chain=chain,
    )
    value = (2 * step_size + distance**2) / (step_size * problem.steps)
    return Bound("KANGradientDescent26, Thm. 4.7", value, initial_loss, first.conditions)


def printed_step_limit_4_7(reach: float, initial_loss: float) -> float:
    """The largest step of [KANGradientDescent26, Thm. 4.7] as printed, with its constant set to 1.

    Args:
        reach: g(1), the distance to the nearest point with a training loss of at most 1.
        initial_loss: L_S(Θ(0)).

    Guarantee:
        None, and it allows no step where the loss starts below 1, as it does here: then g(1) = 0.

    Example:
        >>> printed_step_limit_4_7(0.0, 0.7)
        0.0
    """
    return min(reach**2, reach**2 / initial_loss)


def theorem_4_9(
    problem: Problem,
    layer: SecondLayer,
    *,
    margin: float,
    step_size: float,
    initial_loss: float,
    failure: float,
    largest_output: float | None = None,
    chain: Chain = "tight",
) -> Bound:
    """Training loss if the tangent features at the start separate the sample.

    Args:
        problem: The run.
        layer: Of c(0).
        margin: γ of Assumption 4.8, positive.
        step_size: η.
        initial_loss: L_S(Θ(0)).
        failure: Probability δ over the start with which it may fail.
        largest_output: max_i |f(x_i)| at the start, which depends on the data: only where nothing of
            this is released. None takes a bound that holds with probability 1 - δ.
        chain: Constants "tight" or "printed".

    Guarantee:
        Moving by τ = max(4 log T, 2F₀)/γ along the separating direction brings the loss to 1/T, if the
        Hessian of f is at most γ/(2τ) on the way; then Theorem 4.3 with Λ = τ
        [KANGradientDescent26, Thm. 4.9], printed as the rate (log² T + log(n/δ))/(γ² η T).

    Example:
        >>> c = SecondLayer(norm=16.18, largest=4.69, slope_norm=17.5)
        >>> run = dict(margin=0.086, step_size=0.05, initial_loss=0.7, failure=0.01)
        >>> bound = theorem_4_9(Problem(1_500, 784, 32, 100), c, **run)
        >>> bound.is_vacuous, len(bound.failed)
        (True, 3)
    """
    check_delta(failure)
    c = problem.constants
    value = c.vector[0] if chain == "tight" else c.coordinate[0] * math.sqrt(c.p)
    output = largest_output
    if output is None:
        output = value * math.sqrt(2 * math.log(2 * problem.n / failure))
    tau = max(4 * math.log(problem.steps), 2 * output) / positive("margin", margin)
    first = theorem_4_3(
        problem,
        layer,
        distance=tau,
        step_size=step_size,
        initial_loss=initial_loss,
        reference_loss=1 / problem.steps,
        chain=chain,
    )
    way = curvature(problem, layer, distance=tau, chain=chain)
    flat = Condition.at_most("Hessian of f <= γ/(2τ)", way.hessian, margin / (2 * tau))
    return Bound(
        "KANGradientDescent26, Thm. 4.9", first.value, initial_loss, (flat, *first.conditions)
    )


def theorem_4_10(
    problem: Problem,
    layer: SecondLayer,
    *,
    distance: float,
    step_size: float,
    initial_loss: float,
    reference_loss: float,
    total_loss: float,
    chain: Chain = "tight",
) -> Bound:
    """Expected gap between population risk and training loss after T steps.

    Args:
        problem: The run.
        layer: Of c(0).
        distance: Λ.
        step_size: η.
        initial_loss: At Θ(0), on the sample plus on an independent copy of it.
        reference_loss: At Θ*, likewise both together.
        total_loss: Expected Σ_{t < T} L_S(Θ(t)).
        chain: Constants "tight" or "printed".

    Guarantee:
        2e η G²/n times ``total_loss``, G the largest gradient of f within 3Λ of the start
        [KANGradientDescent26, Thm. 4.10], for a Θ* that does not depend on the sample. Its proof asks for
        a width of 36 c_max² Λ⁴ where 1296 = 36² is needed; and here R_c comes from Lemma B.3 instead of
        3Λ, or the step would have to be of the order 1/Λ².

    Example:
        >>> c = SecondLayer(norm=16.18, largest=4.69, slope_norm=17.5)
        >>> run = dict(distance=5.0, step_size=0.05, initial_loss=1.4, reference_loss=0.02)
        >>> round(theorem_4_10(Problem(20_000, 10, 32, 100), c, **run, total_loss=50.0).value, 4)
        0.0528
    """
    squared = positive("distance", distance) ** 2
    needed = 8 * positive("step_size", step_size)
    needed *= max(problem.steps * reference_loss, initial_loss)
    ball = curvature(problem, layer, distance=3 * distance, chain=chain)
    path = _along(problem, layer, squared, 3 * distance, chain)
    steep = problem.loss.slope * problem.loss.self_bound * ball.gradient**2
    value = 2 * math.e * step_size * steep / problem.n * total_loss
    return Bound(
        "KANGradientDescent26, Thm. 4.10",
        value,
        math.log(2),
        (
            Condition.at_least("Λ² >= 8 η max(T L(Θ*), L(Θ(0))) on both", squared, needed),
            width_condition(problem, ball, 1296, squared, "width >= 1296 c_max² Λ⁴"),
            *step_conditions(step_size, path.smoothness, 2),
        ),
        unproved=(INDEPENDENT,),
    )


def theorem_4_11(
    problem: Problem,
    layer: SecondLayer,
    *,
    distance: float,
    step_size: float,
    initial_loss: float,
    reference_loss: float,
    chain: Chain = "tight",
) -> Bound:
    """Expected population risk after T steps of gradient descent.

    Args:
        problem: The run.
        layer: Of c(0).
        distance: Λ.
        step_size: η.
        initial_loss: Expected loss at Θ(0).
        reference_loss: Expected loss at Θ*.
        chain: Constants "tight" or "printed".

    Guarantee:
        Theorems 4.3 and 4.10 added: C/(ηT) + (2e G²/n)(C + η L(Θ(0))) with C = 2ηT L(Θ*) + Λ²
        [KANGradientDescent26, Thm. 4.11], printed as the rate (Λ²/n + 1/(ηT)) C.

    Example:
        >>> c = SecondLayer(norm=16.18, largest=4.69, slope_norm=17.5)
        >>> run = dict(distance=5.0, step_size=0.05, initial_loss=0.7, reference_loss=0.01)
        >>> theorem_4_11(Problem(20_000, 10, 32, 100), c, **run).is_vacuous
        True
    """
    horizon = step_size * problem.steps
    cost = 2 * horizon * reference_loss + distance**2
    gap = theorem_4_10(
        problem,
        layer,
        distance=distance,
        step_size=step_size,
        initial_loss=2 * initial_loss,
        reference_loss=2 * reference_loss,
        total_loss=cost / step_size + initial_loss,
        chain=chain,
    )
    return Bound(
        "KANGradientDescent26, Thm. 4.11",
        cost / horizon + gap.value,
        math.log(2),
        gap.conditions,
        unproved=gap.unproved,
    )


def theorem_4_12(problem: Problem, *, margin: float, failure: float, step_size: float) -> Bound:
    """The rate of the population risk under separability, with unknown constants set to 1.

    Args:
        problem: The run.
        margin: γ.
        failure: δ.
        step_size: η.

    Guarantee:
        None: (log⁴ n + log²(n/δ))/(γ⁴ n) up to an unknown constant [KANGradientDescent26, Thm. 4.12].

    Example:
        >>> problem = Problem(20_000, 10, 32, 100)
        >>> theorem_4_12(problem, margin=0.1, failure=0.01, step_size=1.0).is_vacuous
        True
    """
    n, m, log = problem.n, problem.m, math.log(problem.n / failure)
    width = math.log(m / failure) * (math.log(problem.steps) ** 6 + log**3)
    return Bound(
        "KANGradientDescent26, Thm. 4.12",
        (math.log(n) ** 4 + log**2) / (margin**4 * n),
        math.log(2),
        (
            Condition.at_least("horizon ηT >= n", step_size * problem.steps, n),
            Condition.at_least("width >= log(m/δ)(log⁶ T + log³(n/δ))/γ⁶", m, width / margin**6),
        ),
        is_explicit=False,
        unproved=(INDEPENDENT,),
    )


def _along(
    problem: Problem, layer: SecondLayer, total: float, distance: float, chain: Chain
) -> Curvature:
    """On the path of gradient descent, where η times the sum of losses is at most ``total``."""
    at = curvature(problem, layer, chain=chain)
    drift = problem.loss.self_bound * at.second * total / math.sqrt(problem.m)
    whole = min(distance, math.sqrt(problem.m) * drift)
    return curvature(problem, layer, distance=whole, drift=min(distance, drift), chain=chain)
