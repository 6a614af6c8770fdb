"""Audits by independent trials: in each, a fair coin or the caller decides whether the record is there.

A record that is in half of the runs is guessed no better than the guarantee allows; exact limits for
binomial proportions [ClopperPearson34] turn the guesses that were right into a lower bound on μ or ε.
Nothing is assumed of the mechanism or of the attack, but for the hypothesis that is to be refuted.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import beta

from antiphon.checks import whole
from antiphon.errors import PlanError

__all__ = [
    "TradeOffBand",
    "binomial_lower",
    "binomial_upper",
    "check_confidence",
    "check_count",
    "epsilon_from_rates",
    "mu_from_guesses",
    "trade_off_band",
]

_Array = NDArray[np.float64]


def binomial_lower(successes: int, trials: int, confidence: float) -> float:
    """Lower confidence limit for a probability, from successes in independent trials.

    Guarantee:
        Above the true probability in at most a share 1 − confidence of all experiments, for every number
        of trials [ClopperPearson34]. This also holds if a trial's probability depends on earlier ones:
        then the limit is for the largest that a trial can have.

    Example:
        >>> round(binomial_lower(60, 100, confidence=0.95), 4)
        0.513
    """
    check_count("successes", successes, "trials", trials)
    return float(_lower(np.float64(successes), trials, 1 - check_confidence(confidence)))


def binomial_upper(successes: int, trials: int, confidence: float) -> float:
    """Upper confidence limit for a probability, from successes in independent trials.

    Guarantee:
        Below the true probability in at most a share 1 − confidence of all experiments, for every number
        of trials [ClopperPearson34]; where probabilities depend on earlier trials, the limit is for the
        smallest.

    Example:
        >>> round(binomial_upper(0, 100, confidence=0.95), 4)
        0.0295
    """
    check_count("successes", successes, "trials", trials)
    return float(
        1 - _lower(np.float64(trials - successes), trials, 1 - check_confidence(confidence))
    )


def mu_from_guesses(correct: int, trials: int, confidence: float) -> float:
    """Largest μ that is refuted by guessing fair coins, one in each of several independent runs.

    Args:
        correct: How many guesses were right.
        trials: Number of runs, with one guess in each. Fixed in advance.
        confidence: Probability with which the bound holds, in (0, 1).

    Guarantee:
        If the mechanism is μ-GDP, the result exceeds μ with probability at most 1 − confidence. A guess of
        a fair coin is right with probability (TPR + 1 − FPR)/2, which is at most Φ(μ/2) [DongRothSu22].

    Example:
        >>> round(mu_from_guesses(700, 1000, confidence=0.95), 4)
        0.9089
    """
    check_count("correct", correct, "trials", trials)
    return max(0.0, 2 * float(ndtri(binomial_lower(correct, trials, confidence))))


def epsilon_from_rates(
    false_positives: int,
    negatives: int,
    true_positives: int,
    positives: int,
    delta: float,
    confidence: float,
) -> float:
    """Largest ε that is refuted by the two error rates of one test, fixed in advance.

    Args:
        false_positives: Runs without the record in which the test said that it was there.
        negatives: Runs without the record.
        true_positives: Runs with the record in which the test said so.
        positives: Runs with the record.
        delta: The δ for which ε is asked, in [0, 1).
        confidence: Probability with which the bound holds, in (0, 1).

    Guarantee:
        If the mechanism is (ε, δ)-DP, the result exceeds ε with probability at most 1 − confidence. It is
        the larger of log((TPR − δ)/FPR) and log((TNR − δ)/FNR), with both rates at their limits, and at
        least 0.

    Example:
        >>> round(epsilon_from_rates(10, 1000, 400, 1000, delta=1e-5, confidence=0.95), 4)
        3.0044
    """
    check_count("false_positives", false_positives, "negatives", negatives)
    check_count("true_positives", true_positives, "positives", positives)
    if not 0 <= delta < 1:
        raise PlanError(
            f"δ must be at least 0 and below 1; got {delta}. Give the δ that was claimed."
        )
    # Two statements can fail: "TPR >= low" and "FPR <= high", each with half of the failure probability.
    # The mirrored test asks for TNR = 1 − FPR from below and FNR = 1 − TPR from above: the same two
    # statements. So whenever both hold, both tests hold, and nothing is paid for taking the better one.
    each = 1 - (1 - check_confidence(confidence)) / 2
    tpr = binomial_lower(true_positives, positives, each)
    fpr = binomial_upper(false_positives, negatives, each)
    fnr = binomial_upper(positives - true_positives, positives, each)
    tnr = binomial_lower(negatives - false_positives, negatives, each)
    return max(_log_ratio(tpr - delta, fpr), _log_ratio(tnr - delta, fnr))


@dataclass(frozen=True)
class TradeOffBand:
    """Error rates of a score against thresholds, with limits that hold for all of them at once.

    Attributes:
        threshold: The test says that the record is there if its score is above this.
        alpha: Share of false positives, and its limits ``alpha_low`` and ``alpha_high``.
        alpha_low: Lower limit.
        alpha_high: Upper limit.
        beta: Share of false negatives, and its limits ``beta_low`` and ``beta_high``.
        beta_low: Lower limit.
        beta_high: Upper limit.
    """

    threshold: _Array
    alpha: _Array
    alpha_low: _Array
    alpha_high: _Array
    beta: _Array
    beta_low: _Array
    beta_high: _Array


def trade_off_band(
    scores_in: ArrayLike, scores_out: ArrayLike, confidence: float, thresholds: ArrayLike
) -> TradeOffBand:
    """False positive and false negative rates of a score, with a simultaneous confidence band.

    Args:
        scores_in: One score for each independent run with the record.
        scores_out: One score for each independent run without it.
        confidence: Probability with which all limits hold together, in (0, 1).
        thresholds: Where to cut the scores. They must not depend on these scores; quantiles of an earlier
            experiment are a good choice.

    Guarantee:
        All 4 × len(thresholds) limits hold with probability at least ``confidence``: each is exact at its
        share of the failure probability [ClopperPearson34], and these add up to all of it (Bonferroni).

    Example:
        >>> band = trade_off_band([1, 2, 3, 4], [0, 1, 2, 3], confidence=0.95, thresholds=[1.5, 2.5])
        >>> band.alpha, band.beta
        (array([0.5 , 0.25]), array([0.25, 0.5 ]))
    """
    cuts = _row("thresholds", thresholds)
    inside, outside = _row("scores_in", scores_in), _row("scores_out", scores_out)
    failure = (1 - check_confidence(confidence)) / (4 * len(cuts))
    positives = np.array([np.count_nonzero(outside > cut) for cut in cuts], dtype=np.float64)
    negatives = np.array([np.count_nonzero(inside <= cut) for cut in cuts], dtype=np.float64)
    return TradeOffBand(
        cuts,
        positives / outside.size,
        _lower(positives, outside.size, failure),
        1 - _lower(outside.size - positives, outside.size, failure),
        negatives / inside.size,
        _lower(negatives, inside.size, failure),
        1 - _lower(inside.size - negatives, inside.size, failure),
    )


def check_confidence(confidence: float) -> float:
    """The confidence, if it lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise PlanError(
            f"confidence must lie strictly between 0 and 1; got {confidence}. It is the probability with "
            "which the bound holds: 0.95 is usual."
        )
    return float(confidence)


def check_count(name: str, value: Any, of: str, total: Any) -> None:
    """Raise unless the value counts some of a positive whole number of things."""
    whole(of, total)
    is_count = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (is_count and 0 <= value <= total):
        raise PlanError(
            f"{name} must be a whole number from 0 to {of} = {total}; got {value!r}. "
            "It counts some of them: check that the two were not swapped."
        )


def _lower(successes: Any, trials: int, failure: float) -> Any:
    """The p at which so many successes or more have probability ``failure``; 0 without any."""
    some = np.maximum(successes, 1)
    return np.where(successes > 0, beta.ppf(failure, some, trials - some + 1), 0.0)


def _log_ratio(above: float, below: float) -> float:
    """Logarithm of a ratio, at least 0. The limit below is positive, since trials are finite."""
    return max(0.0, math.log(above / below)) if above > 0 else 0.0


def _row(name: str, values: ArrayLike) -> _Array:
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or row.size == 0 or np.isnan(row).any():
        raise PlanError(
            f"{name} must be a non-empty list of numbers; got shape {row.shape}, or NaN."
        )
    return row
