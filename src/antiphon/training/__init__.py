"""Private training of any PyTorch model: gradients of single examples, runs, checkpoints.

Four parts: `gradients` (from a loss and a batch to a clipped sum; it knows no plan), `run` (batches,
noise, steps), `checkpoints` (a resumed run gives the same result as one without interruption);
and `neuron`, which trains a single ReLU neuron by GLMtron.
"""

from antiphon.training.ball import Ball
from antiphon.training.checkpoints import read_export
from antiphon.training.gradients import AbstractClipping, Adaptive, Automatic, Flat, PerLayer
from antiphon.training.run import VOTE, VOTES, Dataset, Options, Run, make_private

__all__ = [
    "VOTE",
    "VOTES",
    "AbstractClipping",
    "Adaptive",
    "Automatic",
    "Ball",
    "Dataset",
    "Flat",
    "Options",
    "PerLayer",
    "Run",
    "make_private",
    "read_export",
]
