"""What DP-GD on a two-layer CNN spends: certified if clipped, conditional if not, and as printed.

Only `clipped_noise` belongs to a guarantee (that of `descend`). `random_dp` holds for most draws of the
data, `realised` for nobody: both are labelled, and neither is differential privacy.
"""

import math
import warnings
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2

from antiphon.accounting import check_delta, gaussian_epsilon, gaussian_mu
from antiphon.checks import positive, whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.participation import Relation
from antiphon_papers.cnn.printed import cnn_lemma_39
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.common.printed import Printed, PrintedTheoremWarning

__all__ = [
    "Lemma39",
    "RandomDP",
    "Realised",
    "Theorem3",
    "clipped_noise",
    "joint_sensitivity",
    "lemma_39",
    "random_dp",
    "realised",
    "theorem_3",
]


def clipped_noise(
    n: int,
    steps: int,
    clip_norm: float,
    epsilon: float,
    delta: float,
    *,
    relation: Relation | str = Relation.REPLACE_ONE,
) -> float:
    """σ_b of `descend`: the least noise on the mean gradient for (ε, δ).

    Guarantee:
        sqrt(T) c C/(n μ), c = 2 for replace-one and 1 else, with the largest μ that has (ε, δ): exact for T
        full-batch Gaussian releases [DongRothSu22].

    Example:
        >>> f"{clipped_noise(1000, 20, 1.0, 8.0, 1e-5, relation='zero-out'):.6e}"
        '2.684306e-03'
    """
    amplitude = Relation.of(relation).amplitude
    sensitivity = amplitude * positive("clip_norm", clip_norm) / whole("n", n)
    return math.sqrt(whole("steps", steps)) * sensitivity / gaussian_mu(epsilon, delta)


def joint_sensitivity(
    *,
    n: int,
    m: int,
    signal: float,
    longest: float,
    relation: Relation | str = Relation.REPLACE_ONE,
) -> float:
    """How far one record can move the mean gradient of all filters together, if it is a model record.

    Args:
        n: Records.
        m: Filters of each sign.
        signal: ‖μ‖.
        longest: Largest norm of a noise patch.
        relation: Between neighbours.

    Guarantee:
        (1/n) sqrt(2/m) sqrt(‖μ‖² + (2 ‖ξ‖)²) for replace-one, and sqrt(‖μ‖² + ‖ξ‖²) else; reached. Signal
        parts of two records always point the same way, noise parts may add up. Eq. 52 of
        [CNNGradientDescent26] is the bound of one gradient, and too small.
    """
    if not (0 <= signal < math.inf and 0 <= longest < math.inf):
        raise PlanError(f"signal and longest are norms; got {signal} and {longest}.")
    reach = Relation.of(relation).amplitude * longest
    return math.sqrt(2 / whole("m", m)) * math.hypot(signal, reach) / whole("n", n)


@final
@dataclass(frozen=True)
class RandomDP:
    """A statement on most data sets, not on all of them.

    Attributes:
        epsilon: ε of every pair of neighbours whose noise patches are all short.
        delta: δ of those pairs.
        miss: δ₁, the probability over draws of the data that some patch is longer. It cannot be added to
            ``delta``: that one is a probability over noise, for fixed data.
        longest: Up to which norm patches count as short.
        mu: Of Gaussian DP, for those pairs.
        relation: Between neighbours, both drawn from the model.
        label: What this is.
    """

    epsilon: float
    delta: float
    miss: float
    longest: float
    mu: float
    relation: Relation
    label: str = "conditional (random-DP)"

    def __str__(self) -> str:
        return (
            f"{self.label}: ({self.epsilon:.6g}, {self.delta:g}) for all but a share of {self.miss:g} of "
            f"draws of the data, whose noise patches have norms up to {self.longest:.6g}; no differential "
            "privacy, which is about all data"
        )


def random_dp(
    setting: Setting,
    delta: float,
    *,
    miss: float = 5e-6,
    relation: Relation | str = Relation.REPLACE_ONE,
) -> RandomDP:
    """What is true of unclipped DP-GD: an ε for most draws of the data.

    Args:
        setting: The run, with its noise.
        delta: δ.
        miss: δ₁, shared by the n records and the one that replaces one of them.
        relation: Between neighbours.

    Guarantee:
        None of differential privacy. All n + 1 noise patches are shorter than σ_p sqrt(χ²) with probability
        1 - δ₁, and then T steps are μ-GDP for this pair of data sets.

    Example:
        >>> found = random_dp(Setting(spread=0.5), delta=1e-5)
        >>> round(found.longest**2 / 0.25, 2), found.label
        (2382.84, 'conditional (random-DP)')
    """
    _needs_noise(setting)
    if not 0 < miss < 1:
        raise PlanError(f"miss is a probability between 0 and 1; got {miss}.")
    if setting.d < 2:
        raise PlanError(
            f"a noise patch orthogonal to the signal needs d >= 2; got d = {setting.d}."
        )
    longest = setting.spread * math.sqrt(chi2.isf(miss / (setting.n + 1), setting.d - 1))
    one = joint_sensitivity(
        n=setting.n, m=setting.m, signal=setting.signal, longest=longest, relation=relation
    )
    mu = math.sqrt(setting.steps) * one / setting.noise
    epsilon = gaussian_epsilon(mu, delta)
    return RandomDP(epsilon, delta, miss, longest, mu, Relation.of(relation))


@final
@dataclass(frozen=True)
class Lemma39:
    """The privacy lemma in three forms, among records of the model; conditional, all of them.

    Attributes:
        printed: As published: for replace-one its constant is too small.
        corrected: With the constant of two records that differ.
        exact: By Gaussian accounting of the same sensitivity.
    """

    printed: Printed
    corrected: Printed
    exact: Printed


def lemma_39(
    setting: Setting, delta: float, *, relation: Relation | str = Relation.REPLACE_ONE
) -> Lemma39:
    """Lemma 39 of [CNNGradientDescent26] printed, corrected and exact, among records of the model.

    Guarantee:
        None of differential privacy. ``exact`` is what neighbours have that are both records of the model:
        one patch is ±μ, the other orthogonal to it and no longer than sqrt(1.5 d) σ_p. Records with two
        long patches are further apart; `descend` bounds those.

    Example:
        >>> found = lemma_39(Setting(spread=0.5), delta=1e-5)
        >>> [round(form.claimed_epsilon) for form in (found.printed, found.corrected, found.exact)]
        [3387, 6543, 6468]
    """
    _needs_noise(setting)
    with warnings.catch_warnings():  # what fails is in the result
        warnings.simplefilter("ignore", PrintedTheoremWarning)
        printed, corrected, exact = (
            cnn_lemma_39(
                setting.noise,
                setting.n,
                setting.m,
                setting.steps,
                setting.signal,
                setting.spread,
                setting.d,
                delta,
                form=form,
                relation=relation,
                of_model_records=True,
            )
            for form in ("printed", "corrected", "exact")
        )
    return Lemma39(printed, corrected, exact)


@final
@dataclass(frozen=True)
class Theorem3:
    """Theorem 3 at given numbers, with constants of 1.

    Attributes:
        noise: σ_b that it asks for.
        steps: Its early stop.
        A: T (‖μ‖² + ...)/(σ_b² n² m) with these, m³ M²/(n² ‖μ‖⁴).
        rate_mu: sqrt(2A): what Gaussian DP would be, were all constants 1. Of no run.
        rate_epsilon: ε that belongs to it. With the constants of Lemma 39 it is larger.
        epsilon_bound: A + 2 sqrt(A log(2/δ)), the rate that holds.
        printed_epsilon: A/M log(2/δ): as printed, incorrect.
        delta: δ.
        label: Of ``printed_epsilon``.
    """

    noise: float
    steps: float
    A: float
    rate_mu: float
    rate_epsilon: float
    epsilon_bound: float
    printed_epsilon: float
    delta: float
    label: str = "as printed, incorrect"


def theorem_3(setting: Setting, delta: float) -> Theorem3:
    """What early-stopped DP-GD costs [CNNGradientDescent26, Thm. 3], substituted correctly.

    The printed ε has lost a factor M, so that it changes when all data are rescaled, and with λ = 1 + 1/A
    it would keep an additive 1; as A tends to 0 the truth falls like sqrt(A), not like A.

    Args:
        setting: d, n, m, ‖μ‖, σ_p and η count.
        delta: δ.

    Guarantee:
        None: constants are unknown (1 here), and noise patches must be bounded.

    Example:
        >>> found = theorem_3(Setting(m=10, n=10_000, d=100, spread=1.0), delta=1e-5)
        >>> round(found.A, 12), round(found.printed_epsilon / found.rate_epsilon, 3), found.label
        (0.1, 0.007, 'as printed, incorrect')
    """
    check_delta(delta)
    m, n, mu2, M, eta = setting.m, setting.n, setting.signal**2, setting.energy, setting.step_size
    noise, steps = math.sqrt(mu2 / (eta * m**3 * M)), m / (eta * mu2)
    A = steps * M / (noise**2 * n**2 * m)
    log = math.log(2 / delta)
    mu = math.sqrt(2 * A)
    bound = A + 2 * math.sqrt(A * log)
    epsilon = gaussian_epsilon(mu, delta)
    return Theorem3(noise, steps, A, mu, epsilon, bound, A / M * log, delta)


@final
@dataclass(frozen=True, eq=False)
class Realised:
    """What each record's gradients came to in one run: a description, computed from the data.

    Attributes:
        mu: sqrt(Σ_t ‖g_i(t)‖²)/(n σ_b) of each record, zero-out.
        largest: sqrt(Σ_t max_i ‖g_i(t)‖²)/(n σ_b).
        label: What this is.
    """

    mu: NDArray[np.float64]
    largest: float
    label: str = "realised, not a guarantee: computed from private data, not for release"

    def described_epsilon(self, delta: float) -> float:
        """ε that belongs to ``largest``; no guarantee, since other data would have had other gradients."""
        return gaussian_epsilon(self.largest, delta)


def realised(squares: ArrayLike, largest_square: float, *, n: int, noise: float) -> Realised:
    """Individual accounting of one run without a filter.

    Args:
        squares: Σ_t ‖g_i(t)‖² of each record.
        largest_square: Σ_t max_i ‖g_i(t)‖².
        n: Divisor of the gradients.
        noise: σ_b.

    Guarantee:
        None. A guarantee would need norms that are bounded whatever the data are: clip, as `descend` does.

    Example:
        >>> found = realised([1.0, 4.0], 4.0, n=100, noise=0.01)
        >>> found.mu.tolist(), found.label[:8]
        ([1.0, 2.0], 'realised')
    """
    scale, each = whole("n", n) * positive("noise", noise), np.asarray(squares, np.float64)
    if not (np.append(each.ravel(), largest_square) >= 0).all():
        raise PlanError("sums of squares must be non-negative numbers; got others.")
    return Realised(np.sqrt(each) / scale, math.sqrt(largest_square) / scale)


def _needs_noise(setting: Setting) -> None:
    if not setting.noise:
        raise UnsupportedError(
            "gradient descent without noise has no ε: give a setting with noise."
        )
