"""Audit by one training run with many canaries [SteinkeNasrJagielski23, Mahloujifar24]."""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from antiphon.accounting import gaussian_mu
from antiphon.audits.attack import Attack
from antiphon.audits.claim import bound_on_epsilon, curve_of
from antiphon.audits.instance import canaries as planted
from antiphon.audits.one_run_bounds import guesses_for, is_refuted
from antiphon.audits.result import VERDICT_CONFIDENCE, Audit
from antiphon.audits.trainer import Trainer, seed_for, train
from antiphon.certificates import Certificate
from antiphon.checks import whole
from antiphon.errors import PlanError

__all__ = ["one_run"]

_MOST = 100_000
_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of canaries to guess

_VERDICT_SHARES = (0.01, 0.1, 0.5)


def one_run(
    certificate: Certificate,
    *,
    canaries: int | None = None,
    numbers: float = 2e7,
    guesses: int | None = None,
    confidence: float = 0.95,
    verdict_confidence: float = VERDICT_CONFIDENCE,
    seed: int = 0,
    trainer: Trainer = train,
) -> Audit:
    """Train once on canaries in directions of their own, each in or out by a coin, and guess the coins.

    Args:
        certificate: The claim, with its plan.
        canaries: Their number; unless given, as many as fit (at most 100,000, and the plan's records where
            batches are given by row).
        numbers: Released numbers to keep, at most, where ``canaries`` is not given.
        guesses: How many coins are guessed, those with the clearest scores; unless given, the best number
            for a Gaussian claim, and else chosen on a run of its own.
        confidence: Of the audited ε.
        verdict_confidence: A violation is declared at this confidence.
        seed: Of coins, noise and batches.
        trainer: What is attacked; unless given, the trainer that everyone uses.

    Guarantee:
        If what runs is private as certified, then ``audited_epsilon`` is at most its ε with probability
        ``confidence``, whatever the dependence between canaries (`antiphon.audits.one_run_bounds`).
    """
    began, plan = time.perf_counter(), certificate.plan
    count = _count(certificate, canaries, numbers)
    game = _Game(certificate, count, trainer)
    runs = 1
    if guesses is None and game.attack.is_gaussian:
        guesses = guesses_for(count, gaussian_mu(certificate.epsilon, certificate.delta))
    if guesses is None:
        right = game.play(seed_for(seed, "pilot"))
        guesses = max(
            {max(1, round(share * count)) for share in _SHARES},
            key=lambda c: (
                bound_on_epsilon(certificate, int(right[:c].sum()), c, count, confidence),
                c,
            ),
        )
        runs = 2
    if not 1 <= whole("guesses", guesses) <= count:
        raise PlanError(f"there are {count} canaries to guess; got guesses={guesses}.")
    right = game.play(seed_for(seed, "one run"))
    found = int(right[:guesses].sum())
    # Few guesses see a small excess, many a gross one: the verdict asks several numbers of them.
    numbers_of = sorted({guesses, *(max(1, round(share * count)) for share in _VERDICT_SHARES)})
    strict = 1 - (1 - verdict_confidence) / len(numbers_of)
    claimed = curve_of(certificate)
    refuted = (is_refuted(claimed, int(right[:c].sum()), c, count, strict) for c in numbers_of)
    return Audit(
        method="one-run",
        certified_epsilon=certificate.epsilon,
        audited_epsilon=bound_on_epsilon(certificate, found, guesses, count, confidence),
        delta=certificate.delta,
        confidence=confidence,
        is_violation=any(refuted),
        verdict_confidence=verdict_confidence,
        curve="gaussian" if game.attack.is_gaussian else "point",
        right=found,
        guesses=guesses,
        canaries=count,
        runs=runs,
        plan=plan.hash,
        seconds=time.perf_counter() - began,
    )


@final
@dataclass(frozen=True)
class _Game:
    certificate: Certificate
    count: int
    trainer: Trainer

    @cached_property
    def attack(self) -> Attack:
        """The attack on the claim."""
        return Attack(self.certificate)

    def play(self, seed: int) -> NDArray[np.bool_]:
        """Which guesses are right, the clearest first."""
        coins = np.random.default_rng(seed_for(seed, "coins")).random(self.count) < 0.5
        instance = planted(self.certificate.plan, coins)
        transcript = self.trainer(self.certificate, instance, seed_for(seed, "run"))
        scores = self.attack.scores(instance, transcript, seed_for(seed, "attack"))
        clearest = np.argsort(-np.abs(scores), kind="stable")
        right: NDArray[np.bool_] = ((scores > 0) == coins)[clearest]
        return right


def _count(certificate: Certificate, canaries: int | None, numbers: float) -> int:
    plan = certificate.plan
    if canaries is not None:
        return whole("canaries", canaries)
    most = min(_MOST, max(1000, int(numbers / plan.steps)))
    return most if plan.sampling.own_coin else min(most, plan.n)
