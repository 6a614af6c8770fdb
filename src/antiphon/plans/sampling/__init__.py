"""How batches are drawn. A scheme is accounted for as it is really drawn, never as a likelier one."""

from antiphon.plans.sampling.abstract_sampling import AbstractSampling, sampling_from_dict
from antiphon.plans.sampling.balls_in_bins import BallsInBins
from antiphon.plans.sampling.cyclic_poisson import CyclicPoisson
from antiphon.plans.sampling.draws import Draws, random_subset
from antiphon.plans.sampling.fixed_size import FixedSize
from antiphon.plans.sampling.full_batch import FullBatch
from antiphon.plans.sampling.names import SAMPLINGS, relation_of, sampling_of
from antiphon.plans.sampling.one_pass import OnePass
from antiphon.plans.sampling.poisson import Poisson
from antiphon.plans.sampling.recorded import Recorded
from antiphon.plans.sampling.shuffled_epochs import ShuffledEpochs

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
