"""From what a run released to one score for every canary."""

import math
from typing import final

import numpy as np
from numpy.typing import NDArray

from antiphon.audits.claim import is_gaussian
from antiphon.audits.instance import Instance
from antiphon.audits.lookup import layers_of
from antiphon.audits.scores import law_of, log_ratio_hidden, log_ratio_known
from antiphon.audits.trainer import Transcript
from antiphon.certificates import Certificate
from antiphon.errors import PlanError, UnsupportedError
from antiphon.participation import Relation

__all__ = ["Attack"]

Array = NDArray[np.float64]

_MOST_STEPS = 8192  # arrays of steps by steps are formed


@final
class Attack:
    """The best score that is known for what a certificate promises.

    Args:
        certificate: The claim: the attack decodes with its plan's encoder, and uses the batches only where
            the proof holds for those who know them.

    Attributes:
        certificate: The claim.
        plan: Its plan.
        is_gaussian: Whether the claim is a Gaussian curve as a whole. It then holds for every pattern of
            participation by itself, and the attacker is told who was in which batch. Other claims are
            hulls of several proofs, and some of these need the batches to be secret.
    """

    def __init__(self, certificate: Certificate) -> None:
        if not 0 < certificate.epsilon < math.inf:
            raise PlanError(
                f"an audit compares what it finds with a positive, finite ε; the certificate has "
                f"ε = {certificate.epsilon:g}. Certify the plan at another δ."
            )
        if certificate.plan.steps > _MOST_STEPS:
            raise UnsupportedError(
                f"an audit decodes all steps at once, at most {_MOST_STEPS}; the plan has "
                f"{certificate.plan.steps}. Audit a shorter plan of the same kind."
            )
        self.certificate, self.plan = certificate, certificate.plan
        self.is_gaussian = is_gaussian(certificate)
        self._encoder: Array = self.plan.known_mechanism().encoder(self.plan.steps)

    def scores(self, instance: Instance, transcript: Transcript, seed: int = 0) -> Array:
        """Log-likelihood ratios of present to absent, one for each canary.

        Args:
            instance: What was planted.
            transcript: What was released.
            seed: Of the attacker's own coins, which give batches to a canary that is not there.
        """
        stream, noise = self._combined(instance, transcript)
        # As long as what was released, should that be more than was planned.
        encoder = self._encoder
        if len(stream) != len(encoder):
            encoder = self.plan.known_mechanism().encoder(len(stream))
        white = encoder @ (stream - instance.others)
        sizes = (noise, instance.present, instance.absent)
        if self.is_gaussian:
            return log_ratio_known(encoder, white, self._seen(instance, transcript, seed), *sizes)
        return log_ratio_hidden(encoder, white, law_of(self.plan, len(stream)), *sizes)

    def _combined(self, instance: Instance, transcript: Transcript) -> tuple[Array, float]:
        """One stream out of those of all blocks, weighed by their precision; and its noise."""
        streams = list(transcript.streams)
        noises = [layer.noise for layer in layers_of(self.plan)]
        alone = instance.places == 1 and Relation.of(self.plan.relation) is Relation.ADD_REMOVE
        if transcript.votes is not None and alone:  # canaries of one run share the votes
            own = instance.row_of[0]
            others = [[float((rows != own).sum())] for rows in transcript.rows]  # vote against it
            streams.append(transcript.votes + others)
            noises.append(self.plan.blocks[-1].noise_multiplier)
        weights = np.array(noises) ** -2.0
        total = sum(w * s for w, s in zip(weights, streams, strict=True)) / weights.sum()
        return np.asarray(total), float(weights.sum() ** -0.5)

    def _seen(self, instance: Instance, transcript: Transcript, seed: int) -> Array:
        """Steps by canaries: who took part, or would have, had it been there."""
        seen = np.zeros((len(transcript.rows), len(instance.row_of)))
        missing = np.flatnonzero(instance.row_of < 0)
        if len(missing):
            # Neighbours differ in a record with given batches: one that is not there gets them from here.
            rates = law_of(self.plan, len(seen)).rates
            coins = np.random.default_rng([seed, 1])
            groups = coins.integers(len(rates), size=len(missing))
            seen[:, missing] = coins.random((len(seen), len(missing))) < rates[groups].T
        canary_of = np.full(max(len(instance.place), 1), -1)
        there = instance.row_of >= 0
        canary_of[instance.row_of[there]] = np.flatnonzero(there)
        for step, rows in enumerate(transcript.rows):
            canaries = canary_of[rows]
            seen[step, canaries[canaries >= 0]] = 1.0
        return seen
