"""Every unit's gradient of one parameter, kept as the factors of which it is made.

A layer's gradient for one example is mostly a sum of few outer products, so its norm follows from the
factors [Goodfellow15], and the clipped sum over a batch is one matrix product [BookKeeping23]: gradients of
single examples are formed only where that is cheaper.

Squared norms are those of what `add_to` adds, to about one part in a million. Where gradients are formed,
both are made from the same numbers. Where they are not, the terms of a row (the places of a sequence) may
cancel: in float32 a gradient of norm 1 that is left over from terms of size 10000 has an error of 1/1000,
and the clip norm would not bound it. Such rows are found by comparing the norm with the size of the terms,
and are computed in float64.
"""

from abc import ABC, abstractmethod

from torch import Tensor

from antiphon.training.gradients.units import Units

__all__ = ["AbstractFactor", "Selection"]

Selection = Tensor | slice  # a mask, or neighbours


class AbstractFactor(ABC):
    """The gradients of one parameter, one for every row of a batch (an example, or a user)."""

    rows: int

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """The squared norm of every row's gradient, in float64."""

    @abstractmethod
    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """Add Σ_i weights[i] × (gradient of row i) to ``out``, of the parameter's shape."""

    @abstractmethod
    def dense(self) -> Tensor:
        """All gradients: (rows, *shape of the parameter)."""

    @abstractmethod
    def keep(self, alive: Selection) -> "AbstractFactor":
        """The rows for which ``alive`` is true, or those of a slice."""

    @abstractmethod
    def grouped(self, units: Units) -> "AbstractFactor":
        """One row per unit, with the mean of the gradients of its rows."""
