"""The recipe of a private run: how batches are drawn, what is released beside training, and the plan."""

from antiphon.plans.deltas import delta_of
from antiphon.plans.events import Event, GaussianRelease, PureRelease, event_from_dict
from antiphon.plans.mechanism_names import mechanism_of, named_mechanism, named_mechanisms
from antiphon.plans.plan import Block, Plan
from antiphon.plans.run_length import check_length, steps_of
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
    "Block",
    "CyclicPoisson",
    "Draws",
    "Event",
    "FixedSize",
    "FullBatch",
    "GaussianRelease",
    "OnePass",
    "Plan",
    "Poisson",
    "PureRelease",
    "Recorded",
    "ShuffledEpochs",
    "check_length",
    "delta_of",
    "event_from_dict",
    "mechanism_of",
    "named_mechanism",
    "named_mechanisms",
    "random_subset",
    "relation_of",
    "sampling_from_dict",
    "sampling_of",
    "steps_of",
]
