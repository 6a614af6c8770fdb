"""The mean of bounded numbers, such as the errors of a regression on private records."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import kl_div, ndtri

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.participation import Relation
from antiphon.plans import GaussianRelease
from antiphon.releases.release_noise import noised

__all__ = ["Mean", "mean_sensitivity", "private_mean"]


class Mean(NamedTuple):
    """A mean of numbers that were moved into public bounds.

    Attributes:
        value: The noisy mean, within the bounds.
        interval: Confidence interval for the expectation of a new record's number.
        of_sample: Confidence interval for the mean of these very records: it allows for the noise alone.
        event: What was released, for a plan's ``extra``.
    """

    value: float
    interval: tuple[float, float]
    of_sample: tuple[float, float]
    event: GaussianRelease


def private_mean(
    values: Any,
    bounds: tuple[float, float],
    *,
    mu: float,
    relation: str = Relation.ADD_REMOVE,
    generator: Generator | None = None,
    n: int | None = None,
    confidence: float = 0.95,
    what: str = "a mean",
) -> Mean:
    """The mean of numbers within public bounds with Gaussian noise, and what it costs.

    Args:
        values: One number per record, such as ``(predicted - y) ** 2``. What lies outside of the bounds
            counts as the nearest of them; NaN counts as their middle.
        bounds: Lowest and highest value, known without the data.
        mu: The privacy to spend; positive. The noise in the mean has standard deviation
            `mean_sensitivity` / (μ n): (high - low) / (2 μ n), twice that under replace-one.
        relation: How neighbouring tables differ.
        generator: Secret source of the noise; a new secure one unless given.
        n: Public number of records, by which the sum is divided; their true number, which is then declared
            public, unless given. If it is not the true one, every record too few counts as the middle.
        confidence: Of each interval.
        what: What is released, for the certificate.

    Guarantee:
        Exactly μ-GDP under ``relation``. What is summed are distances from the middle of the bounds, so a
        record counts for at most half of their distance: under add-remove, since the divisor is n for
        every table, and under zero-out, where a record without contribution counts as the middle. Under
        replace-one it may go from one end to the other, twice as far.

        If ``n`` is the number of records, ``of_sample`` misses the mean of their moved numbers in at most a
        share 1 - confidence of all releases (exactly, but for the cut at the bounds). If they are also
        independent draws, ``interval`` misses the expectation of such a moved number in at most that
        share: half of it is for the noise, half for the draws, by the bound of relative entropy
        [Hoeffding63, Thm. 1] at the means that the noise leaves possible. Nothing is said of the
        expectation of numbers beyond the bounds.

    Example:
        >>> errors = np.random.default_rng(0).uniform(0, 0.2, 1_000)
        >>> mean = private_mean(errors, (0, 1), mu=1.0, generator=Generator.seeded(0))
        >>> round(mean.value, 2), [round(end, 2) for end in mean.interval]
        (0.1, [0.08, 0.13])
    """
    low, high = _checked(bounds)
    if not 0 < confidence < 1:
        raise PlanError(f"confidence lies strictly between 0 and 1; got {confidence}.")
    numbers = _numbers(values)
    size, half = whole("n", len(numbers) if n is None else n), (high - low) / 2
    scale = mean_sensitivity(low, high, relation) / positive("mu", mu)
    centred = np.clip(
        np.nan_to_num(numbers - (low + half), posinf=np.inf, neginf=-np.inf), -half, half
    )
    noisy = float(noised(np.array([centred.sum()]), scale, what, generator)[0])

    def mean(total: float) -> float:
        """The mean that belongs to a sum of distances from the middle."""
        return min(max(low + half + total / size, low), high)

    def ends(miss: float) -> tuple[float, float]:
        """Where the mean of the records lies, but for a share ``miss`` at either end."""
        reach = float(-ndtri(miss)) * scale
        return mean(noisy - reach), mean(noisy + reach)

    miss = (1 - confidence) / 4  # for each of noise and draws, at each end
    first, last = ((end - low) / (high - low) for end in ends(miss))
    far = math.log(1 / miss) / size
    interval = (
        low + (high - low) * (1 - _farthest(1 - first, far)),
        low + (high - low) * _farthest(last, far),
    )
    event = GaussianRelease(float(mu), what, relation)
    return Mean(mean(noisy), interval, ends(2 * miss), event)


def mean_sensitivity(low: float, high: float, relation: str) -> float:
    """Largest change of the sum of distances from the middle when one record changes.

    Example:
        >>> mean_sensitivity(0.0, 3.0, "add-remove"), mean_sensitivity(0.0, 3.0, "replace-one")
        (1.5, 3.0)
    """
    return (high - low) / 2 * Relation.of(relation).amplitude


def _farthest(mean: float, far: float) -> float:
    """The largest p in [0, 1] whose relative entropy to a mean m in [0, 1] is at most ``far``."""
    if mean >= 1:
        return 1.0

    def excess(p: float) -> float:
        return float(kl_div(mean, p) + kl_div(1 - mean, 1 - p)) - far

    almost = math.nextafter(1.0, 0.0)
    return 1.0 if excess(almost) <= 0 else float(brentq(excess, mean, almost))


def _checked(bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise PlanError(f"bounds are two numbers, (low, high); got {bounds!r}.") from error
    if not (low < high and math.isfinite(low) and math.isfinite(high - low)):
        raise PlanError(f"bounds must be finite, with low below high; got ({low}, {high}).")
    return low, high


def _numbers(values: Any) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise PlanError("expected one number per record; got something else.") from None
    if numbers.ndim != 1:
        raise PlanError(f"expected one number per record; got an array of shape {numbers.shape}.")
    return numbers
