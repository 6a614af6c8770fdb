"""One ReLU neuron under a plan: GLMtron and stochastic gradients on arrays, by compiled loops."""

from antiphon.training.neuron.clip_norms import (
    AbstractClipNorms,
    BlockThreshold,
    Constant,
    PublicThreshold,
    Seen,
    residuals,
)
from antiphon.training.neuron.descent import AVERAGES, DIRECTIONS, Descent, descend, random_start
from antiphon.training.neuron.noise_rows import NoiseRows

__all__ = [
    "AVERAGES",
    "DIRECTIONS",
    "AbstractClipNorms",
    "BlockThreshold",
    "Constant",
    "Descent",
    "NoiseRows",
    "PublicThreshold",
    "Seen",
    "descend",
    "random_start",
    "residuals",
]
