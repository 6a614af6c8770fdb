"""Binary tree aggregation, in its square form."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from antiphon.mechanisms.abstract_mechanism import (
    Buffers,
    Sensitivity,
    check_dense_steps,
    check_steps,
)
from antiphon.mechanisms.abstract_stored import AbstractTriangular
from antiphon.numerics import Matrix, Vector

__all__ = ["Tree"]


@final
@dataclass(frozen=True)
class Tree(AbstractTriangular):
    """Plain tree aggregation: row t of C sums the Fenwick node that ends at step t [DNPR10].

    Node t + 1 covers the last 2^j steps, 2^j being the largest power of two that divides t + 1; a
    prefix sum is a sum of popcount(t + 1) nodes. A node's children are the newest nodes of each lower
    level, so the noise needs one buffer per level: ⌊log₂ T⌋ + 1 in all.

    Guarantee:
        ``sensitivity`` is exact wherever the participation's bound is: C >= 0. It equals that of the
        tree over all nodes for one participation and T a power of two, at the same error.

    Example:
        >>> Tree().encoder(4).astype(int).tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    """

    name: ClassVar[str] = "tree"

    def encoder(self, T: int) -> Matrix:
        """C, dense, for tests and plots."""
        check_dense_steps(T)
        node = np.arange(1, T + 1)[:, None]
        step = np.arange(1, T + 1)
        return ((step > node - (node & -node)) & (step <= node)).astype(np.float64)

    def gram(self, T: int) -> Matrix:
        """CᵀC: the number of nodes that hold both steps."""
        C = self.encoder(T)
        return C.T @ C

    def holders(self, T: int) -> Vector:
        """How many of the T nodes hold each step: the squared column norms of C, without building it.

        Example:
            >>> Tree().holders(4).tolist()
            [3.0, 2.0, 2.0, 1.0]
        """
        node, found = np.arange(1, T + 1), np.zeros(T)
        while (inside := node <= T).any():
            found += inside
            node = node + (node & -node)
        return found

    def _once(self, T: int) -> Sensitivity:
        """sqrt(⌊log₂ T⌋ + 1): the nodes that hold a step double in size, and the first step is in most."""
        return Sensitivity(math.sqrt(T.bit_length()), is_exact=True)

    def _prefix_errors(self, T: int) -> Vector:
        """The root of popcount(t + 1): a prefix sum has as many nodes, none of which overlap."""
        check_steps(T)
        numbers = np.arange(1, T + 1)
        bits = sum((numbers >> place) & 1 for place in range(int(T).bit_length()))
        return np.sqrt(np.asarray(bits, np.float64))

    def _start(self, like: Tensor, T: int) -> Buffers:
        levels = int(T).bit_length()
        return tuple(
            torch.zeros_like(like, memory_format=torch.contiguous_format) for _ in range(levels)
        )

    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        level = ((t + 1) & -(t + 1)).bit_length() - 1
        x = z.clone(memory_format=torch.contiguous_format)
        for child in kept[:level]:
            x.sub_(child)
        newest = z.contiguous() if donate else z.clone(memory_format=torch.contiguous_format)
        return x, (*kept[:level], newest, *kept[level + 1 :])
