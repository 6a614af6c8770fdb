"""From training to population loss by stability: how little the run changes if one record does.

Two runs on neighbouring samples share batches and noise. Between them the distance grows by the factor
1 + a η (losses of both batches) a step, with a = 2H, and by η G/B times the losses of the exchanged record.
"""

import math
from dataclasses import replace

from antiphon.checks import whole
from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_sgd.theory.descent import Descent, LossBound
from antiphon_papers.kan_sgd.theory.geometry import Constants
from antiphon_papers.kan_sgd.theory.tails import log_over

__all__ = [
    "population_bound",
    "stability_bound",
    "stability_conditions",
    "theorem_5_2_width_printed",
    "theorem_c23_width",
]


def stability_conditions(
    run: Descent, constants: Constants, n: int, loss: float, ball: float, failure: float
) -> tuple[Condition, ...]:
    """What the stability of a run needs [KANCorrelated26, Lem. C.16, C.20], with explicit constants.

    Args:
        run: The run.
        constants: Of the network.
        n: Records.
        loss: A bound on the average training loss of both runs.
        ball: R_*, which the algorithm projects on.
        failure: Of the outputs at W_0, and of each run's batch losses.

    Guarantee:
        The distance then grows by at most e over the run. The radius R_* belongs into the largest loss
        log 2 + s sqrt(2 log(4n/δ)) + G R_*, where Theorem D.15 leaves it out; it need not multiply the
        width a second time, as it does in Theorem C.23.
    """
    log = log_over(1, failure)
    largest = (
        math.log(2)
        + constants.output * math.sqrt(2 * log_over(4 * whole("n", n), failure))
        + constants.gradient * ball
    )
    batches = math.sqrt(2 * run.iterates * log / run.batch) + 2 / 3 * log
    growth = 4 * run.step_size * constants.hessian * (run.iterates * loss + largest * batches)
    return (
        Condition.at_most("step size, 1/β", run.step_size, 1 / constants.smoothness),
        Condition.at_most("localisation of both runs, 1", constants.hessian * (2 * ball) ** 2, 1.0),
        Condition.at_most("growth of the distance, 1", growth, 1.0),
    )


def stability_bound(
    run: Descent, constants: Constants, n: int, loss: float, ball: float, failure: float
) -> float:
    """How far apart two runs end on average that differ in one record [KANCorrelated26, Thm. C.22].

    Args:
        run: The run.
        constants: Of the network.
        n: Records.
        loss: A bound on the *expected* average training loss.
        ball: R_*.
        failure: Probability that one of the events behind the bound fails.

    Guarantee:
        Under `stability_conditions`: 2e η G T loss/n + 2 R_* failure. The factor e, which Theorem C.23
        loses, is kept.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 1e-3, clip_norm=5.0)
        >>> known = Constants(gradient=5.0, hessian=1e-3, output=1.0, worst=1.0)
        >>> round(stability_bound(run, known, 10_000, loss=0.1, ball=2.0, failure=1e-6), 6)
        0.000276
    """
    grown = 2 * math.e * run.step_size * constants.gradient * run.iterates * loss
    return grown / whole("n", n) + 2 * ball * failure


def population_bound(
    run: Descent, constants: Constants, n: int, training: LossBound, failure: float
) -> LossBound:
    """The expected average population loss of a run [KANCorrelated26, Thm. 5.2, C.23], corrected.

    Args:
        run: The run.
        constants: Of the network.
        n: Records.
        training: From `optimization_bound`; must hold for (almost) all samples, so with one γ for the
            law of the data. ``training.ball`` is taken as R_*.
        failure: Of the outputs at W_0 and of each run's batch losses.

    Guarantee:
        Under the conditions, with probability 1 - sqrt(q) over the start, where q is the probability of
        all events that may fail, over the start, two samples and two runs. The sqrt is Markov's inequality,
        without which a probability given the start is not known; the paper leaves it out. The gap is
        2G times `stability_bound`. ``failure`` of the result is sqrt(q).

    Example:
        >>> run = Descent(2, 64, 1000, 100, 1e-3, clip_norm=5.0)
        >>> known = Constants(gradient=5.0, hessian=1e-9, output=1.0, worst=50.0)
        >>> training = LossBound((("all", 0.1),), (), 1e-12, 1.0, 2.0)
        >>> bound = population_bound(run, known, 10**6, training, failure=1e-12)
        >>> bound.is_proved, round(bound.loss, 4)
        (True, 0.1003)
    """
    ball = training.ball
    broken = min(1.0, math.sqrt(2 * training.failure + 3 * failure))
    worst = math.log(2) + constants.worst + constants.gradient * ball
    expected = training.loss + broken * worst
    apart = stability_bound(run, constants, n, expected, ball, broken)
    conditions = stability_conditions(run, constants, n, training.loss, ball, failure)
    return replace(
        training,
        terms=(
            *training.terms,
            ("broken events", broken * worst),
            ("generalisation", 2 * constants.gradient * apart),
        ),
        conditions=(*training.conditions, *conditions),
        failure=broken,
    )


def theorem_c23_width(
    run: Descent, n: int, loss: float, ball: float, failure: float
) -> tuple[float, str]:
    """The width that the population bound asks for, up to a constant [KANCorrelated26, Thm. C.23].

    Returns:
        R_*² log(m/δ) η² (TA + (log(n/δ) + R_*)(sqrt(T log(1/δ)/B) + log(1/δ)))², and what is unknown.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 1e-3, clip_norm=5.0)
        >>> round(theorem_c23_width(run, 10_000, loss=0.1, ball=2.0, failure=0.01)[0], 3)
        2.752
    """
    total, tail, front = _width_parts(run, n, loss, ball, failure)
    return front * (total + (log_over(n, failure) + ball) * tail) ** 2, _UNKNOWN


def theorem_5_2_width_printed(
    run: Descent, n: int, loss: float, ball: float, failure: float
) -> tuple[float, str]:
    """The same as the main text prints it, with the square in the wrong place [KANCorrelated26, Thm. 5.2].

    Guarantee:
        None: use `stability_conditions`.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 1e-3, clip_norm=5.0)
        >>> round(theorem_5_2_width_printed(run, 10_000, loss=0.1, ball=2.0, failure=0.01)[0], 3)
        0.527
    """
    total, tail, front = _width_parts(run, n, loss, ball, failure)
    return front * (total + log_over(n, failure) + ball) * tail**2, _UNKNOWN


_UNKNOWN = "an absolute constant and powers of p"


def _width_parts(
    run: Descent, n: int, loss: float, ball: float, failure: float
) -> tuple[float, float, float]:
    log = log_over(1, failure)
    tail = math.sqrt(run.iterates * log / run.batch) + log
    front = ball**2 * log_over(run.width, failure) * run.step_size**2
    return run.iterates * loss, tail, front
