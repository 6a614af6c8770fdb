"""Audit by many runs, each with or without one worst-case record."""

import time
from dataclasses import dataclass
from itertools import repeat
from typing import final

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from antiphon.audits.attack import Attack
from antiphon.audits.claim import curve_of, epsilon_of, is_gaussian
from antiphon.audits.hypotheses import AbstractCurve
from antiphon.audits.instance import worst_case, worst_row
from antiphon.audits.result import VERDICT_CONFIDENCE, Audit
from antiphon.audits.trainer import Trainer, seed_for, train
from antiphon.audits.trial_bounds import (
    TradeOffBand,
    binomial_lower,
    epsilon_from_rates,
    mu_from_guesses,
    trade_off_band,
)
from antiphon.certificates import Certificate
from antiphon.checks import whole
from antiphon.progress import bar

__all__ = ["Worlds", "play", "two_world"]

_PART = 50  # runs between two signs of progress
_PILOT = 4  # one run in so many only chooses the threshold, where one is needed
# Thresholds are log-likelihood ratios: their meaning does not depend on the data.
_GRID = np.linspace(-6.0, 6.0, 49)


@final
@dataclass(frozen=True)
class Worlds:
    """The scores of many runs.

    Attributes:
        certificate: The claim that was attacked.
        scores: Log-likelihood ratios of present to absent.
        is_in: Whether the record was there: a fair coin of each run.
        seconds: Time taken.
    """

    certificate: Certificate
    scores: NDArray[np.float64]
    is_in: NDArray[np.bool_]
    seconds: float

    def band(self, confidence: float = VERDICT_CONFIDENCE) -> TradeOffBand:
        """Rates of errors of both kinds at thresholds that were fixed in advance, all at once.

        Raises:
            PlanError: If all runs were in the same world.
        """
        return trade_off_band(self.scores[self.is_in], self.scores[~self.is_in], confidence, _GRID)

    def audit(
        self, confidence: float = 0.95, verdict_confidence: float = VERDICT_CONFIDENCE
    ) -> Audit:
        """The bound on ε that the runs prove.

        Guarantee:
            If the runs are independent and private as certified, ``audited_epsilon`` is at most their ε
            with probability ``confidence``. For a Gaussian claim by the share of right guesses, at most
            Φ(μ/2); else by the rates of both errors at one threshold, chosen on a quarter of the runs
            that does not count.
        """
        certificate = self.certificate
        exact, count = is_gaussian(certificate), len(self.scores)
        counted, cut = slice(None), 0.0
        if not exact:
            counted = slice(count // _PILOT, None)
            cut = self._threshold(slice(0, count // _PILOT), confidence)
        right = (self.scores[counted] > cut) == self.is_in[counted]
        if exact:
            mu = mu_from_guesses(int(right.sum()), len(right), confidence)
            audited = epsilon_of(mu, certificate)
        else:
            audited = self._point(counted, cut, confidence)
        return Audit(
            method="two-world",
            certified_epsilon=certificate.epsilon,
            audited_epsilon=audited,
            delta=certificate.delta,
            confidence=confidence,
            is_violation=self._is_refuted(verdict_confidence),
            verdict_confidence=verdict_confidence,
            curve="gaussian" if exact else "point",
            right=int(right.sum()),
            guesses=len(right),
            canaries=count,
            runs=count,
            plan=certificate.plan.hash,
            seconds=self.seconds,
        )

    def _is_refuted(self, confidence: float) -> bool:
        """Whether the guesses, or the rates of errors at any threshold, pass the certified curve."""
        # Even guesses see a small excess, one-sided ones a gross one: both are asked, at half the risk.
        strict = (1 + confidence) / 2
        if self.is_in.all() or not self.is_in.any():
            return False
        curve, band = curve_of(self.certificate), self.band(strict)
        if any(map(_passes, repeat(curve), 1 - band.beta_high, band.alpha_high)):
            return True
        right = int(((self.scores > 0) == self.is_in).sum())
        return binomial_lower(right, len(self.scores), strict) > _most_right(curve)

    def _point(self, runs: slice, cut: float, confidence: float) -> float:
        said, is_in = self.scores[runs] > cut, self.is_in[runs]
        if is_in.all() or not is_in.any():  # too few runs: a world is empty
            return 0.0
        return epsilon_from_rates(
            int((said & ~is_in).sum()),
            int((~is_in).sum()),
            int((said & is_in).sum()),
            int(is_in.sum()),
            self.certificate.delta,
            confidence,
        )

    def _threshold(self, runs: slice, confidence: float) -> float:
        """The cut whose bound is largest on these runs, were they as many as those that count."""
        cuts = np.unique(np.append(self.scores[runs], 0.0))
        if len(cuts) > 200:
            cuts = np.quantile(cuts, np.linspace(0, 1, 200))
        return float(max(cuts, key=lambda cut: self._point(runs, float(cut), confidence)))


def two_world(
    certificate: Certificate,
    *,
    runs: int = 1000,
    confidence: float = 0.95,
    verdict_confidence: float = VERDICT_CONFIDENCE,
    seed: int = 0,
    jobs: int = 1,
    trainer: Trainer = train,
) -> Audit:
    """Train many times, with or without a worst-case record by a coin, and guess the coin of each run.

    Args:
        certificate: The claim, with its plan.
        runs: Their number: 30,000 at ε = 1 and 3,000 at ε = 4 mostly come within a fifth of a tight ε.
        confidence: Of the audited ε.
        verdict_confidence: A violation is declared at this confidence.
        seed: Of coins, noise and batches.
        jobs: Processes.
        trainer: What is attacked; unless given, the trainer that everyone uses.
    """
    worlds = play(certificate, runs, seed=seed, jobs=jobs, trainer=trainer)
    return worlds.audit(confidence, verdict_confidence)


def play(
    certificate: Certificate,
    runs: int,
    *,
    seed: int = 0,
    jobs: int = 1,
    trainer: Trainer = train,
) -> Worlds:
    """The runs of `two_world` and their scores. Arguments as there."""
    began = time.perf_counter()
    coins = np.random.default_rng(seed_for(seed, "worlds")).random(whole("runs", runs)) < 0.5
    seeds = np.random.SeedSequence(seed_for(seed, "runs")).generate_state(runs, np.uint64)
    parts = [slice(start, start + _PART) for start in range(0, runs, _PART)]
    attack, row, scores = Attack(certificate), worst_row(certificate.plan), list[float]()
    tasks = (delayed(_play)(attack, row, trainer, coins[part], seeds[part]) for part in parts)
    with bar(f"{runs} runs") as show:
        for found in Parallel(n_jobs=jobs, return_as="generator")(tasks):
            scores += found
            show(len(scores), runs)
    return Worlds(certificate, np.array(scores), coins, time.perf_counter() - began)


def _play(
    attack: Attack, row: int, trainer: Trainer, coins: NDArray[np.bool_], seeds: NDArray[np.uint64]
) -> list[float]:
    found = []
    for is_in, seed in zip(coins, seeds, strict=True):
        instance = worst_case(attack.plan, bool(is_in), row)
        number = int(seed) >> 1  # seeds have 63 bits
        transcript = trainer(attack.certificate, instance, number)
        found.append(float(attack.scores(instance, transcript, seed_for(number, "attack"))[0]))
    return found


def _passes(curve: AbstractCurve, true_positive: float, false_positive: float) -> bool:
    """Whether no test of a mechanism with this curve has such rates."""
    return bool(curve.inverse(float(true_positive)) > false_positive)


def _most_right(curve: AbstractCurve) -> float:
    """The largest share of right guesses of a fair coin: (1 + TPR - FPR)/2."""
    # TPR - G(TPR) is concave: a fine grid, and its slope of at most 1 between, bound it from above.
    grid = np.linspace(0.0, 1.0, 1001)
    return float((1 + max(p - curve.inverse(float(p)) for p in grid) + grid[1]) / 2)
