"""Audit by many runs, each with or without one worst-case record."""

import time
from dataclasses import dataclass
from typing import final

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import ndtri

from antiphon.accounting import gaussian_epsilon
from antiphon.auditing.attack import Attack
from antiphon.auditing.bounds import (
    TradeOffBand,
    epsilon_from_rates,
    mu_from_guesses,
    trade_off_band,
)
from antiphon.auditing.instance import worst_case, worst_row
from antiphon.auditing.result import VERDICT_CONFIDENCE, Audit
from antiphon.auditing.trainer import Trainer, train
from antiphon.certificate import Certificate
from antiphon.checks import whole
from antiphon.progress import bar

__all__ = ["Worlds", "play", "two_world"]

_PART = 50  # runs between two signs of progress
_PILOT = 4  # one run in so many only chooses the threshold, where one is needed
_GRID = np.linspace(
    -6.0, 6.0, 49
)  # log-likelihood ratios: their meaning does not depend on the data


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
        """Rates of errors of both kinds at thresholds that were fixed in advance, all at once."""
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
        is_gaussian, count = certificate.route == "gaussian", len(self.scores)
        counted, cut = slice(None), 0.0
        if not is_gaussian:
            counted = slice(count // _PILOT, None)
            cut = self._threshold(slice(0, count // _PILOT), confidence)
        right = (self.scores[counted] > cut) == self.is_in[counted]
        if is_gaussian:
            audited = self._epsilon(mu_from_guesses(int(right.sum()), len(right), confidence))
            # Even guesses see a small excess, one-sided ones a gross one: the verdict asks both.
            strict = (1 + verdict_confidence) / 2
            evenly = mu_from_guesses(int(right.sum()), len(right), strict)
            refuted = self._epsilon(max(evenly, self._one_sided(strict)))
        else:
            audited = self._point(counted, cut, confidence)
            refuted = self._point(counted, cut, verdict_confidence)
        return Audit(
            method="two-world",
            certified_epsilon=certificate.epsilon,
            audited_epsilon=audited,
            delta=certificate.delta,
            confidence=confidence,
            refuted_epsilon=refuted,
            verdict_confidence=verdict_confidence,
            curve="gaussian" if is_gaussian else "point",
            right=int(right.sum()),
            guesses=len(right),
            canaries=count,
            runs=count,
            plan=certificate.plan.hash,
            seconds=self.seconds,
        )

    def _epsilon(self, mu: float) -> float:
        return gaussian_epsilon(mu, self.certificate.delta) if mu > 0 else 0.0

    def _one_sided(self, confidence: float) -> float:
        """The largest μ that the error rates at any of the fixed thresholds refute."""
        band = self.band(confidence)
        # Under μ-GDP Φ⁻¹(1 - α) - Φ⁻¹(β) is at most μ, for the rates of any test.
        return float(np.max(-ndtri(band.alpha_high) - ndtri(band.beta_high)))

    def _point(self, runs: slice, cut: float, confidence: float) -> float:
        said, is_in = self.scores[runs] > cut, self.is_in[runs]
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
        cuts = np.unique(self.scores[runs])
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
        runs: Their number: about 10,000 at ε = 1 and 1,000 at ε = 4 come within a fifth of a tight ε.
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
    coins = np.random.default_rng(seed).random(whole("runs", runs)) < 0.5
    seeds = np.random.SeedSequence(seed).generate_state(runs, np.uint64)
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
        found.append(float(attack.scores(instance, transcript, number)[0]))
    return found
