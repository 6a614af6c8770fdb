"""What may be learned from the data beside training, each with the event that pays for it.

>>> import numpy as np
>>> from antiphon.numerics import Generator
>>> from antiphon.releases import private_bounds
>>> X = np.random.default_rng(0).lognormal(size=(10_000, 2)) * [1, 1000]
>>> low, high, events = private_bounds(X, mu=0.5, generator=Generator.seeded(0))
>>> low.tolist(), high.tolist()
([0.0625, 64.0], [16.0, 16384.0])
>>> events[0].mu
0.5
"""

from antiphon.releases.histogram import histogram_sensitivity, private_histogram
from antiphon.releases.mean import Mean, mean_sensitivity, private_mean
from antiphon.releases.private_bounds import ColumnBounds, false_inclusion, private_bounds
from antiphon.releases.quantile import private_quantile
from antiphon.releases.score import Score, private_accuracy
from antiphon.releases.share import mu_of_share
from antiphon.releases.threshold import (
    private_threshold,
    public_threshold,
    threshold_slack,
    thresholds,
)

__all__ = [
    "ColumnBounds",
    "Mean",
    "Score",
    "false_inclusion",
    "histogram_sensitivity",
    "mean_sensitivity",
    "mu_of_share",
    "private_accuracy",
    "private_bounds",
    "private_histogram",
    "private_mean",
    "private_quantile",
    "private_threshold",
    "public_threshold",
    "threshold_slack",
    "thresholds",
]
