"""Private training of any PyTorch model: batches, clipped sums, noise, steps, checkpoints."""

from antiphon.training.clipping import AbstractClipping, Adaptive, Automatic, Flat, PerLayer
from antiphon.training.engine import PrivacyEngine, PrivateLoader
from antiphon.training.folder import read_export
from antiphon.training.private_sum import VOTE, VOTES
from antiphon.training.run import Run
from antiphon.training.start import make_private

__all__ = [
    "VOTE",
    "VOTES",
    "AbstractClipping",
    "Adaptive",
    "Automatic",
    "Flat",
    "PerLayer",
    "PrivacyEngine",
    "PrivateLoader",
    "Run",
    "make_private",
    "read_export",
]
