"""Tree aggregation with Honaker's online estimates."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from antiphon.mechanisms.abstract_mechanism import check_dense_steps
from antiphon.mechanisms.abstract_stored import AbstractStored, prefix_factor
from antiphon.mechanisms.full_honaker import tree_gram
from antiphon.numerics import Matrix, Rows

__all__ = ["Honaker", "prefix_decoder"]


@final
@dataclass(frozen=True)
class Honaker(AbstractStored):
    """Online Honaker: each finished node averages its own noise with that of its children [Honaker15].

    A node of height i then has variance v_i = 2^i / (2^(i+1) - 1), and a prefix the sum of v_i over the
    set bits of its length. What runs is A⁻¹L with LLᵀ = DDᵀ, D being the published prefix decoder.

    Guarantee:
        ``sensitivity`` is that of the published tree over all nodes: an upper bound for the square
        encoder that runs (``is_exact`` is False).
    """

    name: ClassVar[str] = "honaker"
    gram_is_own: ClassVar[bool] = False

    def encoder(self, T: int) -> Matrix:
        """The square encoder L⁻¹A."""
        D = prefix_decoder(T)
        return prefix_factor(D @ D.T)

    def gram(self, T: int) -> Matrix:
        """CᵀC of the published tree."""
        return tree_gram(T)


def prefix_decoder(T: int) -> Rows:
    """D: row t writes the estimate of prefix t + 1 in the noise of the tree's finished nodes."""
    check_dense_steps(T)
    ends = np.arange(1, T + 1)
    nodes, prefixes = np.zeros((T, 0)), np.zeros((T, 0))
    for height in range(int(T).bit_length()):
        count = T >> height
        own = 2.0**height / (2.0 ** (height + 1) - 1)
        children = nodes[: 2 * count : 2] + nodes[1 : 2 * count : 2] if height else nodes
        nodes = np.concatenate([(1 - own) * children, own * np.eye(count)], axis=1)
        prefixes = np.pad(prefixes, ((0, 0), (0, count)))
        # A prefix holds a node of this height if that bit of its length is set: the last finished one.
        holds = (ends >> height & 1).astype(bool)
        prefixes[holds] += nodes[(ends[holds] >> height) - 1]
    return prefixes
