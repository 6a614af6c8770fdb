"""The binary tree with the best linear decoder."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from antiphon.mechanisms.abstract_mechanism import check_dense_steps
from antiphon.mechanisms.abstract_stored import AbstractStored
from antiphon.numerics import Matrix, lower_root

__all__ = ["FullHonaker", "tree_gram"]


@final
@dataclass(frozen=True)
class FullHonaker(AbstractStored):
    """The full binary tree, decoded by least squares from all its nodes [Honaker15].

    The published encoder C has a row for each of the 2T - 1 nodes and decodes by A C⁺. What runs is
    the lower-triangular C' with C'ᵀC' = CᵀC: the same column norms, the same noise law, and fit for
    an adaptive stream.

    Guarantee:
        ``sensitivity`` is exact wherever the participation's bound is: CᵀC >= 0.
    """

    name: ClassVar[str] = "full-honaker"

    def encoder(self, T: int) -> Matrix:
        """C', dense, for tests and plots."""
        return lower_root(self.gram(T))

    def gram(self, T: int) -> Matrix:
        """CᵀC: the number of tree nodes above both steps."""
        return tree_gram(T)


def tree_gram(T: int) -> Matrix:
    """CᵀC of the binary tree over the smallest 2^h >= T leaves: h + 1 minus the level where two meet."""
    check_dense_steps(T)
    height = int(T - 1).bit_length()
    steps = np.arange(T)
    # frexp's exponent of a whole number is its bit length: the level of the lowest common node.
    _, meet = np.frexp((steps[:, None] ^ steps).astype(np.float64))
    return height + 1.0 - meet
