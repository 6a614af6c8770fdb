"""Private training of any PyTorch model: gradients of single examples, runs, checkpoints.

Three rooms: `gradients` (from a loss and a batch to a clipped sum; it knows no plan), `run` (batches,
noise, steps), `checkpoints` (a run goes on as if it had never stopped). `opacus` is an interface compatible
with Opacus on the same core; `neuron` trains a single ReLU neuron by GLMtron.
"""

from antiphon.training.checkpoints import read_export
from antiphon.training.gradients import AbstractClipping, Adaptive, Automatic, Flat, PerLayer
from antiphon.training.run import VOTE, VOTES, Dataset, Options, Run, make_private

__all__ = [
    "VOTE",
    "VOTES",
    "AbstractClipping",
    "Adaptive",
    "Automatic",
    "Dataset",
    "Flat",
    "Options",
    "PerLayer",
    "Run",
    "make_private",
    "read_export",
]
