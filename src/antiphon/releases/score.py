"""How often a model is right on private records."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtri

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.plans import GaussianRelease
from antiphon.releases.release_noise import noised

__all__ = ["Score", "private_accuracy"]


class Score(NamedTuple):
    """A share of right predictions.

    Attributes:
        value: The noisy share, within [0, 1].
        interval: Confidence interval for the probability of being right on a new record.
        event: What was released, for a plan's ``extra``.
    """

    value: float
    interval: tuple[float, float]
    event: GaussianRelease


def private_accuracy(
    correct: Any,
    *,
    mu: float,
    generator: Generator | None = None,
    n: int | None = None,
    confidence: float = 0.95,
    what: str = "an accuracy",
) -> Score:
    """The share of right predictions with Gaussian noise, and what it costs.

    Args:
        correct: For each record, whether the prediction is right.
        mu: The privacy to spend; positive. The noise in the share has standard deviation 1/(μ n).
        generator: Secret source of the noise; a new secure one unless given.
        n: Public number of records; their true number, which is then declared public, unless given.
        confidence: Of the interval.
        what: What is released, for the certificate.

    Guarantee:
        Exactly μ-GDP under every relation: one record, added, removed, zeroed or replaced, changes the
        number of right predictions by at most 1. If the records are independent draws and ``n`` is their
        number, the interval misses the probability of a right prediction in at most a share 1 - confidence
        of all releases: half of that is for the noise, half for exact binomial limits
        [ClopperPearson34] at the counts that the noise leaves possible.

    Example:
        >>> score = private_accuracy([True] * 90 + [False] * 10, mu=1.0, generator=Generator.seeded(0))
        >>> round(score.value, 2), [round(end, 2) for end in score.interval]
        (0.9, [0.79, 0.97])
    """
    right = np.asarray(correct)
    if right.ndim != 1 or (right.dtype != np.bool_ and right.size):
        raise PlanError(
            "expected one True or False per record, such as `predicted == y`; got an array of "
            f"{right.dtype} and shape {right.shape}."
        )
    if not 0 < confidence < 1:
        raise PlanError(f"confidence lies strictly between 0 and 1; got {confidence}.")
    size, scale = whole("n", len(right) if n is None else n), 1 / positive("mu", mu)
    noisy = float(noised(np.array([right.sum()]), scale, what, generator)[0])
    miss = (1 - confidence) / 4  # for each of noise and draws, at each end
    reach = float(-ndtri(miss)) * scale
    least = min(max(math.ceil(noisy - reach), 0), size)
    most = min(max(math.floor(noisy + reach), 0), size)
    low = float(betaincinv(least, size - least + 1, miss)) if least > 0 else 0.0
    high = 1 - float(betaincinv(size - most, most + 1, miss)) if most < size else 1.0
    value = min(max(noisy / size, 0.0), 1.0)
    return Score(value, (low, high), GaussianRelease(float(mu), what))
