"""How batches are drawn. A scheme is accounted for as it is really drawn, never as a likelier one."""

from antiphon.sampling.base import AbstractSampling, from_dict
from antiphon.sampling.draws import Draws, random_subset
from antiphon.sampling.epochs import (
    BallsInBins,
    FullBatch,
    OnePass,
    Recorded,
    ShuffledEpochs,
)
from antiphon.sampling.random import CyclicPoisson, FixedSize, Poisson

__all__ = [
    "AbstractSampling",
    "BallsInBins",
    "CyclicPoisson",
    "Draws",
    "FixedSize",
    "FullBatch",
    "OnePass",
    "Poisson",
    "Recorded",
    "ShuffledEpochs",
    "from_dict",
    "random_subset",
]
