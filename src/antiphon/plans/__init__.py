"""The recipe of a private run: how batches are drawn, what is released beside training, and the plan."""

from antiphon.plans.deltas import delta_of
from antiphon.plans.events import Event, GaussianRelease, PureRelease, event_from_dict
from antiphon.plans.mechanism_names import mechanism_of, named_mechanism, named_mechanisms
from antiphon.plans.plan import Block, Plan
from antiphon.plans.run_length import check_length, steps_of
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, sampling_from_dict
from antiphon.plans.sampling.coins import CyclicPoisson, FixedSize, Poisson
from antiphon.plans.sampling.draws import Draws, random_subset
from antiphon.plans.sampling.epochs import BallsInBins, FullBatch, OnePass, Recorded, ShuffledEpochs
from antiphon.plans.sampling.names import SAMPLINGS, relation_of, sampling_of

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
