"""How batches are drawn. A scheme is accounted for as it is really drawn, never as a likelier one."""

from antiphon.plans.sampling.abstract_sampling import AbstractSampling, sampling_from_dict
from antiphon.plans.sampling.coins import CyclicPoisson, FixedSize, Poisson
from antiphon.plans.sampling.draws import Draws, random_subset
from antiphon.plans.sampling.epochs import BallsInBins, FullBatch, OnePass, Recorded, ShuffledEpochs
from antiphon.plans.sampling.names import SAMPLINGS, relation_of, sampling_of

__all__ = [
    "SAMPLINGS",
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
    "random_subset",
    "relation_of",
    "sampling_from_dict",
    "sampling_of",
]
