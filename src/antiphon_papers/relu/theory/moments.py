"""Second moments of GLMtron's iterates, step by step, and of their averages.

A_t = E[(w_t - w*)(w_t - w*)ᵀ] of mini-batch GLMtron without clipping, each step on fresh records and with
noise of standard deviation ν on the mean direction. Sharper than the closed forms of `theorem_4`, which
it implies, and within a hundredth of simulations.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon_papers.relu.theory.problem import Problem

__all__ = [
    "Descent",
    "average_bias",
    "averaged_error",
    "contraction",
    "second_moments",
    "steady_state",
    "window",
]

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Descent:
    """One pass of mini-batch GLMtron from w = 0, each record used once.

    Attributes:
        steps: T.
        batch: b, records in a step.
        step_size: η.
        noise: ν, standard deviation of the noise on the mean direction in each coordinate: noise multiplier
            times clip norm over b; 2 f s/b in the paper's letters.
        average: "full" (w_0 to w_{T-1}), "tail" (its second half) or "last" (w_T).
    """

    steps: int
    batch: int
    step_size: float
    noise: float
    average: str = "tail"

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("batch", self.batch)
        positive("step_size", self.step_size)
        if not 0 <= self.noise < math.inf:
            raise PlanError(f"noise is a standard deviation, at least 0; got {self.noise}.")
        window(self.average, self.steps)


def window(average: str, steps: int) -> tuple[int, int]:
    """The iterates that are averaged, as (first, one after the last).

    Example:
        >>> window("full", 10), window("tail", 37), window("last", 10)
        ((0, 10), (18, 37), (10, 11))
    """
    match average:
        case "full":
            return 0, steps
        case "tail":
            return steps // 2, steps
        case "last":
            return steps, steps + 1
        case _:
            raise PlanError(f"average is 'full', 'tail' or 'last'; got {average!r}.")


def second_moments(problem: Problem, run: Descent, *, is_gaussian: bool = True) -> Array:
    """Upper bounds on A_0, ..., A_T in the order of symmetric matrices; shape (T + 1, d, d).

    A - (η/2)(HA + AH) + (η²/b)[½ M∘A + ((b-1)/4) HAH] + (η²σ²/b) H + η²ν² I follows A, where M∘A is
    2HAH + tr(HA) H for Gaussian inputs and at most α tr(HA) H for others.

    Args:
        problem: What is learned.
        run: How.
        is_gaussian: Whether inputs are; else α of the problem is used.

    Guarantee:
        Holds for a well-specified model under Assumption 3 as long as nothing is clipped, by induction: the
        map is monotone. Equality but for records on which w_t and w* disagree in sign.

    Example:
        >>> problem = Problem([1.0], label_noise=0.0)
        >>> second_moments(problem, Descent(1, 1000, 1.0, noise=0.0))[:, 0, 0].round(3).tolist()
        [1.0, 0.251]
    """
    H, eta, b = problem.covariance, run.step_size, run.batch
    added = eta**2 * (problem.label_noise**2 / b * H + run.noise**2 * np.eye(problem.d))
    moments = [np.outer(problem.target, problem.target)]
    for _ in range(run.steps):
        A = moments[-1]
        HA = H @ A
        HAH = HA @ H
        fourth = np.trace(HA) * H * (1.0 if is_gaussian else problem.alpha)
        if is_gaussian:
            fourth = fourth + 2 * HAH
        grown = eta**2 / b * (fourth / 2 + (b - 1) / 4 * HAH)
        moments.append(A - eta / 2 * (HA + HA.T) + grown + added)
    return np.array(moments)


def averaged_error(problem: Problem, run: Descent, *, is_gaussian: bool = True) -> float:
    """E‖w̄ - w*‖_H² of the averaged iterate; its risk is within [1/8, 1/2] of it, near w* about a quarter.

    Guarantee:
        That of `second_moments`, where η λ_max <= 2, since E[w_k - w* | w_t] = (I - ηH/2)^(k-t)(w_t - w*).

    Raises:
        PlanError: If η λ_max is above 2, where iterates move away from w*.
    """
    first, end = window(run.average, run.steps)
    lam, U = np.linalg.eigh(problem.covariance)
    if run.step_size * lam[-1] > 2:
        raise PlanError(
            f"a step size of {run.step_size:g} is above 2/λ_max = {2 / lam[-1]:.4g}: the error of averages "
            "is not bounded by that of iterates there. Take smaller steps."
        )
    moments = second_moments(problem, run, is_gaussian=is_gaussian)[first:end]
    diagonals = np.einsum(
        "ji,tjk,ki->ti", U, moments, U
    )  # of Uᵀ A_t U: all that tr(H q(H) A_t) needs
    q = 1 - run.step_size * lam / 2
    left = np.arange(len(moments))[::-1, None]  # iterates of the window after t
    following = _powers(q, left)
    total = float((lam * diagonals * (1 + 2 * following)).sum())
    return total / len(moments) ** 2


def average_bias(q: float, first: int, end: int) -> float:
    """What remains of the initial risk in the noise-free average of iterates first to end - 1.

    ((q^first - q^end)/((end - first)(1 - q)))², q = 1 - ηλ/2: of order 1/T² for the full average, so that
    Theorem 4's 1/poly(N) needs a tail average.

    Example:
        >>> f"{average_bias(0.5, 0, 37):.3e} {average_bias(0.5, 18, 37):.1e}"
        '2.922e-03 1.6e-13'
    """
    if not (0 <= first < end and 0 <= q <= 1):
        raise PlanError(f"needs 0 <= first < end and q in [0, 1]; got {first}, {end} and {q}.")
    mean = np.mean(np.power(float(q), np.arange(first, end)))
    return float(mean**2)


def contraction(d: int, step_size: float, batch: int = 1) -> float:
    """E‖Pz‖²/‖z‖² of one step for x ~ N(0, I): 1 - η + (η²/b)((d + 2)/2 + (b - 1)/4).

    Guarantee:
        Exact, and above the 1 - η that [ReLURegression25, Lemmas 12 and 17] claim, for every step.

    Example:
        >>> round(contraction(10, 0.01), 6)
        0.9906
    """
    eta, b = positive("step_size", step_size), whole("batch", batch)
    return 1 - eta + eta**2 / b * ((whole("d", d) + 2) / 2 + (b - 1) / 4)


def steady_state(d: int, step_size: float, batch: int, label_noise: float, noise: float) -> float:
    """Where A_t ends for x ~ N(0, I), in each coordinate.

    Raises:
        PlanError: If steps are so long that nothing converges.

    Example:
        >>> round(steady_state(10, 1.0, 1000, label_noise=0.5, noise=0.1), 8)
        0.01377225
    """
    left = 1 - contraction(d, step_size, batch)
    if left <= 0:
        raise PlanError(
            f"a step size of {step_size:g} is too long for batches of {batch} and {d} inputs: second "
            "moments grow without end. Take smaller steps or larger batches."
        )
    return step_size**2 * (label_noise**2 / batch + noise**2) / left


def _powers(q: Array, count: NDArray[np.int64]) -> Array:
    """The sum q + q² + ... + q^count, for every count and q."""
    near = np.isclose(q, 1.0, atol=1e-12)
    safe = np.where(near, 0.5, q)
    return np.asarray(np.where(near, count, safe * (1 - safe**count) / (1 - safe)))
