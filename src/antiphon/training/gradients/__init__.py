"""From a loss, parameters and a batch to a clipped sum. This room knows no plan and no noise.

The one idea: **each example is computed by itself**. The loss is a function of the model and one example.
It is evaluated under ``torch.func.vmap`` over the examples of a batch, where no operation sees two of them.
So the gradient of an example depends on that example, and nothing has to be inspected.

Gradients of single examples are caught by *taps* on the calls that read trained parameters, as factors: an
example's gradient of a linear map is an outer product, so its norm is a product of norms, and the clipped
sum over the batch is one matrix product.

Read in this order:

1. `piece`: what a way to compute gradients is, and what surrounds every evaluation.
2. `batched`: all examples at once; `taps` and `rules` are how gradients are caught there. `attention`,
   `recurrent` and `bags` write layers of torch as calls that have rules.
3. `alone`: one example after another, for losses that vmap cannot follow; `choice` picks the way.
4. `context`, `state`, `leaks`, `record_draws`: what could carry something from one example to another, and
   what is done about it: torch's settings, state of Python, tensors that are kept, random numbers.
5. `factors`, `convolution`, `clipping`, `clipped_sum`: norms, weights, the sum.

What is exported here may be used outside; nothing else of this room.
"""

from antiphon.training.gradients.abstract_factor import AbstractFactor
from antiphon.training.gradients.choice import choose
from antiphon.training.gradients.clipped_sum import ClippedSum
from antiphon.training.gradients.clipping import (
    AbstractClipping,
    Adaptive,
    Automatic,
    Flat,
    PerLayer,
    clipping_of,
)
from antiphon.training.gradients.context import evaluation
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.factors import Dense, exactly, merged
from antiphon.training.gradients.global_generators import python_seeds
from antiphon.training.gradients.own_generators import OwnGenerators
from antiphon.training.gradients.piece import AbstractPath, Loss, Piece, as_scalar, device_of, kept
from antiphon.training.gradients.record_draws import RecordDraws
from antiphon.training.gradients.state import State
from antiphon.training.gradients.taps import Caught, TappedGradients, Taps
from antiphon.training.gradients.together import Together
from antiphon.training.gradients.units import Units

__all__ = [
    "AbstractClipping",
    "AbstractFactor",
    "AbstractPath",
    "Adaptive",
    "Automatic",
    "Caught",
    "ClippedSum",
    "Dense",
    "Examples",
    "Flat",
    "Loss",
    "OwnGenerators",
    "PerLayer",
    "Piece",
    "RecordDraws",
    "State",
    "TappedGradients",
    "Taps",
    "Together",
    "Units",
    "as_scalar",
    "choose",
    "clipping_of",
    "device_of",
    "evaluation",
    "exactly",
    "kept",
    "merged",
    "python_seeds",
]
