"""Likelihood ratios of a canary's presence, from the released gradients.

Decoded by the encoder, C(g + ςC⁻¹z) = Cg + ςz, the noise is white again, and a canary that took part in the
steps y moves the stream of its place by a·Cy, where a is what it adds. For one pattern y the logarithm of
the likelihood to that of no canary is therefore

    ℓ(y, a) = (a⟨Cy, w⟩ - a²‖Cy‖²/2) / σ²,      w the decoded stream in clip norms, σ the noise multiplier,

and for an unknown pattern that of the mixture, log Σ p(y) exp ℓ(y, a): over all patterns where there are
few, as a product over steps for independent noise, else by mean field (below the truth: still a score,
since any function of what was released is one). By the lemma of Neyman and Pearson the score, the ratio for
present to absent, makes the best attack where it is exact.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, xlogy

from antiphon.plans import BallsInBins, CyclicPoisson, FixedSize, Plan, Poisson, ShuffledEpochs

__all__ = ["Law", "law_of", "log_ratio_hidden", "log_ratio_known"]

Array = NDArray[np.float64]

_MOST_PATTERNS = 4096
_SWEEPS = 12  # of mean field
_CHUNK = 2**24  # numbers at a time


def log_ratio_known(
    encoder: Array, white: Array, seen: Array, noise: float, present: float, absent: float
) -> Array:
    """Scores where the attacker knows each canary's steps.

    Args:
        encoder: C.
        white: Decoded streams, steps by canaries.
        seen: Their participations, likewise.
        noise: σ.
        present: What a canary that is in adds.
        absent: What one that is out adds.
    """
    moved = encoder @ seen
    inner, energy = (moved * white).sum(0), (moved**2).sum(0)
    found: Array = ((present - absent) * inner - (present**2 - absent**2) * energy / 2) / noise**2
    return found


@final
@dataclass(frozen=True)
class Law:
    """The law of one canary's participations, as a mixture of independent coins.

    Attributes:
        rates: Groups by steps: the chance to take part in each step, given the group. Groups are equally
            likely.
    """

    rates: Array

    def patterns(self) -> tuple[Array, Array] | None:
        """All patterns with the logarithms of their probabilities, if there are not too many."""
        free = ((self.rates > 0) & (self.rates < 1)).sum(1)
        if np.exp2(free.astype(float)).sum() > _MOST_PATTERNS:
            return None
        rows, logs = [], []
        for rates, number in zip(self.rates, free, strict=True):
            open_steps = (rates > 0) & (rates < 1)
            coins = np.array(list(product((0.0, 1.0), repeat=int(number)))).reshape(2**number, -1)
            found = np.tile(rates, (len(coins), 1))
            found[:, open_steps] = coins
            chance = np.where(coins > 0, rates[open_steps], 1 - rates[open_steps])
            rows.append(found)
            logs.append(np.log(chance).sum(1) - math.log(len(self.rates)))
        return np.concatenate(rows), np.concatenate(logs)


def law_of(plan: Plan, length: int) -> Law:
    """How a canary's steps are drawn, for those who do not know them, in a stream of this length."""
    steps = np.arange(length)
    match plan.sampling:
        case Poisson(rate):
            return Law(np.full((1, length), rate))
        case FixedSize(batch):
            return Law(np.full((1, length), batch / plan.n))
        case BallsInBins(bins):
            return Law((steps % bins == np.arange(bins)[:, None]).astype(float))
        case CyclicPoisson(rate, cycle):
            return Law(rate * (steps % cycle == np.arange(cycle)[:, None]))
        case ShuffledEpochs(batch, False):
            bins = -(-plan.n // batch)
            return Law((steps % bins == np.arange(bins)[:, None]).astype(float))
    # Orders that are shuffled again and again: as if every step were a coin of its own.
    return Law(np.full((1, length), min(1.0, plan.expected_batch / plan.n)))


def log_ratio_hidden(
    encoder: Array, white: Array, law: Law, noise: float, present: float, absent: float
) -> Array:
    """Scores where the canaries' steps are unknown. Arguments as in `log_ratio_known`."""
    found = _log_mixture(encoder, white, law, noise, present)
    return found - _log_mixture(encoder, white, law, noise, absent) if absent else found


def _log_mixture(encoder: Array, white: Array, law: Law, noise: float, amplitude: float) -> Array:
    """The mixture's log Σ p(y) exp ℓ(y, a) for every column of ``white``."""
    # ℓ(y, a) = ⟨y, h⟩ - yᵀKy/2
    fields = amplitude * (encoder.T @ white) / noise**2
    gram = amplitude**2 * (encoder.T @ encoder) / noise**2
    everything = law.patterns()
    if everything is not None:
        return _over_patterns(*everything, fields, gram)
    by_group = [_mean_field(rates, fields, gram) for rates in law.rates]
    found: Array = logsumexp(by_group, axis=0) - math.log(len(by_group))
    return found


def _over_patterns(patterns: Array, logs: Array, fields: Array, gram: Array) -> Array:
    constant = logs - np.einsum("ps,st,pt->p", patterns, gram, patterns, optimize=True) / 2
    size = max(1, _CHUNK // len(patterns))
    parts = [
        logsumexp(patterns @ fields[:, start : start + size] + constant[:, None], axis=0)
        for start in range(0, fields.shape[1], size)
    ]
    found: Array = np.concatenate(parts)
    return found


def _mean_field(rates: Array, fields: Array, gram: Array) -> Array:
    """The largest lower bound on the mixture's logarithm by independent coins q: exact if K is diagonal.

    Σ_t q_t (h_t - K_tt/2) - Σ_{s<t} K_st q_s q_t - KL(q, r), at a fixed point of q or near it.
    """
    used = (rates > 0).nonzero()[0]
    r, h, K = rates[used, None], fields[used], gram[np.ix_(used, used)]
    own = np.diag(K)[:, None] / 2
    coupling = K - np.diag(np.diag(K))
    with np.errstate(divide="ignore"):
        prior = np.log(r) - np.log1p(-r)
    q = np.broadcast_to(r, h.shape).copy()
    if coupling.any():
        for _ in range(_SWEEPS):  # half way each time: whole steps may swing
            q = (q + expit(prior + h - own - coupling @ q)) / 2
    else:
        q = expit(prior + h - own)
    divergence = xlogy(q, q / r) + xlogy(1 - q, (1 - q) / np.where(r < 1, 1 - r, 1.0))
    energy = q * (h - own) - q * (coupling @ q) / 2
    found: Array = (energy - divergence).sum(0)
    return found
