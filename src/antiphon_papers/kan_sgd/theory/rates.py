"""Rates of [KANCorrelated26]: how the bounds scale, where the paper leaves constants open.

A rate is not a bound: logarithms, powers of p and absolute constants are suppressed, and each result
lists what is unknown. Conditions are evaluated as if the unknown constant were 1, and say so.
"""

import math
from dataclasses import dataclass
from typing import final

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_sgd.theory.descent import Descent
from antiphon_papers.kan_sgd.theory.tails import log_over

__all__ = [
    "Rate",
    "Regime",
    "WidthWindow",
    "corollary_5_3",
    "corollary_5_5",
    "corollary_5_5_printed",
    "corollary_5_6",
    "full_batch",
    "rate_correlated",
    "rate_independent",
    "rate_nonprivate",
    "rate_population_printed",
    "width_window",
]

_LOGS = "a polynomial in log(nT/δ)"
_POWERS = "powers of p and of the bounds on splines and activation"


@final
@dataclass(frozen=True)
class Rate:
    """How a loss scales.

    Attributes:
        terms: What adds up to it, by name.
        unknown: Factors that the paper does not state.
        conditions: As if the unknown factors were 1.
    """

    terms: tuple[tuple[str, float], ...]
    unknown: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def value(self) -> float:
        """The sum of the terms, which is the loss up to what is unknown."""
        return sum(value for _, value in self.terms)


@final
@dataclass(frozen=True)
class WidthWindow:
    """Widths that a theorem allows, up to constants.

    Attributes:
        low: Below it, the network is not near enough to its tangent.
        high: Above it, the noise leaves the neighbourhood of the start.
        unknown: Factors that the paper does not state.
    """

    low: float
    high: float
    unknown: tuple[str, ...] = (_LOGS, _POWERS)

    @property
    def is_empty(self) -> bool:
        """Whether no width is allowed, if the unknown factors were 1."""
        return self.low > self.high


@final
@dataclass(frozen=True)
class Regime:
    """A choice of parameters and the rates it leads to, all up to constants.

    Attributes:
        name: Where it stands.
        width: m.
        batch: B.
        iterates: T.
        step_size: η.
        training: Rate of the average training loss.
        population: Rate of the average population loss.
        conditions: As if the unknown factors were 1.
        verdict: What is right and wrong with it.
        unknown: Factors that the paper does not state.
    """

    name: str
    width: float
    batch: float
    iterates: float
    step_size: float
    training: float
    population: float
    conditions: tuple[Condition, ...]
    verdict: str
    unknown: tuple[str, ...] = (_LOGS, _POWERS)


def rate_correlated(run: Descent, margin: float) -> Rate:
    """A_corr, the training loss with λ-CGD noise [KANCorrelated26, Thm. 4.1].

    Args:
        run: The run; the theorem is for 0 < λ < 1.
        margin: γ.

    Guarantee:
        None without the unknown factors; `optimization_bound` has them.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 0.1, clip_norm=5.0, noise_multiplier=2.0, lam=0.5)
        >>> round(rate_correlated(run, margin=0.5).value, 4)
        0.0552
    """
    g, eta, T, B = _margin(margin), run.step_size, run.iterates, run.batch
    kappa, left, md = run.noise_multiplier, 1 - run.lam, run.width * run.inputs
    share = left**2 + run.lam**2 * eta
    terms = (
        ("distance", 1 / (g**2 * eta * T)),
        ("linear", 1 / (g * math.sqrt(B * T))),
        ("batches", eta * (1 / B + 1 / T)),
        ("linear noise", left * kappa / (B * math.sqrt(T)) * (1 / g + eta * math.sqrt(md / B))),
        ("noise", share * eta * kappa**2 * md / B**2),
    )
    path = eta * g * math.sqrt(T) * (1 / math.sqrt(B) + kappa * left / B)
    window = width_window(run, margin)
    conditions = (
        _up_to_constant("length of the path", path + (eta * g) ** 2 * (T / B + 1), 1.0),
        _up_to_constant("width from below", window.low, run.width),
        _up_to_constant("width from above", run.width, window.high),
    )
    return Rate(terms, (_LOGS, _POWERS), conditions)


def rate_independent(run: Descent, margin: float, n: int, failure: float) -> Rate:
    """A_van, the training loss with independent noise [KANCorrelated26, Thm. D.14].

    Guarantee:
        None without the unknown factor; `independent_bound` has it. The proof puts C <= G where it
        assumes C >= G: a clip norm of the order of G is meant.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 0.1, clip_norm=5.0, noise_multiplier=2.0)
        >>> rate_independent(run, 0.5, n=10_000, failure=0.01).terms[0][0]
        'distance'
    """
    if run.lam:
        raise PlanError(f"this rate is for independent noise; λ is {run.lam}.")
    g, eta, T, B, log = (
        _margin(margin),
        run.step_size,
        run.iterates,
        run.batch,
        log_over(1, failure),
    )
    kappa, md = run.noise_multiplier, run.width * run.inputs
    wide, logs = log_over(whole("n", n), failure), math.log(T)
    reach = log * (logs + math.sqrt(wide)) / g
    narrow = log_over(run.width, failure)
    needed = max(narrow * (logs**4 + narrow**2) / g**4, log_over(n * T, failure) / (T * run.inputs))
    return Rate(
        (
            ("distance", (logs**2 + wide) / (g**2 * eta * T)),
            ("linear", reach / math.sqrt(B * T)),
            ("linear noise", reach * kappa / (B * math.sqrt(T))),
            ("batches", eta * log * (1 / B + log / T)),
            ("noise", eta * md * log**2 * kappa**2 / B**2),
        ),
        ("an absolute constant", _POWERS),
        (_up_to_constant("width from below", needed, run.width),),
    )


def rate_nonprivate(run: Descent, margin: float) -> Rate:
    """A_non, the training loss without noise [KANCorrelated26, Thm. E.1].

    Example:
        >>> run = Descent(10, 64, 1000, 100, 0.1, clip_norm=5.0)
        >>> round(rate_nonprivate(run, margin=0.5).value, 5)
        0.04732
    """
    if run.noise_multiplier:
        raise PlanError(f"this rate is without noise; κ is {run.noise_multiplier}.")
    g, eta, T, B = _margin(margin), run.step_size, run.iterates, run.batch
    terms = (
        ("distance", 1 / (g**2 * eta * T)),
        ("linear", 1 / (g * math.sqrt(B * T))),
        ("batches", eta / B),
    )
    return Rate(terms, (_LOGS, _POWERS), (_up_to_constant("width from below", g**-4, run.width),))


def rate_population_printed(rate: Rate, run: Descent, n: int, ball: float, failure: float) -> Rate:
    """(1 + ηT log(1/δ)/n)(A + log(n/δ)(sqrt(m) + R_*)δ) [KANCorrelated26, Thm. 5.2, C.23].

    Args:
        rate: A of the training loss.
        run: The run.
        n: Records.
        ball: R_*.
        failure: δ, a probability of failure and not the δ of privacy.

    Guarantee:
        None: a factor e and Markov's inequality are missing; `population_bound` has both.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 0.1, clip_norm=5.0)
        >>> A = rate_nonprivate(run, margin=0.5)
        >>> round(rate_population_printed(A, run, 10_000, ball=2.0, failure=1e-6).value, 4)
        0.0541
    """
    log = log_over(1, failure)
    front = 1 + run.step_size * run.iterates * log / whole("n", n)
    broken = log_over(n, failure) * (math.sqrt(run.width) + ball) * failure
    terms = tuple((name, front * value) for name, value in rate.terms)
    return Rate((*terms, ("broken events", front * broken)), rate.unknown, rate.conditions)


def width_window(run: Descent, margin: float) -> WidthWindow:
    """The widths of Theorem 4.1: γ⁻⁴ to B²/(η²κ²γ²d) min(1, 1/(T((1-λ)² + λ²η))) [KANCorrelated26].

    Args:
        run: The run; its own width is not looked at.
        margin: γ.

    Example:
        >>> run = Descent(10, 64, 1000, 100, 0.1, clip_norm=5.0, noise_multiplier=2.0, lam=0.5)
        >>> window = width_window(run, margin=0.5)
        >>> window.low, round(window.high), window.is_empty
        (16.0, 364, False)
    """
    g, eta, kappa = _margin(margin), run.step_size, run.noise_multiplier
    if kappa == 0:
        return WidthWindow(g**-4, math.inf)
    share = (1 - run.lam) ** 2 + run.lam**2 * eta
    high = (run.batch / (eta * kappa * g)) ** 2 / run.inputs
    return WidthWindow(g**-4, high * min(1.0, 1 / (run.iterates * share)))


def corollary_5_3(
    n: int, d: int, epsilon: float, delta: float, margin: float, share: float = 0.5
) -> Regime:
    """Large batches and λ bounded away from 1 [KANCorrelated26, Cor. 5.3]: n^(-1/2) + sqrt(d)/(nε).

    Args:
        n: Records.
        d: Inputs.
        epsilon: ε.
        delta: δ, of privacy and of failure in the paper.
        margin: γ.
        share: ρ = B/n in (0, 1).

    Example:
        >>> regime = corollary_5_3(60_000, 784, 1.0, 1e-6, margin=1.0)
        >>> round(regime.iterates), round(regime.training, 5)
        (245, 0.00455)
    """
    n, d, g = whole("n", n), whole("d", d), _margin(margin)
    if not 0 < share < 1:
        raise PlanError(f"share is B/n, between 0 and 1; got {share}.")
    T, m = min(math.sqrt(n) / g, n * positive("epsilon", epsilon) * g**2 / math.sqrt(d)), g**-6
    loss = 1 / (g * math.sqrt(n)) + math.sqrt(d) / (g**4 * n * epsilon)
    conditions = (
        Condition.at_most("ε of the closed form", epsilon, 1.0),
        Condition.at_least("epochs of the closed form", share * T, 3 * log_over(2, delta)),
        _up_to_constant("δ", delta, min(1 / (n * math.sqrt(m)), g / n)),
    )
    verdict = (
        "Privacy rests on Theorem F.12 and its conditions on ε and the epochs. The width meets its "
        "upper limit only if T shrinks by the same logarithms. λ does not help at this rate."
    )
    return Regime("Corollary 5.3", m, share * n, T, 1.0, loss, loss, conditions, verdict)


def corollary_5_5_printed(n: int, d: int, epsilon: float, delta: float, margin: float) -> Regime:
    """Small batches and independent noise [KANCorrelated26, Cor. 5.5], which are not private.

    Guarantee:
        None: its κ² = O(log(1/δ)/(sqrt(n) ε²)) vanishes while each record is used with probability
        1 - 1/e; at n = 10⁶, γ = ε = 1 the true ε is at least 12. `corollary_5_5` repairs it.

    Example:
        >>> corollary_5_5_printed(10**6, 100, 1.0, 1e-6, margin=1.0).batch
        1000.0
    """
    n, d, g = whole("n", n), whole("d", d), _margin(margin)
    root = math.sqrt(n)
    eta = min(1.0, g**2 * root * positive("epsilon", epsilon) / math.sqrt(d))
    loss = 1 / (g * root) + math.sqrt(d) / (g**3 * n * epsilon)
    conditions = (
        Condition.at_most("δ", delta, g / n),
        # Theorem 5.4 needs r²T that is not small against ε²/log(1/δ); here r²T = γ/sqrt(n).
        _up_to_constant("ε²/log(1/δ), r²T", epsilon**2 / log_over(1, delta), g / root),
    )
    verdict = "Not private for large n at constant ε: Theorem 5.4 is false in this regime."
    return Regime(
        "Cor. 5.5, printed", g**-4, g * root, root / g, eta, loss, loss, conditions, verdict
    )


def corollary_5_5(n: int, d: int, epsilon: float, delta: float, margin: float) -> Regime:
    """The same with a noise multiplier of at least about 1, as accountants ask for.

    Adds κ/(γB sqrt(T)) + ηmdκ²/B² = n^(-3/4) γ^(-3/2) + ηmd/(γ²n) at κ = 1 and m = γ⁻⁴: the rate
    n^(-1/2) survives where n is large against d² and powers of 1/γ.

    Guarantee:
        Rates only; the noise itself is found by `antiphon.calibrate`.

    Example:
        >>> repaired = corollary_5_5(10**6, 100, 1.0, 1e-6, margin=1.0)
        >>> printed = corollary_5_5_printed(10**6, 100, 1.0, 1e-6, margin=1.0)
        >>> round(repaired.training, 6), round(printed.training, 6)
        (0.001142, 0.00101)
    """
    printed = corollary_5_5_printed(n, d, epsilon, delta, margin)
    g, m, eta = margin, printed.width, printed.step_size
    loss = printed.training + n**-0.75 * g**-1.5 + eta * m * d / (g**2 * n)
    verdict = "κ is floored at about 1, the accountants' value, which costs two further terms."
    conditions = printed.conditions[:1]
    T, B = printed.iterates, printed.batch
    return Regime("Cor. 5.5, repaired", m, B, T, eta, loss, loss, conditions, verdict)


def corollary_5_6(n: int, delta: float, margin: float, batch: int | None = None) -> Regime:
    """No noise [KANCorrelated26, Cor. 5.6]: training loss 1/n, population loss 1/(γ²n).

    Args:
        n: Records.
        delta: δ, a probability of failure.
        margin: γ.
        batch: B, at most about γ sqrt(n), which is the default.

    Guarantee:
        A rate. The paper assumes δ <= 1/(γn); its own bound needs δ of the order of 1/n.

    Example:
        >>> regime = corollary_5_6(10_000, 1e-5, margin=0.5)
        >>> regime.batch, regime.iterates * regime.batch / 10_000  # n/γ² epochs
        (50.0, 40000.0)
    """
    n, g = whole("n", n), _margin(margin)
    B = float(batch) if batch is not None else max(1.0, g * math.sqrt(n))
    conditions = (
        _up_to_constant("δ", delta, 1 / n),
        _up_to_constant("batch", B, g * math.sqrt(n)),
    )
    T, verdict = n**2 / (g**2 * B), "Right with δ of the order of 1/n; takes n/γ² epochs."
    return Regime("Corollary 5.6", g**-4, B, T, B / n, 1 / n, 1 / (g**2 * n), conditions, verdict)


def full_batch(n: int, d: int, epsilon: float, margin: float) -> Regime:
    """Full batches and independent noise [KANCorrelated26, App. D]: sqrt(d)/(γ³nε).

    Guarantee:
        A rate. T is not stated in the paper; T of the order of n is implied by its κ² of n/ε².

    Example:
        >>> round(full_batch(60_000, 784, 1.0, margin=1.0).training, 6)
        0.000467
    """
    n, d, g = whole("n", n), whole("d", d), _margin(margin)
    m = g**-4
    eta = min(1.0, positive("epsilon", epsilon) / (g * math.sqrt(m * d)))
    loss = math.sqrt(d) / (g**3 * n * epsilon)
    verdict = "Private: with B = n Theorem D.9 is true, with a factor of 4 to spare."
    return Regime("Full batch", m, float(n), float(n), eta, loss, loss, (), verdict)


def _margin(margin: float) -> float:
    if not 0 < margin <= 1:
        raise PlanError(f"a margin must be in (0, 1]; got {margin}.")
    return float(margin)


def _up_to_constant(name: str, value: float, limit: float) -> Condition:
    return Condition.at_most(f"{name} (unknown constant taken as 1)", value, limit)
