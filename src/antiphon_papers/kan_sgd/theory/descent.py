"""Bounds with explicit constants on the average training loss of clipped, noisy SGD on a two-layer KAN.

Algorithm 1 of [KANCorrelated26] returns W_0, ..., W_{T-1} after T - 1 noisy steps, and all bounds are on
(1/T) Σ_t L_S(W_t): the mean loss of the iterates, not the loss of their mean, and not that of the last.
Notation: D = m d p trained numbers, c = C κ/B the noise's standard deviation in a step's mean gradient.

**Sampling.** The lemmas on batches are proved for batches of a fixed size drawn without replacement. For
Poisson sampling the variance is no larger, but a batch can be anything from empty to all records, and the
almost sure bounds that the lemmas use do not hold.
"""

import math
from dataclasses import dataclass
from typing import final

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_sgd.theory.geometry import Constants
from antiphon_papers.kan_sgd.theory.tails import log_over

__all__ = [
    "TRIVIAL_LOSS",
    "Comparator",
    "Descent",
    "LossBound",
    "correlated_bound",
    "fluctuation",
    "independent_bound",
    "localization",
    "martingale",
    "noise_energy",
    "noise_norm",
    "ntk_comparator",
    "optimization_bound",
]

TRIVIAL_LOSS = math.log(2)  # of the function 0, which needs no data


@final
@dataclass(frozen=True)
class Descent:
    """The numbers of one run of Algorithm 1 [KANCorrelated26].

    Attributes:
        inputs: d.
        width: m, of the hidden layer.
        iterates: T, one more than the number of noisy steps.
        batch: B.
        step_size: η.
        clip_norm: C.
        noise_multiplier: κ, the standard deviation of the white noise per unit of clip norm; 0 is SGD.
        lam: λ in [0, 1), the share of the last white noise that a step cancels.
        basis: p, spline values per input.

    Example:
        >>> run = Descent(inputs=10, width=64, iterates=1000, batch=100, step_size=1e-3, clip_norm=5.0,
        ...               noise_multiplier=2.584, lam=0.5)
        >>> run.parameters, run.steps, run.noise
        (5120, 999, 0.1292)
    """

    inputs: int
    width: int
    iterates: int
    batch: int
    step_size: float
    clip_norm: float
    noise_multiplier: float = 0.0
    lam: float = 0.0
    basis: int = 8

    def __post_init__(self) -> None:
        for name in ("inputs", "width", "iterates", "batch", "basis"):
            whole(name, getattr(self, name))
        positive("step_size", self.step_size)
        positive("clip_norm", self.clip_norm)
        if self.iterates < 2:
            raise PlanError("iterates must be at least 2: the first is the start; got 1.")
        if not 0 <= self.noise_multiplier < math.inf:
            raise PlanError(
                f"noise_multiplier must be finite and not negative; got {self.noise_multiplier}."
            )
        if not 0 <= self.lam < 1:
            raise PlanError(f"λ must be in [0, 1) for this theory; got {self.lam}.")

    @property
    def parameters(self) -> int:
        """D = m d p."""
        return self.width * self.inputs * self.basis

    @property
    def steps(self) -> int:
        """Noisy releases, T - 1: what an accountant is told."""
        return self.iterates - 1

    @property
    def noise(self) -> float:
        """C κ/B, the papers' c_priv: of one number in the mean gradient, before correlation."""
        return self.clip_norm * self.noise_multiplier / self.batch


@final
@dataclass(frozen=True)
class Comparator:
    """A point W* that the run is compared with.

    Attributes:
        distance: ‖W* - W_0‖.
        loss: L_S(W*).
        conditions: Under which it exists.
        failure: Probability over the start with which it does not.
    """

    distance: float
    loss: float
    conditions: tuple[Condition, ...] = ()
    failure: float = 0.0


@final
@dataclass(frozen=True)
class LossBound:
    """A bound on an average loss, with all that it needs.

    Attributes:
        terms: What adds up to it, by name.
        conditions: Without which nothing is proved.
        failure: Probability with which it may fail, of everything that was counted.
        radius: Around W*, that the (shifted) iterates do not leave.
        ball: Radius R_* around W_0 that the algorithm projects on, or must at least project on.
    """

    terms: tuple[tuple[str, float], ...]
    conditions: tuple[Condition, ...]
    failure: float
    radius: float = math.inf
    ball: float = math.inf

    @property
    def loss(self) -> float:
        """The bound."""
        return sum(value for _, value in self.terms)

    @property
    def is_proved(self) -> bool:
        """Whether all conditions hold."""
        return all(condition.holds for condition in self.conditions)

    @property
    def is_vacuous(self) -> bool:
        """Whether it says less than log 2, the loss of answering 0 to everything."""
        return not self.loss < TRIVIAL_LOSS

    @property
    def verdict(self) -> str:
        """One sentence."""
        failed = [str(condition) for condition in self.conditions if not condition.holds]
        size = f"the bound is {self.loss:.4g}"
        if self.is_vacuous:
            size += ", vacuous: answering 0 to everything has loss 0.6931"
        return f"not proved ({'; '.join(failed)}); {size}." if failed else f"proved; {size}."


def noise_energy(run: Descent, failure: float) -> float:
    """V_Z: no more than this is Σ_t ‖Z_t‖² of the T - 1 draws [KANCorrelated26, Lem. C.5].

    Guarantee:
        Together with `noise_norm`, with probability 1 - failure.

    Example:
        >>> run = Descent(10, 64, 1000, 100, step_size=1e-3, clip_norm=5.0)
        >>> round(noise_energy(run, 1e-6), 4)
        5132138.0676
    """
    degrees, log = run.steps * run.parameters, log_over(2, failure)
    return degrees + 2 * math.sqrt(degrees * log) + 2 * log


def noise_norm(run: Descent, failure: float) -> float:
    """z: no draw of the run has a larger norm [KANCorrelated26, Lem. C.5].

    Guarantee:
        Together with `noise_energy`, with probability 1 - failure.

    Example:
        >>> run = Descent(10, 64, 1000, 100, step_size=1e-3, clip_norm=5.0)
        >>> round(noise_norm(run, 1e-6), 7)
        78.0988545
    """
    return math.sqrt(run.parameters) + math.sqrt(2 * log_over(2 * run.iterates, failure))


def fluctuation(run: Descent, gradient: float, failure: float) -> float:
    """V_Δ: no more than this are the squared errors of all batch gradients [KANCorrelated26, Lem. C.6].

    Guarantee:
        With probability 1 - failure, for batches of a fixed size.

    Example:
        >>> run = Descent(10, 64, 1000, 100, step_size=1e-3, clip_norm=5.0)
        >>> round(fluctuation(run, gradient=5.0, failure=1e-6), 7)
        3263.1021116
    """
    return gradient**2 * (2 * run.iterates / run.batch + 8 * log_over(1, failure))


def martingale(run: Descent, gradient: float, energy: float, failure: float) -> tuple[float, float]:
    """M₁ and M₀, with which M = M₁ R̄ + M₀ bounds what is linear in the errors [KANCorrelated26, eq. 13].

    Args:
        run: The run.
        gradient: G.
        energy: V_Z.
        failure: Probability of failure.

    Guarantee:
        Holds with probability 1 - failure where V_Z does, for batches of a fixed size; the constants
        4 sqrt(2) and 4 are printed, 2 sqrt(2) would do for all three terms.
    """
    eta, log, left = run.step_size, log_over(6, failure), 1 - run.lam
    root = math.sqrt(run.iterates * log)
    slope = 4 * eta * root * (math.sqrt(2 / run.batch) * gradient + left * run.noise)
    rest = 4 * left * eta**2 * run.noise * gradient * math.sqrt(energy * log / run.batch)
    return slope, rest


def localization(constants: Constants, distance: float) -> Condition:
    """H ‖W - W*‖² <= 1/2: near enough to compare with W* [KANCorrelated26, eq. 7], made explicit.

    Guarantee:
        Then 2/3 L(W) <= <∇L(W), W - W*> + 4/3 L(W*). Twice the distance from W_0 that a `Ball`
        allows is enough to put in; while training, its ``distance`` can be watched.

    Example:
        >>> localization(Constants.tight(64, 1e-3), distance=0.1).holds
        True
    """
    return Condition.at_most("localisation, 1/2", constants.hessian * distance**2, 0.5)


def correlated_bound(
    run: Descent,
    constants: Constants,
    comparator: Comparator,
    *,
    radius: float | None = None,
    ball: float = math.inf,
    failures: tuple[float, float, float] = (1e-6, 1e-6, 1e-6),
) -> LossBound:
    """The average training loss of a run with λ-CGD noise [KANCorrelated26, Lem. C.3, C.11].

    Args:
        run: The run.
        constants: Of the network.
        comparator: W*.
        radius: R̄, of the shifted iterates around W*; the smallest that is possible by default.
        ball: R_*, which the algorithm projects on; infinite asks for one that is large enough.
        failures: δ_Z of the noise's norms, δ_Δ of the batches, δ_pot of what is linear in both.

    Guarantee:
        If all conditions hold, with probability 1 - ``failure``, for batches of a fixed size. The paper
        has 0 < λ < 1; all steps of its proof also hold at 0. Explicit form of condition (7):
        H (R̄ + η c z)² <= 1/2.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 1e-3, clip_norm=5.0, noise_multiplier=2.584, lam=0.5)
        >>> known = Constants(gradient=5.0, hessian=3.75, output=1.0, worst=1.0)
        >>> bound = correlated_bound(run, known, Comparator(2.0, 1e-3), radius=4.0)
        >>> round(bound.loss, 4), bound.is_vacuous
        (16.7306, True)
    """
    eta, T, far, target = run.step_size, run.iterates, comparator.distance, comparator.loss
    energy, norm = noise_energy(run, failures[0]), noise_norm(run, failures[0])
    batches = fluctuation(run, constants.gradient, failures[1])
    slope, rest = martingale(run, constants.gradient, energy, failures[2])
    share = (1 - run.lam) ** 2 + 12 * constants.smoothness * eta * run.lam**2
    quadratic = 2 * eta**2 * batches + share * (eta * run.noise) ** 2 * energy
    others = far**2 + 8 / 3 * eta * T * target + rest + quadratic
    if radius is None:
        # A hair above the root of R̄² = M₁ R̄ + S, so that rounding does not undo the condition.
        radius = (slope + math.sqrt(slope**2 + 4 * others)) / 2 * (1 + 1e-12)
    linear, kick = slope * radius + rest, eta * run.noise * norm
    needed = radius + far + kick
    conditions = (
        Condition.at_least("clip norm above all gradients", run.clip_norm, constants.gradient),
        Condition.at_most("step size, 1/(12β)", eta, constants.largest_step),
        Condition.at_most("bootstrap, R̄²", others - rest + linear, radius**2),
        localization(constants, radius + kick),
        Condition.at_least("projection never active", ball, needed),
    )
    terms = (
        ("comparator", 8 * target),
        ("distance", 3 * far**2 / (eta * T)),
        ("linear", 3 * linear / (eta * T)),
        ("batches", 6 * eta * batches / T),
        ("noise", 3 * share * eta * run.noise**2 * energy / T),
    )
    total = sum(failures) + comparator.failure + constants.failure
    return LossBound(
        terms,
        (*comparator.conditions, *conditions),
        total,
        radius,
        ball if ball < math.inf else needed,
    )


def independent_bound(
    run: Descent,
    constants: Constants,
    comparator: Comparator,
    *,
    ball: float | None = None,
    failure: float = 1e-6,
) -> LossBound:
    """The average training loss with independent noise, or none [KANCorrelated26, Lem. D.11, D.12].

    Args:
        run: The run, with λ = 0.
        constants: Of the network.
        comparator: W*, in the ball.
        ball: R_*, which the algorithm projects on and may reach; the comparator's distance by default.
        failure: Of each of four events: both squared errors, both linear ones.

    Guarantee:
        If all conditions hold, with probability 1 - ``failure`` (of the result), for batches of a fixed
        size. The constants that Lemma D.12 leaves open are 6 sqrt(2), from Hoeffding's lemma.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 1e-3, clip_norm=5.0)
        >>> known = Constants(gradient=5.0, hessian=1e-3, output=1.0, worst=1.0)
        >>> bound = independent_bound(run, known, Comparator(2.0, 1e-3))
        >>> bound.is_proved, round(bound.loss, 4)
        (True, 7.0456)
    """
    if run.lam:
        raise PlanError(f"this bound is for independent noise; λ is {run.lam}.")
    eta, T, far, target = run.step_size, run.iterates, comparator.distance, comparator.loss
    ball, degrees, log = far if ball is None else ball, T * run.parameters, log_over(1, failure)
    batches = fluctuation(run, constants.gradient, failure)
    energy = degrees + 2 * math.sqrt(degrees * log) + 2 * log
    root = 6 * math.sqrt(2) * ball * math.sqrt(log_over(2, failure) / T)
    conditions = (
        Condition.at_least("clip norm above all gradients", run.clip_norm, constants.gradient),
        Condition.at_most("step size, 1/(12β)", eta, constants.largest_step),
        localization(constants, 2 * ball),
        Condition.at_least("comparator in the ball", ball, far),
    )
    terms = (
        ("comparator", 4 * target),
        ("distance", 3 * far**2 / (2 * eta * T)),
        ("linear", root * (constants.gradient / math.sqrt(run.batch) + run.noise)),
        ("batches", 6 * eta * batches / T),
        ("noise", 6 * eta * run.noise**2 * energy / T),
    )
    total = 4 * failure + comparator.failure + constants.failure
    return LossBound(terms, (*comparator.conditions, *conditions), total, 2 * ball, ball)


def ntk_comparator(
    margin: float, constants: Constants, n: int, iterates: int, failure: float
) -> Comparator:
    """A point of loss at most 1/T along the direction of the margin [KANCorrelated26, Lem. C.12].

    Args:
        margin: γ in (0, 1].
        constants: Of the network.
        n: Records.
        iterates: T.
        failure: Probability over the second layer that f_{W_0} is too large on the data.

    Guarantee:
        W* = W_0 + τu with τ = max(4 log T, 2 s sqrt(2 log(2n/δ)))/γ, where s is the outputs' standard
        deviation (printed: B_b sqrt(p)); needs H <= γ/(2τ). Then y f >= τγ/4 >= log T on all records.

    Example:
        >>> found = ntk_comparator(0.5, Constants.printed(64, 0.01), 1000, iterates=100, failure=0.01)
        >>> round(found.distance, 3), found.loss, found.conditions[0].holds
        (37.266, 0.01, False)
    """
    if not 0 < margin <= 1:
        raise PlanError(f"a margin must be in (0, 1]; got {margin}.")
    outputs = constants.output * math.sqrt(2 * log_over(2 * whole("n", n), failure))
    tau = max(4 * math.log(whole("iterates", iterates)), 2 * outputs) / margin
    wide = Condition.at_most(
        "width for the comparator, γ/(2τ)", constants.hessian, margin / tau / 2
    )
    return Comparator(tau, 1 / iterates, (wide,), failure)


def optimization_bound(
    run: Descent, constants: Constants, margin: float, n: int, failure: float = 0.01
) -> LossBound:
    """The average training loss of a whole run, from the margin [KANCorrelated26, Thm. 4.1, D.14].

    Args:
        run: The run; λ = 0 takes the bound for independent noise, with R_* the comparator's distance.
        constants: Of the network; their own failure adds to the result's.
        margin: γ in (0, 1] of the data at W_0.
        n: Records.
        failure: Shared by the comparator and the run's events.

    Guarantee:
        As `correlated_bound` or `independent_bound` with `ntk_comparator`. At realistic sizes conditions
        fail by large factors and the bound is vacuous: it says so.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 1e-3, clip_norm=6.0, noise_multiplier=2.6, lam=0.5)
        >>> bound = optimization_bound(run, Constants.tight(64, 1e-3), margin=0.5, n=10_000)
        >>> bound.is_proved, bound.is_vacuous
        (False, True)
    """
    if run.lam:
        part = failure / 4
        comparator = ntk_comparator(margin, constants, n, run.iterates, part)
        return correlated_bound(run, constants, comparator, failures=(part, part, part))
    part = failure / 5
    comparator = ntk_comparator(margin, constants, n, run.iterates, part)
    return independent_bound(run, constants, comparator, failure=part)
