"""Is the noise what the plan says? Its covariance, from one run on data that adds nothing.

Decoded by the encoder, what a run without signal releases is white noise of the plan's scale: w_t = ςz_t.
Its size is tested by Σ w²/σ² (chi-squared), its independence by the correlation of every two steps over all
places (nearly normal over thousands of places). This owns the mistakes that no attack with a fixed score
sees, such as noise that is used twice; a clip or a certificate that is wrong it does not see.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2

from antiphon.audits.instance import Instance
from antiphon.audits.lookup import layers_of
from antiphon.audits.trainer import Trainer, seed_for, train
from antiphon.certificates import Certificate
from antiphon.checks import whole
from antiphon.errors import PlanError

__all__ = ["Whiteness", "whiteness"]

_NUMBERS = 4e6
_FEWEST = 1000  # places: a correlation over fewer is not nearly normal


@final
@dataclass(frozen=True)
class Whiteness:
    """How well the decoded noise of a run agrees with white noise of the plan's scale.

    Attributes:
        scale: Its standard deviation, 1 if it is as planned.
        correlation: The largest correlation, in absolute value, between two steps.
        p_value: Chance of a result at least as far off, if the noise is as planned (Bonferroni over the
            scale and all pairs of steps, over all blocks).
        places: Numbers released at every step.
    """

    scale: float
    correlation: float
    p_value: float
    places: int


def whiteness(
    certificate: Certificate,
    *,
    places: int | None = None,
    seed: int = 0,
    trainer: Trainer = train,
) -> Whiteness:
    """Compare the noise of one run with the plan's.

    Args:
        certificate: The claim, with its plan.
        places: Parameters of the model that is trained; unless given, as many as fit, at least 1,000.
        seed: Of the noise.
        trainer: What is tested; unless given, the trainer that everyone uses.

    Guarantee:
        For noise as planned the p-value is at most p with probability p, up to the normal approximation of
        a correlation over ``places`` numbers.
    """
    plan, layers = certificate.plan, layers_of(certificate.plan)
    count = whole("places", places or min(100_000, max(_FEWEST, int(_NUMBERS / plan.steps))))
    if count < _FEWEST:
        raise PlanError(f"correlations need at least {_FEWEST} places; got {count}.")
    rows = min(plan.n, 1000) if plan.sampling.own_coin else plan.n
    ghosts = Instance(np.zeros(rows, np.int64), np.zeros(rows), count, np.empty(0, np.int64))
    transcript = trainer(certificate, ghosts, seed_for(seed, "whiteness"))
    streams, noises = list(transcript.streams), [layer.noise for layer in layers]
    if transcript.votes is not None:
        # Ghosts vote all the same, each against the canary's direction.
        streams.append(transcript.votes + [[float(len(rows))] for rows in transcript.rows])
        noises.append(plan.blocks[-1].noise_multiplier)
    encoder = plan.known_mechanism().encoder(len(streams[0]))
    found = [_test(encoder @ s / noise) for s, noise in zip(streams, noises, strict=True)]
    scale, correlation, p_value = min(found, key=lambda test: test[2])
    return Whiteness(scale, correlation, min(1.0, len(found) * p_value), count)


def _test(white: np.ndarray) -> tuple[float, float, float]:
    """Scale, largest correlation and p-value of what should be independent standard normal numbers."""
    steps, places = white.shape
    total = float((white**2).sum())
    by_scale = 2 * min(chi2.cdf(total, white.size), chi2.sf(total, white.size))
    # Divided by the plan's scale, not by the noise's own: a scale that is off is seen above.
    inner = np.tril(white @ white.T, -1) / math.sqrt(places)
    pairs = steps * (steps - 1) / 2 if places > 1 else 0  # one product is not nearly normal
    largest = float(np.abs(inner).max()) if pairs else 0.0
    by_pairs = 2 * pairs * float(ndtr(-largest))
    p_value = float(min(1.0, 2 * min(by_scale, by_pairs if pairs else 1.0)))
    return math.sqrt(total / white.size), largest / math.sqrt(places), p_value
