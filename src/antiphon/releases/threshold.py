"""DP-Threshold: the smallest of doubling thresholds that holds (nearly) all of some numbers.

[ReLURegression25, Alg. 2] prints noise of variance L f² for L + 1 queries and no slack for them; here the
variance is (L + 1) f², and the search ends at a noisy count of m - Λ.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import GaussianRelease
from antiphon.releases.release_noise import noised

__all__ = ["private_threshold", "public_threshold", "threshold_slack", "thresholds"]

_FAILURE = 0.1


def thresholds(smallest: float, largest: float) -> NDArray[np.float64]:
    """Δ, 2Δ, …, 2^L Δ with L = ⌈log₂(Υ/Δ)⌉.

    Raises:
        PlanError: If L is 0: one threshold leaves nothing to choose, and the printed noise, of variance
            L f², would be zero.

    Example:
        >>> thresholds(0.25, 1.5).tolist()
        [0.25, 0.5, 1.0, 2.0]
    """
    low, high = positive("smallest", smallest), positive("largest", largest)
    levels = math.ceil(round(math.log2(high / low), 9)) if high > low else 0
    if levels < 1:
        raise PlanError(
            f"the largest threshold must be above the smallest, so that there is something to choose; got "
            f"smallest = {smallest} and largest = {largest}."
        )
    return np.asarray(low * np.exp2(np.arange(levels + 1.0)), np.float64)


def public_threshold(values: Any, smallest: float, largest: float) -> float:
    """The smallest of the thresholds that no value exceeds, or the last one. For public values.

    Example:
        >>> public_threshold([0.9, -0.1], smallest=2**-5, largest=8)
        1.0
    """
    points = thresholds(smallest, largest)
    most = float(np.max(np.abs(_numbers(values)), initial=0.0))
    holding = points[points >= most]
    return float(holding[0] if len(holding) else points[-1])


def private_threshold(
    values: Any,
    smallest: float,
    largest: float,
    *,
    mu: float,
    share: float = 1.0,
    slack: float | None = None,
    n: int | None = None,
    generator: Generator | None = None,
    what: str = "a threshold",
) -> tuple[float, GaussianRelease]:
    """The first threshold below which nearly all values lie, or a share, by noisy counts; and its cost.

    Args:
        values: One number per record; absolute values count. What is not finite is below no threshold.
        smallest: Δ, positive: the first threshold.
        largest: Υ, above Δ: the last one is the first doubling at or above it.
        mu: The privacy to spend; the paper's f is 1/μ.
        share: Of the values that must lie below: 1 is DP-Threshold, less is a quantile between doublings.
        slack: Λ: the search ends at a noisy count of share × m - Λ. Unless given, `threshold_slack` for all
            values and 0 for a share; 0 is printed.
        n: m, the public number of records; their true number, which is then declared public, unless given.
        generator: Secret source of the noise; a new secure one unless given.
        what: What is released, for the certificate.

    Returns:
        The threshold, and the event to pay for.

    Guarantee:
        Exactly μ-GDP under every relation if all L + 1 noisy counts were seen, and only their first
        success is: a record, added, removed, zeroed or replaced, changes each count by at most 1, hence all
        by at most sqrt(L + 1), under white noise of sqrt(L + 1)/μ. For all values and the default slack,
        except with probability 0.1: the result s, if it is not the last threshold, holds at least m - 2Λ of
        them, and if s > Δ, not all are within s/2. A result that is the last threshold claims nothing.

    Example:
        >>> values = np.full(5_000, 0.9)
        >>> private_threshold(values, 2**-5, 8.0, mu=0.1, generator=Generator.seeded(0))[0]
        1.0
    """
    points = thresholds(smallest, largest)
    numbers = np.abs(_numbers(values))
    counts = np.searchsorted(np.sort(numbers[np.isfinite(numbers)]), points, side="right")
    scale = math.sqrt(len(points)) / positive("mu", mu)
    if not 0 < share <= 1:
        raise PlanError(f"share lies in (0, 1]; got {share}.")
    usual = threshold_slack(smallest, largest, mu) if share == 1 else 0.0
    needed = share * whole("n", len(numbers) if n is None else n) - (
        usual if slack is None else float(slack)
    )
    noisy = noised(counts, scale, what, generator)
    passed = np.flatnonzero(noisy >= needed)
    chosen = points[passed[0]] if len(passed) else points[-1]
    return float(chosen), GaussianRelease(float(mu), what)


def threshold_slack(
    smallest: float, largest: float, mu: float, *, failure: float = _FAILURE
) -> float:
    """Λ = sqrt(2 (L + 1) log((L + 1)/β))/μ: what all noises stay within but for probability β.

    A threshold means something if m is at least 4Λ or so.

    Example:
        >>> round(threshold_slack(2**-5, 8.0, mu=1.0), 3)
        9.0
    """
    if not 0 < failure < 1:
        raise PlanError(f"failure is a probability strictly between 0 and 1; got {failure}.")
    queries = len(thresholds(smallest, largest))
    return math.sqrt(2 * queries * math.log(queries / failure)) / positive("mu", mu)


def _numbers(values: Any) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise PlanError(f"expected one number per record; got an array of shape {array.shape}.")
    return array
